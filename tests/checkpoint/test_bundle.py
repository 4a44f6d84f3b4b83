"""Bundles: everything from photo to caption in one file, small, and damage noticed."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

from bundle_samples import NAMES, WORDS, package_without_weights, tiny_bundle
from sightline.checkpoint import model_checkpoint
from sightline.checkpoint.bundle import Bundle, load_bundle, save_bundle
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.errors import CheckpointError, SightlineError
from sightline.grounding.box_chooser import BoxChooser
from sightline.grounding.calibration import Calibration, SupportModel
from sightline.models.end_to_end import Reader, end_to_end
from sightline.models.r2m import R2MConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.models.word_pointer import WordPointerConfig
from sightline.text.vocabulary import Vocabulary
from sightline.vision.grid_encoder import GridEncoder

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def bundle():
    return tiny_bundle()


@pytest.fixture(scope="module")
def whole(bundle, tmp_path_factory):
    """The bytes of a bundle's file."""
    path = tmp_path_factory.mktemp("bundle") / "tiny.safetensors"
    save_bundle(path, bundle)
    return path.read_bytes()


@pytest.fixture
def path(whole, tmp_path):
    (tmp_path / "tiny.safetensors").write_bytes(whole)
    return tmp_path / "tiny.safetensors"


def models(bundle):
    return {"vision": bundle.vision, "captioner": bundle.captioner.model, "matcher": bundle.matcher.model}


def test_a_pointer_comes_back_and_files_without_one_have_none(bundle, tmp_path):
    with_pointer = tiny_bundle(pointer=True)
    save_bundle(tmp_path / "x", with_pointer, "float32")
    loaded = load_bundle(tmp_path / "x").pointer
    assert loaded.config == with_pointer.pointer.config
    assert not loaded.training
    for name, weights in with_pointer.pointer.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weights)
    save_bundle(tmp_path / "y", bundle)
    assert load_bundle(tmp_path / "y").pointer is None


@pytest.mark.parametrize("part", ["matcher", "size"])
def test_a_pointer_of_another_matcher_is_refused(part, tmp_path):
    whole = tiny_bundle(pointer=True)
    other = WordPointerConfig(word_width=8, region_width=24, size=8).build()
    save_bundle(tmp_path / "x", replace(whole, matcher=None) if part == "matcher" else replace(whole, pointer=other))
    with pytest.raises(CheckpointError, match="its word pointer was not made for its matcher"):
        load_bundle(tmp_path / "x")


def test_everything_comes_back(bundle, tmp_path):
    rules = {
        "calibration": Calibration((1.5, 0.25, -0.1), 2.5, 0.4, 4392),
        "pointing": BoxChooser(0.3, 0.2),
        "auditing": SupportModel((1.0, 0.0, 0.5, 0.25, 2.0, 0.0), bias=1.5, least=0.7, place=(1.5, 0.5), nouns=900),
        "card": {"name": "tiny", "data": ["none"]},
        "fit": 12.5,
    }
    save_bundle(tmp_path / "x", replace(bundle, **rules), "float32")
    loaded = load_bundle(tmp_path / "x")
    assert {name: getattr(loaded, name) for name in rules} == rules
    assert loaded.vision.config == bundle.vision.config
    assert loaded.vision.config.names == NAMES
    for ours, theirs in ((loaded.captioner, bundle.captioner), (loaded.matcher, bundle.matcher)):
        assert ours.model.config == theirs.model.config
        assert (ours.vocabulary, ours.text_rule) == (theirs.vocabulary, theirs.text_rule)
    for name, model in models(loaded).items():
        assert not model.training
        told = models(bundle)[name].state_dict()
        assert all(torch.equal(part, told[key]) for key, part in model.state_dict().items())


