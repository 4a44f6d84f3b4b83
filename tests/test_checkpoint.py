"""Checkpoints: one file, whole or not there, damage noticed, nothing run."""

import json

import pytest
import torch
from safetensors.torch import save_file

from sightline.checkpoint import Checkpoint, load, read_header, save
from sightline.errors import CheckpointError, SightlineError
from sightline.models.updown import UpDownConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["a", "café", "dog"])


def small(kind="updown"):
    if kind == "vsepp":
        return VSEPPConfig(region_width=4, vector_width=4, size=6, word_size=5).build(len(VOCABULARY))
    return UpDownConfig(region_width=4, word_size=5, hidden_size=6, attention_size=7).build(len(VOCABULARY))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    save(path, Checkpoint(small(), VOCABULARY, "neuraltalk2", {"size": 224}, "f00d", {"name": "test"}))
    return path


def test_everything_comes_back(path):
    loaded = load(path)
    assert loaded.vocabulary == VOCABULARY
    assert (loaded.text_rule, loaded.preprocessing, loaded.fingerprint) == ("neuraltalk2", {"size": 224}, "f00d")
    assert loaded.card == {"name": "test"}
    assert loaded.captioner() is loaded.model
    assert not loaded.model.training


def test_the_header_is_read_without_the_weights(path):
    header = read_header(path)
    assert header["model"]["kind"] == "updown"
    assert header["words"] == ["a", "café", "dog"]


def test_a_captioner_is_no_matcher_and_the_other_way_round(path):
    with pytest.raises(CheckpointError, match="updown model writes captions"):
        load(path).matcher(path)
    save(path, Checkpoint(small("vsepp"), VOCABULARY))
    with pytest.raises(CheckpointError, match="vsepp model matches texts"):
        load(path).captioner(path)


def test_a_vocabulary_of_another_size_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="7 ids with a vocabulary of 5"):
        save(tmp_path / "x.safetensors", Checkpoint(small(), Vocabulary(["a"])))
    assert not list(tmp_path.iterdir())


def test_a_flipped_bit_in_the_weights_is_noticed(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged"):
        load(path)


@pytest.mark.parametrize("keep", [0, 5, 500, -8])
def test_a_cut_file_is_noticed(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="not a Sightline checkpoint"):
        load(path)


def test_text_named_safetensors_and_a_missing_file_are_told(tmp_path):
    (tmp_path / "x.safetensors").write_text("hello, this is no model at all")
    with pytest.raises(CheckpointError, match="sightline convert"):
        load(tmp_path / "x.safetensors")
    with pytest.raises(SightlineError, match="nowhere"):
        load(tmp_path / "nowhere.safetensors")


def test_weights_of_others_are_told(tmp_path):
    save_file({"a": torch.zeros(2)}, tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match="not Sightline's description"):
        load(tmp_path / "x.safetensors")


def rewritten(path, **changes):
    """The file with another header."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(file.metadata()["sightline"])
    save_file(weights, path, {"sightline": json.dumps({**header, **changes})})


def test_a_later_layout_is_told(path):
    rewritten(path, layout=99)
    with pytest.raises(CheckpointError, match="layout 99"):
        load(path)


def test_a_model_this_version_does_not_know_is_told(path):
    rewritten(path, model={"kind": "updwn"})
    with pytest.raises(CheckpointError, match="cannot read its model"):
        load(path)


def test_weights_that_do_not_fit_the_config_are_told(path):
    rewritten(path, model={"kind": "updown", "region_width": 5})
    with pytest.raises(CheckpointError, match="do not fit"):
        load(path)
