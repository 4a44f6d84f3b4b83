"""tools/scores_by_concepts.py: what R²M's captions are worth, by what was found in their photos."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
import torch

from sightline.checkpoint.model_checkpoint import Checkpoint, save
from sightline.models.r2m import R2MConfig
from sightline.text.vocabulary import Vocabulary

TOOLS = Path(__file__).parents[2] / "tools"
WORDS = ["person", "dog", "runs", "sleeps", "grass"]
RECIPE = """base:
  model: {kind: r2m, hidden_size: 8, vector_width: 4}
  data:
    captions: captions.json
    splits: {test: test.txt}
    concepts: boxes.jsonl
    rule: r2m
    vocabulary: corpus
    corpus: text.txt
  stages: {}
  evaluate: {strategy: {kind: greedy}, rules: {max_words: 4}}
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
    ],
)
def test_photos_are_told_apart_by_their_concepts(tool, concepts, kind):
    assert tool.kind(concepts) == kind


def test_photos_are_captioned_from_what_was_found_and_from_what_people_mention(tool, tmp_path, monkeypatch, capsys):
    people = {
        "1.jpg": ["a man runs on grass", "someone runs", "a runner"],
        "2.jpg": ["a dog sleeps", "the puppy sleeps", "a cat"],
        "3.jpg": ["a dog on grass", "dogs", "a puppy"],
    }
    images = [{"id": n, "file_name": name} for n, name in enumerate(people)]
    texts = [(n, text) for n, own in enumerate(people.values()) for text in own]
    annotations = [{"id": m, "image_id": n, "caption": text} for m, (n, text) in enumerate(texts)]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    (tmp_path / "test.txt").write_text("\n".join(people) + "\n")
    boxes = [["1.jpg", [[0, 0.9, 0, 0, 500, 500]]], ["2.jpg", [[16, 0.9, 0, 0, 500, 500]]]]
    boxes += [["3.jpg", [[0, 0.8, 0, 0, 500, 500]]]]  # a person, where people see a dog
    (tmp_path / "boxes.jsonl").write_text("\n".join(map(json.dumps, boxes)) + "\n")
    run, vocabulary = tmp_path / "run", Vocabulary(WORDS)
    run.mkdir()
    (run / "recipe.yaml").write_text(RECIPE)
    torch.manual_seed(0)
    model = R2MConfig(hidden_size=8, vector_width=4).build(len(vocabulary))
    save(run / "model.safetensors", Checkpoint(model, vocabulary, "r2m"))
    monkeypatch.setenv("SIGHTLINE_DATA", str(tmp_path))

    monkeypatch.setattr(tool, "write_texts", lambda checkpoint, pool, how: spoken(tool, checkpoint, pool))
    tool.main([str(run)])
    printed = capsys.readouterr().out
    assert "| a person alone | 2 | " in printed
    assert "| something else | 1 | " in printed
    assert "2 different captions of 3 photos; 2 are “person”" in printed
    assert "2 of 3 concepts found are among 2 people's, 2 of the 3 that these mention are found." in printed
    before, after = re.search(r"CIDEr ([\d.]+); from what people mention ([\d.]+)\.", printed).groups()
    assert float(after) > float(before)


def spoken(tool, checkpoint, pool):
    """A captioner that says its concepts and nothing else."""
    return {id: " ".join(names) for id, names in tool.concepts_of(pool, checkpoint).items()}