@pytest.mark.parametrize(("precision", "bound"), [("float16", 2**-11), ("int8", 0.5 / 127)])
def test_fewer_bits_are_off_by_no_more_than_they_must(bundle, tmp_path, precision, bound):
    save_bundle(tmp_path / "x", bundle, precision)
    for name, model in models(load_bundle(tmp_path / "x")).items():
        for key, part in model.state_dict().items():
            original = models(bundle)[name].state_dict()[key]
            assert part.dtype == original.dtype
            limit = original.abs().max() * bound + 6e-8  # the smallest step of float16
            assert (part - original).abs().max() <= limit, key


def test_int8_takes_a_third_of_float32(bundle, whole, tmp_path):
    save_bundle(tmp_path / "x", bundle, "float32")
    assert len(whole) < (tmp_path / "x").stat().st_size / 3


def header(path):
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["sightline"])


def test_words_that_captioner_and_matcher_share_are_stored_once(path):
    assert header(path)["matcher"]["words"] is None
    assert path.read_bytes().count("\\\\n".join(WORDS).encode()) == 1
    assert load_bundle(path).matcher.vocabulary == Vocabulary(WORDS)


def test_words_that_differ_come_back_each(tmp_path):
    save_bundle(tmp_path / "x", tiny_bundle(other_words=True))
    loaded = load_bundle(tmp_path / "x")
    assert loaded.captioner.vocabulary == Vocabulary(WORDS)
    assert loaded.matcher.vocabulary == Vocabulary(reversed(WORDS[:-4]))


def test_a_bundle_without_a_matcher_comes_back_without(tmp_path):
    save_bundle(tmp_path / "x", tiny_bundle(matcher=False))
    assert load_bundle(tmp_path / "x").matcher is None


def test_a_word_with_a_line_break_is_refused(bundle, tmp_path):
    words = Vocabulary(["two\nlines", *WORDS[1:]])
    with pytest.raises(CheckpointError, match="line break"):
        save_bundle(tmp_path / "x", Bundle(bundle.vision, Reader(bundle.captioner.model, words, "r2m")))
    assert not list(tmp_path.iterdir())


def test_a_flipped_bit_is_noticed_in_weights_and_in_the_description(path, whole):
    for place in (len(whole) - 5, len(whole) // 2, whole.find(b"calibration") + 3):
        data = bytearray(whole)
        data[place] ^= 1
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"damaged|not a Sightline bundle"):
            load_bundle(path)


@pytest.mark.parametrize("keep", [0, 100, -8])
def test_a_cut_file_is_noticed(path, whole, keep):
    path.write_bytes(whole[:keep])
    with pytest.raises(CheckpointError, match="not a Sightline bundle"):
        load_bundle(path)


def test_a_file_of_another_kind_says_who_reads_it(bundle, path, tmp_path):
    with pytest.raises(CheckpointError, match=r"this is a bundle, and a checkpoint was expected.*sightline caption"):
        model_checkpoint.load(path)
    model_checkpoint.save(tmp_path / "x", Checkpoint(bundle.captioner.model, bundle.captioner.vocabulary))
    with pytest.raises(CheckpointError, match=r"this is a checkpoint, and a bundle was expected.*sightline evaluate"):
        load_bundle(tmp_path / "x")


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(SightlineError, match="no such file"):
        load_bundle(tmp_path / "nowhere")


def rewritten(path, change):
    """The file with a changed description, under a right checksum."""
    from safetensors.torch import save_file

    from sightline.files import checksum

    with safe_open(path, "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    told = header(path)
    change(told)
    text = json.dumps(told)
    save_file(weights, path, {"sightline": text, "checksum": str(checksum(text.encode()))})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda told: told.update(layout=99), "layout 99"),
        (lambda told: told["captioner"]["config"].update(kind="mind-reader"), "cannot read its models"),
        (lambda told: told["captioner"]["config"].update(hidden_size=64), "do not fit"),
        (lambda told: told["vision"].update(size=2), "cannot read its models: `vision.size`"),
        (lambda told: told.pop("pointing"), "pointing"),
        (lambda told: told.update(holds=["x"]), "a bundle was expected"),
    ],
)
def test_a_description_this_version_cannot_use_is_told(path, change, words):
    rewritten(path, change)
    with pytest.raises(CheckpointError, match=words):
        load_bundle(path)


