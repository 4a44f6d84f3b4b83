"""Captions as tables, lines of JSON, and pages."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from sightline.caption import PhotoCaption, WordTrace
from sightline.export.caption_tables import caption_of, csv_lines, html_page, json_array, json_lines, link, sentence
from sightline.scene import Concept

WEIRD = 'a "dog", über\n<b>&amp; 100%#?.jpg'


def told(path="photos/dog.jpg", words=("a", "dog"), low=False):
    trace = (WordTrace(), WordTrace(box=(0.1, 0.2, 0.5, 1.0), score=0.5))
    things = (Concept("dog", 0.9, (0.1, 0.2, 0.5, 1.0)), Concept("cell phone", 0.4))
    return PhotoCaption(words, -1.5, trace[: len(words)], path, (200, 100), 0.75, low, things).to_json()


def test_a_csv_reads_back_whatever_photos_are_called():
    text = "".join(csv_lines([told(WEIRD), told(low=True)]))
    header, first, second = csv.reader(io.StringIO(text, newline=""))
    assert header == ["path", "caption", "confidence", "low_confidence", "objects"]
    assert first == [WEIRD, "a dog", "0.75", "false", "dog; cell phone"]
    assert second[3] == "true"


@pytest.mark.parametrize(
    "name", ["=1+1.jpg", "+1.jpg", "-1.jpg", "@SUM(A1).jpg", "\t=1.jpg", "=cmd|' /C calc'!A0/x.jpg"]
)
def test_no_photo_is_a_formula_of_a_spreadsheet_and_the_path_is_the_same(name):
    text = "".join(csv_lines([{**told(name), "picture": name}], pictures=True))
    _, (path, *_, picture) = csv.reader(io.StringIO(text, newline=""))
    assert path == picture == f"./{name}"
    assert Path(path) == Path(name)


def test_lines_of_json_are_what_to_json_tells():
    lines = list(json_lines([told(WEIRD), told()]))
    assert [line.count("\n") for line in lines] == [1, 1]
    assert [json.loads(line) for line in lines] == [told(WEIRD), told()]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_array_is_json_of_any_length(count):
    assert json.loads("".join(json_array([told()] * count))) == [told()] * count


def test_an_array_is_whole_when_what_makes_captions_stops():
    def captions():
        yield told()
        raise KeyboardInterrupt

    pieces: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        pieces.extend(json_array(captions()))
    assert json.loads("".join(pieces)) == [told()]


class Figures(HTMLParser):
    def __init__(self):
        super().__init__()
        self.images, self.addresses, self.tags = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        known = dict(attributes)
        self.addresses += [known[name] for name in ("src", "href") if name in known]
        if tag == "img":
            self.images.append(known)


def test_a_page_has_a_figure_with_alternative_text_for_each_photo(tmp_path):
    photo = tmp_path / WEIRD
    photo.touch()
    figures = Figures()
    figures.feed("".join(html_page([told(str(photo), ("a", "<dog>")), told(low=True)], tmp_path / "out")))
    assert [image["alt"] for image in figures.images] == ["A <dog>.", "A dog."]
    assert figures.tags.count("figure") == 2
    assert "b" not in figures.tags
    found = tmp_path / "out" / unquote(figures.images[0]["src"])
    assert found.resolve() == photo.resolve()
    assert not any(re.match("[a-z]+:|//", address) for address in figures.addresses)


def test_a_page_has_dark_mode_and_tells_where_the_model_is_not_sure():
    text = "".join(html_page([told(low=True)], "."))
    assert "prefers-color-scheme: dark" in text
    assert "not sure" in text
    assert "not sure" not in "".join(html_page([told()], "."))


def test_links_lead_from_the_page_to_the_photo(tmp_path):
    assert link(tmp_path / "a" / "x y.jpg", tmp_path / "out") == "../a/x%20y.jpg"
    assert link(tmp_path / "12:30.jpg", tmp_path).startswith("./")


def test_a_caption_comes_back_from_what_was_told_of_it():
    again = caption_of(told())
    assert again.to_json() == told()
    several = told() | {"words": [{**told()["words"][1], "boxes": [[20, 20, 100, 100], [0, 0, 20, 10]]}]}
    assert caption_of(several).to_json()["words"] == several["words"]
    older = told() | {"words": [{"word": "dog", "box": [20, 20, 100, 100], "score": 0.5}]}
    assert caption_of(older).trace[0].boxes == ((0.1, 0.2, 0.5, 1.0),)
    np.testing.assert_allclose(again.trace[1].box, (0.1, 0.2, 0.5, 1.0))
    assert Path(again.path).name == "dog.jpg"


def test_sentences_have_a_capital_and_a_full_stop():
    assert (sentence("two dogs"), sentence("")) == ("Two dogs.", "")
