"""The shipped file is made of a captioner and a matcher that see alike."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from bundle_samples import tiny_bundle
from sightline.checkpoint.bundle import load_bundle
from sightline.checkpoint.model_checkpoint import Checkpoint, save
from sightline.models.end_to_end import end_to_end

TOOL = Path(__file__).parents[2] / "tools" / "make_default.py"


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("make_default", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checkpoints(folder, bundle):
    eyes, says, finds = bundle.vision, bundle.captioner, bundle.matcher
    paths = folder / "captioner.safetensors", folder / "matcher.safetensors"
    cards = {"metrics": {"CIDEr": 115.0}, "recipe": {"much": "more"}}, {"metrics": {"rsum": 400.0}}
    for path, reader, card in zip(paths, (says, finds), cards, strict=True):
        model = end_to_end(reader.model, eyes)
        save(path, Checkpoint(model, reader.vocabulary, reader.text_rule, {}, eyes.fingerprint(), card))
    return paths


def test_both_models_and_what_was_measured_are_in_one_file(make, tmp_path, capsys):
    bundle = tiny_bundle()
    captioner, matcher = checkpoints(tmp_path, bundle)
    out = tmp_path / "made.safetensors"
    make.main([str(captioner), str(matcher), str(out), "--name", "Test", "--precision", "float32"])
    made = load_bundle(out)
    assert made.card == {
        "name": "Test",
        "languages": ["English"],
        "captioner": {"metrics": {"CIDEr": 115.0}},
        "matcher": {"metrics": {"rsum": 400.0}},
    }
    for name in ("captioner", "matcher"):
        theirs, ours = (getattr(one, name).model.state_dict() for one in (bundle, made))
        assert all(torch.equal(theirs[key], ours[key]) for key in theirs)
    assert "MiB" in capsys.readouterr().out


def test_a_captioner_alone_makes_a_file_too(make, tmp_path):
    captioner, _ = checkpoints(tmp_path, tiny_bundle())
    out = tmp_path / "alone.safetensors"
    make.main([str(captioner), str(out)])
    assert load_bundle(out).matcher is None