def test_the_default_model_is_found_in_the_package_and_a_sentence_says_what_to_do_without(tmp_path):
    place = package_without_weights(tmp_path) / "weights" / "sightline.safetensors"
    code = f"""
from pathlib import Path
from sightline.checkpoint.bundle import default_bundle
from sightline.errors import CheckpointError
try:
    default_bundle()
except CheckpointError as error:
    print(error)
place = Path({str(place)!r})
place.parent.mkdir()
place.touch()
print(default_bundle())
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    refused, found = done.stdout.splitlines()
    assert refused.startswith(f"{place}: ")
    assert "--model FILE" in refused
    assert found == str(place)


def test_a_model_with_another_vocabulary_is_refused(bundle):
    with pytest.raises(CheckpointError, match="of 24 ids with a vocabulary of 5"):
        Reader(bundle.captioner.model, Vocabulary(["a"]), "r2m")


def test_a_model_that_reads_what_vision_does_not_give_is_refused():
    words = Vocabulary(WORDS)
    with pytest.raises(CheckpointError, match="reads concepts"):
        Reader(R2MConfig().build(len(words)), words, "r2m")


def checkpoints(bundle):
    """Captioner and matcher as training leaves them."""
    captioner = Checkpoint(
        end_to_end(bundle.captioner.model, bundle.vision),
        bundle.captioner.vocabulary,
        "self-critical",
        card={"name": "c"},
    )
    mark = bundle.vision.fingerprint()
    return captioner, Checkpoint(bundle.matcher.model, bundle.matcher.vocabulary, "scan", fingerprint=mark)


def test_two_checkpoints_make_a_bundle(bundle):
    captioner, matcher = checkpoints(bundle)
    made = Bundle.of(captioner, matcher)
    assert made.vision is bundle.vision
    assert (made.captioner.model, made.matcher.model) == (bundle.captioner.model, bundle.matcher.model)
    assert (made.captioner.text_rule, made.matcher.text_rule) == ("self-critical", "scan")
    assert made.card == {"name": "c"}
    assert Bundle.of(captioner, card={"name": "d"}).card == {"name": "d"}
    assert Bundle.of(captioner).matcher is None


def test_a_matcher_that_looks_for_itself_gives_its_reader(bundle):
    captioner, _ = checkpoints(bundle)
    looking = Checkpoint(
        end_to_end(bundle.matcher.model, bundle.vision),
        bundle.matcher.vocabulary,
        fingerprint=bundle.vision.fingerprint(),
    )
    assert Bundle.of(captioner, looking).matcher.model is bundle.matcher.model


def test_checkpoints_that_do_not_belong_together_are_refused(bundle):
    captioner, matcher = checkpoints(bundle)
    words = bundle.captioner.vocabulary
    with pytest.raises(CheckpointError, match="different vision models"):
        Bundle.of(captioner, Checkpoint(matcher.model, words, fingerprint="f00d"))
    with pytest.raises(CheckpointError, match="no eyes of its own"):
        Bundle.of(Checkpoint(bundle.captioner.model, words))
    with pytest.raises(CheckpointError, match="cannot write captions"):
        Bundle.of(matcher)
    with pytest.raises(CheckpointError, match="does not match texts"):
        Bundle.of(captioner, captioner)


def test_a_vision_model_without_boxes_of_its_own_and_a_global_matcher_can_be_bundled(bundle, tmp_path):
    words = bundle.captioner.vocabulary
    matcher = VSEPPConfig(region_width=1280, vector_width=1280, size=6, word_size=5).build(len(words))
    save_bundle(tmp_path / "x", Bundle(GridEncoder("lite0", 32), bundle.captioner, Reader(matcher, words, "scan")))
    assert load_bundle(tmp_path / "x").vision.config.kind == "grid"


def test_loading_does_not_import_the_compiler(path):
    code = f"import sys; from sightline.checkpoint.bundle import load_bundle; load_bundle({str(path)!r}); print('torch._dynamo' in sys.modules)"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
