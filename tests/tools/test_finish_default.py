"""What was fitted and measured goes into the shipped file; nothing else of it changes."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bundle_samples import tiny_bundle
from sightline.checkpoint.bundle import load_bundle, save_bundle
from sightline.errors import ConfigError
from sightline.grounding.box_chooser import BoxChooser
from sightline.grounding.calibration import SupportModel

TOOL = Path(__file__).parents[2] / "tools" / "finish_default.py"
AUDITING = SupportModel((1.0, 0.0, 0.5, 0.25, 2.0, 0.0), bias=1.5, least=0.7, place=(1.5, 0.5), nouns=900)
SETS = {
    "coco": {
        "photos": 4407,
        "captions": {"CIDEr-D": 109.851, "BLEU-4": 33.519},
        "matching": {"captions R@1": 57.325, "photos R@1": 45.015, "folds": 4.0, "photos of a fold": 1000.0},
    },
    "flickr8k": {"photos": 1000, "regions": {"36 boxes": 79.9475}},
}


@pytest.fixture(scope="module")
def finish():
    spec = importlib.util.spec_from_file_location("finish_default", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


@pytest.fixture
def path(tmp_path):
    save_bundle(tmp_path / "tiny.safetensors", tiny_bundle())
    return tmp_path / "tiny.safetensors"


def test_how_sure_boxes_are_can_be_all_that_is_taken_of_an_audit(finish, path, tmp_path):
    (tmp_path / "audit.json").write_text(json.dumps({"auditing": asdict(AUDITING), "test": {}}))
    out = tmp_path / "out.safetensors"
    finish([str(one) for one in (path, out, "--place", tmp_path / "audit.json")])
    assert load_bundle(out).auditing == replace(load_bundle(path).auditing, place=AUDITING.place)


def test_all_that_is_given_is_in_the_file(finish, path, tmp_path):
    (tmp_path / "audit.json").write_text(json.dumps({"auditing": asdict(AUDITING), "test": {}}))
    (tmp_path / "results.json").write_text(json.dumps({"sets": SETS}))
    out = tmp_path / "out.safetensors"
    given = ["--audit", tmp_path / "audit.json", "--measured", tmp_path / "results.json", "--matcher", 0.9]
    finish([str(one) for one in (path, out, *given)])
    made, before = load_bundle(out), load_bundle(path)
    assert made.auditing == AUDITING
    assert made.pointing == BoxChooser(0.9, before.pointing.least)
    assert (made.fit, made.choice) == (before.fit, before.choice)
    assert made.card["name"] == "tiny"
    assert made.card["metrics"] == {
        "CIDEr-D": 109.85,
        "BLEU-4": 33.52,
        "caption R@1": 57.3,
        "photo R@1": 45.0,
        "boxes covered by 36": 79.9,
    }
    assert made.card["measured on"].startswith(
        "4,407 photos of COCO's Karpathy test split; R@1 by vectors in 4 folds of 1,000"
    )
    assert made.vision.fingerprint() == before.vision.fingerprint()
    assert made.calibration == before.calibration


def test_without_anything_the_file_stays_as_it_is(finish, path, tmp_path):
    finish([str(path), str(tmp_path / "same.safetensors")])
    before, after = load_file(path), load_file(tmp_path / "same.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_an_audit_of_another_form_is_refused(finish, path, tmp_path):
    (tmp_path / "audit.json").write_text(json.dumps({"auditing": {"weight": 1}}))
    with pytest.raises(ConfigError, match="weight"):
        finish([str(path), str(tmp_path / "x"), "--audit", str(tmp_path / "audit.json")])


def test_what_copying_counts_is_added_to_and_asked_of_captioners_that_copy(finish, tmp_path):
    plain = tmp_path / "plain.safetensors"
    save_bundle(plain, tiny_bundle())
    with pytest.raises(SystemExit, match="copies nothing"):
        finish([str(plain), str(tmp_path / "out.safetensors"), "--copying", "4.5"])
    bundle = tiny_bundle()
    says = bundle.captioner
    config = replace(says.model.config, concepts=3, copy=True)
    save_bundle(plain, replace(bundle, captioner=replace(says, model=config.build(len(says.vocabulary)).eval())))
    finish([str(plain), str(tmp_path / "out.safetensors"), "--copying", "4.5"])
    assert load_bundle(tmp_path / "out.safetensors").captioner.model.copier.bias.item() == pytest.approx(4.5, abs=0.02)
