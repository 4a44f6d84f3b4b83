"""`sightline models`: which models there are, and what a file holds."""

import json
from pathlib import Path
from typing import get_args

import pytest
import torch

from bundle_samples import WORDS, tiny_bundle
from sightline.checkpoint.bundle import load_bundle, save_bundle
from sightline.checkpoint.model_checkpoint import Checkpoint, save
from sightline.cli import commands
from sightline.cli.models_command import KINDS
from sightline.models.end_to_end import end_to_end
from sightline.models.model_configs import CaptionerConfig, MatcherConfig
from sightline.models.updown import UpDownConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.text.vocabulary import Vocabulary
from sightline.training.recipe import read_rows, shipped_recipes
from sightline.vision.efficientnet_lite import HEAD as WIDTH
from sightline.vision.grid_encoder import GridEncoder

torch.set_num_threads(1)
VOCABULARY = Vocabulary(["a", "café", "dog"])
CARD = {
    "name": "Pavement",
    "licence": "CC BY 4.0",
    "data": {"counts": {"train": {"photos": 1200, "captions": 6000}}},
    "measured on": "test",
    "metrics": {"CIDEr": 61.25, "note": "not a number"},
    "limits": "knows streets alone",
    "recipe": {"seed": 3},
}


def updown(width: int = 4):
    return UpDownConfig(region_width=width, word_size=5, hidden_size=6, attention_size=7).build(len(VOCABULARY))


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "model.safetensors"
    save(path, Checkpoint(updown(), VOCABULARY, card=CARD))
    return path


