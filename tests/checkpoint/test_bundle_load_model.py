"""Whatever captions photos can be loaded: bundles, and checkpoints of captioners with eyes or without."""

import pytest
import torch

import sightline
from bundle_samples import EXAMPLES, tiny_bundle
from sightline.checkpoint import bundle as bundles
from sightline.checkpoint import model_checkpoint
from sightline.checkpoint.bundle import load_bundle, save_bundle
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.errors import CheckpointError
from sightline.models.end_to_end import Reader, end_to_end
from sightline.models.updown import UpDownConfig
from sightline.pipeline import load_model

torch.set_num_threads(1)
PHOTOS = [EXAMPLES / "cat.jpg", EXAMPLES / "coffee.jpg"]


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A tiny model in the place of the one that comes with the package."""
    path = tmp_path / "shipped.safetensors"
    save_bundle(path, tiny_bundle())
    monkeypatch.setattr(bundles, "default_bundle", lambda: path)
    return path


def up_down(words):
    torch.manual_seed(0)
    config = UpDownConfig(region_width=24, word_size=8, hidden_size=16, attention_size=8)
    return config.build(len(words)).eval()


def test_without_a_name_it_is_the_model_that_comes_with_the_package(shipped):
    assert load_model().card == {"name": "tiny"}
    assert load_model(shipped).card == {"name": "tiny"}


def test_a_captioner_that_was_trained_with_eyes_says_what_its_bundle_says(shipped, tmp_path):
    bundle = load_bundle(shipped)
    says = bundle.captioner
    model_checkpoint.save(
        tmp_path / "x", Checkpoint(end_to_end(says.model, bundle.vision), says.vocabulary, says.text_rule)
    )
    found = sightline.load(tmp_path / "x").caption(PHOTOS)
    assert [str(said) for said in found] == [str(said) for said in sightline.load(shipped).caption(PHOTOS)]


def test_a_captioner_of_extracted_scenes_sees_with_the_eyes_that_extracted_them(shipped, tmp_path):
    bundle = load_bundle(shipped)
    words = bundle.captioner.vocabulary
    model = up_down(words)
    mark = bundle.vision.fingerprint()
    model_checkpoint.save(
        tmp_path / "x", Checkpoint(model, words, "self-critical", fingerprint=mark, card={"name": "mine"})
    )
    pipeline = sightline.load(tmp_path / "x")
    assert pipeline.bundle.card == {"name": "mine"}
    assert pipeline.bundle.matcher is not None
    by_hand = sightline.Pipeline(bundles.Bundle(bundle.vision, Reader(model, words, "self-critical")))
    found = pipeline.caption(PHOTOS)
    assert [str(said) for said in found] == [str(said) for said in by_hand.caption(PHOTOS)]
    assert all(str(said) for said in found)


@pytest.mark.parametrize("mark", ["", "f00d"])
def test_a_captioner_of_other_features_is_refused_with_what_to_do(shipped, tmp_path, mark):
    words = load_bundle(shipped).captioner.vocabulary
    model_checkpoint.save(tmp_path / "x", Checkpoint(up_down(words), words, "self-critical", fingerprint=mark))
    with pytest.raises(CheckpointError, match=r"updown model has no eyes.*other features.*evaluate --features"):
        load_model(tmp_path / "x")
