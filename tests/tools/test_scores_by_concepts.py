"""tools/scores_by_concepts.py: what R²M's captions are worth, by what was found in their photos."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
RECIPE = """base:
  model: {kind: r2m, vector_width: 4}
  data:
    captions: captions.json
    splits: {test: test.txt}
  stages: {}
"""


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location("scores_by_concepts", TOOLS / "scores_by_concepts.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "scores_by_concepts", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("concepts", "kind"),
    [
        (["person", "person"], "a person alone"),
        (["dog", "person"], "a person and more"),
        (["dog"], "something else"),
        ([], "nothing"),
    ],
)
def test_photos_are_told_apart_by_their_concepts(tool, concepts, kind):
    assert tool.kind(concepts) == kind


def test_each_kind_of_photo_has_its_mean(tool, tmp_path, monkeypatch, capsys):
    people = {"1.jpg": "a man runs on grass", "2.jpg": "a dog sleeps", "3.jpg": "two men talk at night"}
    images = [{"id": n, "file_name": name} for n, name in enumerate(people)]
    annotations = [{"id": n, "image_id": n, "caption": text} for n, text in enumerate(people.values())]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text(RECIPE)
    ids = [str(image["id"]) for image in images]
    said = dict(zip(ids, ["a man runs on grass", "some cats", "some cats"], strict=True))
    (run / "captions.json").write_text(json.dumps(said))
    boxes = [["1.jpg", [[0, 0.9, 0, 0, 500, 500]]], ["2.jpg", [[16, 0.9, 0, 0, 500, 500]]], ["3.jpg", []]]
    with gzip.open(tmp_path / "boxes.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in boxes)
    monkeypatch.setenv("SIGHTLINE_DATA", str(tmp_path))
    tool.main([str(run), str(tmp_path / "boxes.jsonl.gz")])
    printed = capsys.readouterr().out
    assert "| a person alone | 1 | " in printed
    assert "| something else | 1 | 0.0 |" in printed
    assert "| nothing | 1 | 0.0 |" in printed
    assert "2 different captions of 3 photos; 2 are “some cats”" in printed