def told(capsys, *arguments: object) -> str:
    assert commands.main(["models", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def count(model: torch.nn.Module) -> int:
    return sum(weights.numel() for weights in model.parameters())


def test_a_checkpoint_tells_its_kind_size_words_and_card(file, capsys):
    found = json.loads(told(capsys, file, "--json"))
    assert (found["file"], found["holds"], found["name"]) == (str(file), "checkpoint", "Pavement")
    assert found["bytes"] == file.stat().st_size
    assert (found["licence"], found["card"]) == ("CC BY 4.0", CARD)
    (part,) = found["parts"]
    assert (part["part"], part["kind"], part["words"]) == ("captioner", "updown", 3)
    assert part["parameters"] == found["parameters"] == count(updown())
    assert part["metrics"] == CARD["metrics"]


def test_people_read_the_same(file, capsys):
    shown = told(capsys, file)
    assert shown.startswith(f"Pavement: {file}, a checkpoint\n")
    for text in (
        f"updown, {count(updown()):,} parameters, 3 words",
        "trained on 1,200 photos with 6,000 captions",
        "at the end of training, on test: CIDEr 61.25\n",
        "knows streets alone",
        "licence    CC BY 4.0",
    ):
        assert text in shown


def test_the_folder_of_a_run_is_its_model(file, capsys):
    assert told(capsys, file.parent) == told(capsys, file)


def test_the_eyes_of_a_model_are_told_too(file, capsys):
    eyes = GridEncoder()
    save(file, Checkpoint(end_to_end(updown(WIDTH), eyes), VOCABULARY))
    vision, says = json.loads(told(capsys, file, "--json"))["parts"]
    assert (vision["part"], vision["kind"], vision["words"]) == ("vision", "grid", None)
    assert (vision["parameters"], says["parameters"]) == (count(eyes), count(updown(WIDTH)))


def test_a_matcher_is_called_so(file, capsys):
    model = VSEPPConfig(region_width=4, vector_width=4, size=6, word_size=5).build(len(VOCABULARY))
    save(file, Checkpoint(model, VOCABULARY))
    shown = told(capsys, file)
    assert "matcher  vsepp" in shown
    assert "a model without a name" in shown
    assert "licence  not named in the file" in shown


def test_a_bundle_tells_each_of_its_parts(tmp_path, capsys):
    path, whole = tmp_path / "photo model ü.safetensors", tiny_bundle(pointer=True)
    whole.card["pointer"] = {"data": "20 words"}
    whole.card["captioner"] = {"metrics": {"CIDEr": 109.6}, "measured on": "test"}
    save_bundle(path, whole, "int8")
    found = json.loads(told(capsys, path, "--json"))
    assert (found["holds"], found["precision"], found["name"]) == ("bundle", "int8", "tiny")
    parts = {part["part"]: part for part in found["parts"]}
    assert {name: part["kind"] for name, part in parts.items()} == {
        "vision": "detector",
        "captioner": "scene-trans",
        "matcher": "scene-matcher",
        "pointer": "word-pointer",
    }
    assert "trained on 20 words\n" in told(capsys, path)
    assert (parts["captioner"]["words"], parts["captioner"]["metrics"]) == (len(WORDS), {"CIDEr": 109.6})
    assert (parts["matcher"]["metrics"], parts["vision"]["words"]) == (None, None)
    assert "at the end of training, on test: CIDEr 109.6\n" in told(capsys, path)
    loaded = load_bundle(path)
    models = loaded.vision, loaded.captioner.model, loaded.matcher.model, loaded.pointer
    assert found["parameters"] == sum(map(count, models))


def test_what_was_measured_with_the_file_is_told_apart_from_what_was_measured_in_training(tmp_path, capsys):
    path, whole = tmp_path / "model.safetensors", tiny_bundle()
    whole.card.update({"metrics": {"CIDEr-D": 109.85, "caption R@1": 57.3}, "measured on": "4,407 photos"})
    whole.card["matcher"] = {"metrics": {"i2t R@1": 58.1}, "measured on": "test"}
    save_bundle(path, whole)
    shown = told(capsys, path)
    assert "measured   this file, on 4,407 photos: CIDEr-D 109.85, caption R@1 57.3\n" in shown
    assert "at the end of training, before it was packed into this file, on test: i2t R@1 58.1\n" in shown


@pytest.mark.parametrize(
    "card",
    [
        {"name": 7, "metrics": [1], "data": {"counts": 3}, "licence": 0},
        {"name": None, "metrics": {"x": None}, "measured on": ["a"], "data": {"counts": {"train": {"photos": "many"}}}},
        {"name": "red \x1b[31m\nbell \x07", "data": "my holiday", "licence": "free\n\nfor all"},
    ],
    ids=str,
)
def test_a_card_may_say_anything_but_not_to_the_terminal(card, file, capsys):
    save(file, Checkpoint(updown(), VOCABULARY, card=card))
    shown = told(capsys, file)
    assert "updown" in shown
    assert not {"\x1b", "\x07"} & set(shown)
    if card["name"] and card["name"] != 7:
        assert shown.startswith(r"red \x1b[31m\nbell \x07: ")
        assert "trained on my holiday" in shown


def test_damage_and_other_files_are_refused_with_a_sentence(file, tmp_path, capsys):
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    assert commands.main(["models", str(file), "--quiet"]) == 2
    assert "its weights are damaged" in capsys.readouterr().err
    other = tmp_path / "notes.txt"
    other.write_text("no model at all")
    for path, what in ((other, "not a Sightline model"), (tmp_path / "missing", "no such file")):
        assert commands.main(["models", str(path)]) == 2
        assert what in capsys.readouterr().err


def test_every_kind_in_the_zoo_is_listed_with_the_recipes_that_train_it():
    zoo = {"captioner": get_args(CaptionerConfig), "matcher": get_args(MatcherConfig)}
    assert {name: kind.does for name, kind in KINDS.items()} == {
        config.kind: does for does, configs in zoo.items() for config in configs
    }
    trained = {
        (row["model"]["kind"], path.parent.name) for path in shipped_recipes() for row in read_rows(path).values()
    }
    assert {(name, recipe) for name, kind in KINDS.items() for recipe in kind.recipes} == trained


def test_the_model_that_comes_with_sightline_is_listed_with_its_terms(tmp_path, monkeypatch, capsys):
    path = tmp_path / "weights" / "sightline.safetensors"
    monkeypatch.setattr("sightline.checkpoint.bundle.DEFAULT", (str(path),))
    assert "is not in this installation" in (without := told(capsys))
    assert "\n  pos-scan" in without
    assert json.loads(told(capsys, "--json"))["shipped"] is None
    path.parent.mkdir()
    save_bundle(path, tiny_bundle())
    path.with_name("LICENSE").write_text("For research.\nNot for sale.\n")
    shown = told(capsys)
    assert shown.startswith("tiny: ")
    assert "licence    For research.\n             Not for sale.\n" in shown
    assert "\n  pos-scan" in shown
    found = json.loads(told(capsys, "--json"))
    assert found["shipped"]["licence"] == "For research.\nNot for sale."
    assert {kind["kind"] for kind in found["kinds"]} == set(KINDS)
