"""Checkpoints: one file, whole or not there, damage noticed, nothing run."""

import json
import subprocess
import sys
from dataclasses import fields
from typing import get_args

import pytest
import torch
from safetensors.torch import save_file

from sightline.checkpoint.checkpoint_file import read_description
from sightline.checkpoint.model_checkpoint import Checkpoint, load, save
from sightline.errors import CheckpointError, SightlineError
from sightline.files import checksum
from sightline.models.end_to_end import end_to_end
from sightline.models.jrln import JRLNConfig
from sightline.models.model_configs import ModelConfig
from sightline.models.updown import UpDownConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.text.vocabulary import Vocabulary
from sightline.vision.efficientnet_lite import HEAD as WIDTH
from sightline.vision.grid_encoder import GridEncoder

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


def test_a_model_that_is_saved_again_is_the_same_file_to_the_byte(path, tmp_path):
    checkpoint, again = load(path), tmp_path / "again.safetensors"
    for _ in range(20):  # the order of a hash map would be another one soon
        save(again, checkpoint)
        assert again.read_bytes() == path.read_bytes()


def test_the_header_is_read_without_the_weights(path):
    header = read_description(path, "checkpoint")
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
    with pytest.raises(CheckpointError, match="its weights are damaged"):
        load(path)


def test_a_flipped_bit_in_a_word_is_noticed(path):
    data = bytearray(path.read_bytes())
    data[data.find(b"dog") + 2] ^= 1
    path.write_bytes(data)
    for read in (load, lambda path: read_description(path, "checkpoint")):
        with pytest.raises(CheckpointError, match="its description is damaged"):
            read(path)


def test_a_flipped_bit_anywhere_in_the_header_is_noticed(path):
    whole = path.read_bytes()
    for place in range(0, 8 + int.from_bytes(whole[:8], "little"), 7):
        data = bytearray(whole)
        data[place] ^= 1 << (place % 7)
        path.write_bytes(data)
        with pytest.raises(CheckpointError):
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
    """The file with another header; `...` leaves a key out."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(file.metadata()["sightline"])
    text = json.dumps({name: value for name, value in {**header, **changes}.items() if value is not ...})
    save_file(weights, path, {"sightline": text, "checksum": str(checksum(text.encode()))})


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


@pytest.mark.parametrize("key", ["card", "checksum", "words", "text_rule", "preprocessing", "fingerprint", "model"])
@pytest.mark.parametrize("value", [..., 5.5], ids=["missing", "a number"])
def test_a_description_that_lacks_something_is_told(path, key, value):
    rewritten(path, **{key: value})
    with pytest.raises(CheckpointError, match=key):
        load(path)


@pytest.mark.parametrize("words", [["a", "a", "b"], ["a", 2, "b"], ["a", "<pad>", "b"]])
def test_words_that_are_no_vocabulary_are_told(path, words):
    rewritten(path, words=words)
    with pytest.raises(SightlineError, match=r"words|vocabulary|special"):
        load(path)


@pytest.mark.parametrize("text", ["5", "{}", "no JSON", "[" * 100_000])
def test_a_description_that_is_none_is_told(path, text):
    save_file({"a": torch.zeros(2)}, path, {"sightline": text, "checksum": str(checksum(text.encode()))})
    with pytest.raises(CheckpointError, match="not Sightline's description"):
        load(path)


@pytest.mark.parametrize("hidden_size", [60_000, 2_000_000, 10**12, 10**30])
def test_sizes_that_the_weights_do_not_have_take_no_memory(path, hidden_size):
    rewritten(path, model={"kind": "updown", "region_width": 4, "hidden_size": hidden_size})
    with pytest.raises(CheckpointError, match="do not fit"):
        load(path)


@pytest.mark.parametrize(
    "vision", [{"variant": "lite9", "size": 32}, {"size": 32}, {"variant": "lite0", "depth": 3}, 7]
)
def test_a_backbone_this_version_does_not_know_is_told(path, vision):
    rewritten(path, vision=vision)
    with pytest.raises(CheckpointError, match="vision"):
        load(path)


@pytest.mark.parametrize("kind", get_args(ModelConfig))
def test_every_kind_of_model_is_whole_once_loaded(tmp_path, kind):
    names = [field.name for field in fields(kind)]
    sizes = {name: 8 for name in names if name.endswith(("_width", "_size")) or name in ("size", "heads")}
    parts = {"jrln": JRLNConfig(size=8)} if "jrln" in names else {}
    saved = kind(**sizes, **parts).build(len(VOCABULARY)).eval()
    save(tmp_path / "x.safetensors", Checkpoint(saved, VOCABULARY))
    loaded = load(tmp_path / "x.safetensors").model
    assert not any(part.is_meta for part in (*loaded.parameters(), *loaded.buffers()))
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    for (name, one), (again, other) in zip(saved.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert name == again
        assert torch.equal(one, other)


def test_the_backbone_of_a_model_that_looks_comes_back(tmp_path):
    model = end_to_end(UpDownConfig(region_width=WIDTH, hidden_size=6).build(len(VOCABULARY)), GridEncoder("lite0", 32))
    save(tmp_path / "x.safetensors", Checkpoint(model, VOCABULARY))
    loaded = load(tmp_path / "x.safetensors")
    assert loaded.model.vision.fingerprint() == model.vision.fingerprint() == loaded.fingerprint
    assert not any(part.is_meta for part in (*loaded.model.parameters(), *loaded.model.buffers()))


def test_weights_saved_in_half_precision_are_loaded_in_full(path):
    save(path, Checkpoint(small().bfloat16(), VOCABULARY))
    assert {parameter.dtype for parameter in load(path).model.parameters()} == {torch.float32}


def test_a_loaded_model_does_not_change_with_its_file(path):
    loaded = load(path).model
    before = {name: part.clone() for name, part in loaded.state_dict().items()}
    with path.open("r+b") as file:
        file.write(b"\0" * path.stat().st_size)
    for name, part in loaded.state_dict().items():
        assert torch.equal(part, before[name])


def test_loading_does_not_import_the_compiler(path):
    code = (
        f"import sys; from sightline.checkpoint.model_checkpoint import load; load({str(path)!r}); "
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_loading_draws_no_random_numbers(path):
    torch.manual_seed(0)
    load(path)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(1))
