"""Curves, the page, and the gallery of the documentation."""

import base64
import io
import math
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from sightline.draw.canvas import COLOURS
from sightline.draw.curves import curves, curves_svg, ticks
from sightline.draw.picture_page import Page, data_uri
from sightline.errors import ConfigError

ROOT = Path(__file__).parents[2]
LOSS = {"train": [(0, 3.0), (1, 2.0), (2, 1.5)], "val <&>": [(0, 3.1), (2, 2.0)]}


def places(picture, colour):
    return np.nonzero((np.asarray(picture) == colour).all(axis=2))


def test_a_rising_curve_rises_from_left_to_right():
    picture = curves({"score": [(x, x**2) for x in range(10)]}, width=400, height=200).crop((0, 60, 448, 300))
    rows, columns = places(picture, COLOURS[0])
    heights = [rows[columns == x].mean() for x in sorted(set(columns))]
    assert heights[0] - heights[-1] > 120
    assert np.diff(heights).max() < 2


def test_a_point_that_is_not_finite_breaks_the_line():
    whole, broken = (curves({"score": [(0, 0), (1, y), (2, 0)]}, width=400, height=200) for y in (0.0, math.nan))
    assert len(places(broken, COLOURS[0])[0]) < len(places(whole, COLOURS[0])[0]) - 300


def test_every_series_has_its_colour_in_chart_and_legend():
    picture = curves(LOSS, "Loss", "epoch", width=400)
    for colour in COLOURS[:2]:
        assert len(places(picture, colour)[0]) > 200
    assert not len(places(picture, COLOURS[2])[0])


@pytest.mark.parametrize("points", [[(0, 5)], [(3, 2.0), (4, 2.0)], [(0, 1e-9), (1, 2e-9)], [(0, -4e7), (1, 3e8)]])
def test_single_constant_tiny_and_huge_values_are_drawn(points):
    assert len(places(curves({"y": points}), COLOURS[0])[0]) > 50
    assert "nan" not in curves_svg({"y": points})


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.3, 1.2), (-5, 5), (0, 99999), (2, 2), (0, 0), (1e-7, 3e-7)])
def test_ticks_are_even_and_enclose_the_values(low, high):
    marks = ticks(low, high, 5)
    values = [value for value, _ in marks]
    assert values[0] <= low
    assert values[-1] >= high
    assert np.allclose(np.diff(values), values[1] - values[0])
    assert len({label for _, label in marks}) == len(marks)
    assert len(marks) <= 9
    for value, label in marks:
        assert float(label.replace(",", "")) == pytest.approx(value, abs=(values[1] - values[0]) / 100)


def test_charts_without_points_or_height_are_refused():
    with pytest.raises(ConfigError, match="no finite point"):
        curves({"loss": [(0, math.nan)]})
    with pytest.raises(ConfigError, match="no finite point"):
        curves_svg({})
    with pytest.raises(ConfigError, match="high"):
        curves(LOSS, height=20)


def test_svg_is_well_formed_escaped_and_goes_through_the_points():
    svg = ElementTree.fromstring(curves_svg(LOSS, "Loss <b>", "epoch"))
    assert svg.find("title").text == "Loss <b>"
    lines = [path for path in svg.iter("path") if path.get("fill") == "none"]
    assert [line.find("title").text for line in lines] == list(LOSS)
    first = [tuple(map(float, pair.split())) for pair in lines[0].get("d")[1:].split("L")]
    assert len(first) == 3
    assert first[0][1] < first[1][1] < first[2][1]  # a falling loss: y grows downwards
    assert first[1][0] - first[0][0] == pytest.approx(first[2][0] - first[1][0], abs=0.11)


def test_a_legend_of_many_names_wraps_inside_the_svg():
    svg = ElementTree.fromstring(curves_svg({f"a rather long name {i}": [(0, i)] for i in range(12)}, width=480))
    _, _, width, height = map(float, svg.get("viewBox").split())
    swatches = [(float(r.get("x")), float(r.get("y"))) for r in svg.iter("rect")]
    assert len(set(swatches)) == 12
    assert max(x for x, _ in swatches) < width - 100
    assert max(y for _, y in swatches) + 12 <= height


class Reader(HTMLParser):
    """Collects tags, and checks that what is opened is closed."""

    def __init__(self):
        super().__init__()
        self.tags, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(html):
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    return reader.tags


def full_page():
    page = Page("Dogs & <cats>", "An <intro>")
    page.add(Image.new("RGB", (8, 6), "red"), 'He said "<woof>"', alt='A "red" square')
    return page.add(curves_svg(LOSS), "Loss", alt="Two falling curves")


def test_the_page_parses_and_every_picture_has_alternative_text():
    tags = read(full_page().html())
    images = [attributes for tag, attributes in tags if tag == "img"]
    assert [image["alt"] for image in images] == ['A "red" square']
    assert (images[0]["width"], images[0]["height"]) == ("8", "6")
    assert "Two falling curves" in [attributes.get("aria-label") for _, attributes in tags]


def test_the_page_asks_nothing_of_any_other_place():
    html = full_page().html()
    assert not re.search(r"https?:|//\w|url\(|@import|<script|<link", re.sub(r"base64,[\w+/=]+", "", html))
    for tag, attributes in read(html):
        assert attributes.get("src", "data:").startswith("data:"), tag


def test_the_page_has_dark_colours_and_shows_text_as_text():
    html = full_page().html()
    assert "prefers-color-scheme: dark" in html
    assert "<cats>" not in html
    assert "&lt;woof&gt;" in html


def test_pictures_in_the_page_are_the_pictures_and_photos_are_small():
    flat = Image.new("RGB", (50, 50), (10, 20, 30))
    kind, raw = data_uri(flat).split(",")
    assert kind == "data:image/png;base64"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(raw)))), np.asarray(flat))
    noisy = np.random.default_rng(0).integers(0, 60, (80, 80, 3), dtype=np.uint8) + 90
    kind, raw = data_uri(Image.fromarray(noisy)).split(",")
    assert kind == "data:image/jpeg;base64"
    back = np.asarray(Image.open(io.BytesIO(base64.b64decode(raw))), dtype=float)
    assert np.abs(back - noisy).mean() < 8


def test_a_picture_without_alternative_text_or_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="alternative text"):
        Page().add(Image.new("RGB", (1, 1)), "caption", alt=" ")
    with pytest.raises(ConfigError, match="an image or an inline SVG"):
        Page().add("photo.png", "caption", alt="A photo")


def test_the_page_is_saved_whole(tmp_path):
    full_page().save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == full_page().html()


def test_drawing_needs_no_torch():
    rooms = ", ".join(f"sightline.draw.{path.stem}" for path in (ROOT / "src/sightline/draw").glob("*.py"))
    code = f"import sys, {rooms}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_pictures_page_shows_every_picture_of_the_gallery_and_they_stay_small():
    text = (ROOT / "docs" / "pictures.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[([^\]]+)\]\(images/([\w-]+)\.png\)", text)
    gallery = runpy.run_path(str(ROOT / "tools" / "draw_gallery.py"))["PICTURES"]
    assert [name for _, name in shown] == list(gallery)
    files = [ROOT / "docs" / "images" / f"{name}.png" for name in gallery]
    assert sum(file.stat().st_size for file in files) < 500_000
