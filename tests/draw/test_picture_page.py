"""The page, and the gallery of the documentation."""

import base64
import io
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sightline.draw.charts import curves_svg
from sightline.draw.picture_page import Page, data_uri
from sightline.errors import ConfigError

ROOT = Path(__file__).parents[2]
LOSS = {"train": [(0, 3.0), (1, 2.0), (2, 1.5)], "val <&>": [(0, 3.1), (2, 2.0)]}


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
    assert not re.search(r"https?:|//\w|url\((?!#)|@import|<script|<link", re.sub(r"base64,[\w+/=]+", "", html))
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
    assert sum(file.stat().st_size for file in files) < 600_000
