"""Files made to read others, to cost gigabytes, to kill Python, to write on the terminal: each is refused."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pickle
import resource
import sqlite3
import struct
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from bundle_samples import tiny_bundle
from feature_samples import sample_scenes
from learning_samples import write_dataset, write_recipe, write_store
from search_samples import row
from sightline.checkpoint import model_checkpoint
from sightline.checkpoint.bundle import load_bundle, save_bundle
from sightline.checkpoint.torch_file import read_torch
from sightline.cli.commands import main
from sightline.cli.index_command import line
from sightline.config import load_yaml, override
from sightline.data import bottom_up_tsv, lmdb_features
from sightline.data.formats import inspect
from sightline.data.hdf5_features import Hdf5Features
from sightline.data.lmdb_features import LmdbFeatures
from sightline.data.npz_folder import NpzFolder
from sightline.data.pickle_formats import read_document_frequencies, read_vocabulary
from sightline.data.precomp import PrecompFeatures
from sightline.data.restricted_pickle import CONTAINERS, load
from sightline.data.talk import read_labels
from sightline.errors import CheckpointError, ConfigError, DataError, ImageError, TruncatedError
from sightline.files import checksum, most_bytes, open_bytes, read_json
from sightline.models.updown import UpDownConfig
from sightline.search.exact import ExactIndex
from sightline.search.query import Hit
from sightline.text.vocabulary import Vocabulary
from sightline.training.new_model import build_model
from sightline.training.recipe import read_rows
from sightline.vision.feature_store import FeatureStore
from sightline.vision.images import open_image

ROOT = Path(__file__).resolve().parent.parent
DECLARED = 1 << 26  # bytes: more than a small file may declare, and little enough to be read where that is not checked


def survives(script: str, *arguments: object) -> str:
    """What a script prints in a process of its own, which must live to its end."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


# HDF5 files that name others


def secret(folder: Path) -> Path:
    with h5py.File(folder / "secret.h5", "w") as file:
        file["x"] = np.ones((2, 4), np.float32)
    (folder / "secret.txt").write_bytes(b"root:x:0:0:root:/root:/bin/bash\n" * 4)
    return folder


def external_link(file: Any, name: str, folder: Path) -> None:
    file[name] = h5py.ExternalLink(str(folder / "secret.h5"), "/x")


def soft_link(file: Any, name: str, folder: Path) -> None:
    file["group"] = h5py.ExternalLink(str(folder / "secret.h5"), "/")
    file[name] = h5py.SoftLink("/group/x")


def external_storage(file: Any, name: str, folder: Path) -> None:
    file.create_dataset(name, (2, 4), np.float32, external=[(str(folder / "secret.txt"), 0, 32)])


def virtual(file: Any, name: str, folder: Path) -> None:
    layout = h5py.VirtualLayout((2, 4), np.float32)
    layout[:] = h5py.VirtualSource(str(folder / "secret.h5"), "x", (2, 4))
    file.create_virtual_dataset(name, layout)


WAYS = [external_link, soft_link, external_storage, virtual]


@pytest.mark.parametrize("strategy", WAYS)
@pytest.mark.parametrize("name", ["11_features", "image_features", "11"])
def test_features_of_another_hdf5_file_are_never_read(tmp_path, strategy, name):
    path = tmp_path / "features.h5"
    with h5py.File(path, "w") as file:
        strategy(file, name, secret(tmp_path))
    with pytest.raises(DataError, match=r"features\.h5.*(link|other|another) file"):
        for _ in Hdf5Features(path):
            pass
    (report,) = inspect(path)
    assert report.problem_count
    assert main(["data", "convert", str(path), str(tmp_path / "out"), "--to", "sightline-store", "--quiet"]) == 2


@pytest.mark.parametrize("strategy", WAYS)
def test_rows_and_labels_of_another_hdf5_file_are_never_read(tmp_path, strategy):
    secret(tmp_path)
    with h5py.File(tmp_path / "x_label.h5", "w") as file:
        strategy(file, "labels", tmp_path)
    with pytest.raises(DataError, match="never read in its name"):
        read_labels(tmp_path / "x_label.h5")
    (folder := tmp_path / "precomp").mkdir()
    with h5py.File(folder / "train_ims.h5", "w") as file:
        strategy(file, "feats", tmp_path)
    with pytest.raises(DataError, match="never read in its name"):
        PrecompFeatures(folder)


# Small files that declare much


@pytest.mark.parametrize("shape", [(DECLARED // 16, 4), (DECLARED, 0)], ids=["numbers", "rows of nothing"])
@pytest.mark.parametrize("name", ["11_features", "image_features"])
def test_an_hdf5_dataset_that_declares_far_more_than_it_stores_is_refused(tmp_path, name, shape):
    path = tmp_path / "features.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(name, shape, np.float32)
    assert path.stat().st_size < 4096
    with pytest.raises(DataError, match=r"declares [\d,]+ bytes, and 0 are stored"):
        list(Hdf5Features(path))


def test_an_npz_that_declares_far_more_than_it_stores_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "11.npz", feat=np.zeros((DECLARED // 16, 4), np.float32))
    with pytest.raises(DataError, match=r"feat\.npy. declares 67,108,864 bytes"):
        NpzFolder(tmp_path)["11"]


def test_an_npy_of_any_number_of_empty_rows_is_refused(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**7, 0)})
    (tmp_path / "train_ims.npy").write_bytes(header.getvalue())
    with pytest.raises(DataError, match="says the shape is"):
        PrecompFeatures(tmp_path)


def test_gzip_that_unpacks_to_far_more_than_it_is_is_refused(tmp_path):
    path = tmp_path / "captions.json.gz"
    path.write_bytes(gzip.compress(b'["' + b" " * DECLARED + b'"]'))
    with pytest.raises(DataError, match=r"captions\.json\.gz: it unpacks to more than .*gunzip"):
        read_json(path)


def test_gzip_within_the_bound_is_read_whole_and_at_any_place(tmp_path):
    raw = np.random.default_rng(0).integers(0, 256, 3_000_000, np.uint8).tobytes() + bytes(1 << 20)
    (tmp_path / "x.gz").write_bytes(packed := gzip.compress(raw))
    assert len(raw) < most_bytes(len(packed))
    with open_bytes(tmp_path / "x.gz") as file:
        assert file.read() == raw
        file.seek(1_000_000)
        assert file.read(10) == raw[1_000_000:1_000_010]


def test_a_small_file_of_a_very_large_picture_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.png"
    Image.new("1", (5200, 5200)).save(path)
    with pytest.raises(ImageError, match=r"declares 5,200 × 5,200 pixels, and its file has [\d,]+ bytes"):
        open_image(path)
    monkeypatch.setenv("SIGHTLINE_MAX_PIXELS", "27040000")  # what the sentence advises
    assert open_image(path).size == (5200, 5200)


def test_a_large_photo_is_read(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (520, 520, 3), np.uint8)
    Image.fromarray(noise).resize((5200, 5200)).save(tmp_path / "x.jpg")
    assert open_image(tmp_path / "x.jpg").size == (5200, 5200)


# Pickles


@pytest.mark.parametrize("place", [b"r" + struct.pack("<I", 1 << 30), b"p1073741824\n", b"p1_073_741_824\n"])
def test_a_place_in_the_memo_that_no_such_pickle_fills_costs_nothing(tmp_path, place):
    raw = b"\x80\x02}" + place + b"."
    path = tmp_path / "model.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", raw)
        archive.writestr("model/version", b"3\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert load(raw) == {}
    with contextlib.suppress(DataError):
        read_torch(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000  # kB


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_with_many_memo_places_is_read(protocol):
    value = {("row", f"word{i}"): [i, f"text {i}", b"r\xff\xff\xff\xff"] for i in range(30_000)}
    assert load(pickle.dumps(value, protocol), CONTAINERS) == value


def nested(depth: int) -> bytes:
    """A pickled tuple of the same tuple twice, so often: a few bytes whose `repr` doubles with each."""
    parts = [b"\x80\x02K\x01q\x00"]
    for level in range(depth):
        parts.append(b"0h" + bytes([level]) + b"h" + bytes([level]) + b"\x86q" + bytes([level + 1]))
    return b"".join(parts)


def test_a_nested_persistent_id_is_not_spelled_out(tmp_path):
    path = tmp_path / "model.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", nested(18) + b"Q.")
        archive.writestr("model/version", b"3\n")
    with pytest.raises(DataError, match="not a readable PyTorch file") as told:
        read_torch(path)
    assert len(str(told.value)) < 300


CHAIN = b"\x80\x02)" + b"\x85" * 1_000_000  # a tuple in a tuple, so often


LONG = b"\x80\x02(" + b"K\x01" * 1001 + b"t"  # 1001 numbers, hashed for every place at which the tuple is a key


@pytest.mark.parametrize("tuples", [nested(40), CHAIN, LONG], ids=["doubled", "deep", "long"])
@pytest.mark.parametrize("hashed", [b"}%sK\x01s.", b"\x8f(%s\x90.", b"(%s\x91."], ids=["key", "set", "frozenset"])
def test_tuples_whose_hash_would_take_hours_or_all_the_stack_are_refused_at_once(tuples, hashed):
    began = time.perf_counter()
    with pytest.raises(DataError, match="more than 1,000 values in a tuple"):
        load(b"\x80\x04" + hashed % tuples[2:])
    assert time.perf_counter() - began < 5


def tower(floors: int) -> frozenset[object]:
    found: frozenset[object] = frozenset()
    for _ in range(floors):
        found = frozenset({(found, 0), (found, 1)})
    return found


def test_frozensets_that_would_be_compared_for_hours_are_refused_at_once():
    """Of two equal towers of sets, comparing a floor compares the one below it twice."""
    for floors in (3, 40):
        raw = pickle.dumps([tower(floors), 1, tower(floors), 1], 4).replace(b"]\x94(", b"}\x94(", 1)
        raw = raw.removesuffix(b"e.") + b"u."
        if floors == 3:
            assert load(raw) == {tower(3): 1}
        else:
            with pytest.raises(DataError, match="values in a tuple"):
                load(raw)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_tuples_in_tuples_and_shared_ones_are_read(protocol):
    shared = (0.9, (0.98, ()))
    value = {"groups": [{"betas": shared}, {"betas": shared}], ("a", shared): {("b",): shared}, "many": ((),) * 900}
    assert load(pickle.dumps(value, protocol), CONTAINERS) == value


def test_a_nested_key_is_not_spelled_out(tmp_path):
    path = tmp_path / "frequencies.p"
    body = b"\x80\x02}(X\x07\x00\x00\x00ref_lenK\x01X\x12\x00\x00\x00document_frequency}" + nested(8)[2:] + b"K\x01su."
    path.write_bytes(body)
    with pytest.raises(DataError, match="the key a tuple is no tuple of words") as told:
        read_document_frequencies(path)
    assert len(str(told.value)) < 300


def test_a_damaged_pth_is_told_wherever_the_damage_is(tmp_path):
    path = tmp_path / "model.pth"
    torch.save({"a": torch.ones(4)}, path)
    raw = path.read_bytes()
    for place in range(len(raw)):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 0xFF]) + raw[place + 1 :])
        with contextlib.suppress(DataError):  # and nothing else
            read_torch(path)


# Recipes


def aliases(levels: int) -> str:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(10))}}}" for n in range(1, levels)]
    return "\n".join(lines)


def test_aliases_of_aliases_are_refused(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(aliases(6))
    with pytest.raises(ConfigError, match=r"recipe\.yaml: not valid YAML: its aliases make more than 100,000 values"):
        load_yaml(path)
    path.write_text(aliases(4))  # as many as recipes have
    assert load_yaml(path)["a1"]["k9"] == {"x": 1, "y": 2}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("base: &a\n  model: *a", "an alias stands inside what it stands for at line 1"),
        ("base: {model: {kind: [updown]}, data: {}, stages: {}}", "model.kind"),
        ("base: {model: {kind: updown, hidden_size: 0}, data: {}, stages: {}}", "in `model`, `hidden_size` is 0"),
        ("base: [1, 2]", "`base` is"),
        ("rows: [1, 2]", "`rows` is"),
        ("rows: {short: [1]}", "`short` is"),
        ("1: 2\nabout: x\nbase: {}\nnull: 3", "unknown key `1`"),
        ("base: {1: 2, a: 3}", "unknown key `1`"),
        ("base: {model: {kind: updown}, data: {}, stages: {1: {}, x: {}}}", "stages"),
        (f"base:\n  seed: {'9' * 4400}", "a number has more than 4,300 digits at line 2, column 9"),
        (f"base: {{model: {{kind: updown}}, data: {{}}, stages: {{}}, seed: 0x{'f' * 4400}}}", "seed"),
        ("a" * 2_000_000, "longer than"),
        ("base: {a: 1}\nbase: {a: 2}", "given twice"),
    ],
)
def test_a_recipe_of_another_shape_gets_a_sentence_with_the_place(tmp_path, capsys, text, place):
    path = tmp_path / "table.yaml"
    path.write_text(text)
    assert main(["train", str(path)]) == 2
    said = capsys.readouterr().err
    assert "Unexpected" not in said
    assert place in said
    assert "table.yaml" in said
    assert len(said) < 2000


@pytest.mark.parametrize(
    "change", ["model.hidden_size=1000000000000", "model.hidden_size=1e12", "model.hidden_size=0x" + "f" * 4400]
)
def test_sizes_that_no_machine_has_get_a_sentence(tmp_path, monkeypatch, capsys, change):
    monkeypatch.setenv("SIGHTLINE_DATA", str(write_dataset(tmp_path / "tiny")))
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(write_recipe(tmp_path / "table-1.yaml")), "short", change, "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert "Unexpected" not in said
    assert "model" in said


def test_a_model_larger_than_the_machine_is_refused_before_memory_is_taken():
    with pytest.raises(ConfigError, match=r"take [\d,]+ GB; this machine has"):
        build_model(UpDownConfig(hidden_size=1_000_000), 10)
    torch.manual_seed(0)
    one = UpDownConfig(hidden_size=8, region_width=4).build(10)
    torch.manual_seed(0)
    other = build_model(UpDownConfig(hidden_size=8, region_width=4), 10)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_an_override_of_aliases_is_bounded_too():
    with pytest.raises(ConfigError, match="not valid"):
        override({}, [f"a={yaml.safe_dump(None)[:0]}{{{aliases(6).replace(chr(10), ', ')}}}"])


# Model files


def rewritten(path: Path, change: Any) -> None:
    with safe_open(path, "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(file.metadata()["sightline"])
    change(header)
    text = json.dumps(header)
    save_file(weights, path, {"sightline": text, "checksum": str(checksum(text.encode()))})


def test_layers_that_the_weights_do_not_have_are_refused_at_once(tmp_path):
    path = tmp_path / "model.safetensors"
    save_bundle(path, tiny_bundle())
    rewritten(path, lambda header: header["captioner"]["config"].update(layers=20_000))
    with pytest.raises(CheckpointError, match="far more layers than there are weights"):
        load_bundle(path)
    vocabulary = Vocabulary(["a", "dog"])
    model = UpDownConfig(region_width=4, word_size=5, hidden_size=6, attention_size=3).build(len(vocabulary))
    model_checkpoint.save(path, model_checkpoint.Checkpoint(model, vocabulary))
    rewritten(path, lambda header: header.update(model={"kind": "scene-trans", "layers": 20_000}))
    with pytest.raises(CheckpointError, match="far more layers than there are weights"):
        model_checkpoint.load(path)
    assert torch.is_grad_enabled()


def test_no_size_of_a_description_takes_memory(tmp_path):
    path = tmp_path / "model.safetensors"
    vocabulary = Vocabulary(["a", "dog"])
    model = UpDownConfig(region_width=4, word_size=5, hidden_size=6, attention_size=3).build(len(vocabulary))
    model_checkpoint.save(path, model_checkpoint.Checkpoint(model, vocabulary))
    for kind in ("sim-trans", "jran-trans", "scene-trans"):
        rewritten(path, lambda header, kind=kind: header.update(model={"kind": kind, "hidden_size": 1 << 20}))
        with pytest.raises(CheckpointError, match=r"hidden_size|do not fit"):
            model_checkpoint.load(path)


# What would kill Python


LMDB = """
import sys
from pathlib import Path
from sightline.data.lmdb_features import LmdbFeatures
from sightline.errors import DataError
try:
    print(len(list(LmdbFeatures(Path(sys.argv[1])))))
except DataError as error:
    print(error)
"""


@pytest.mark.parametrize("longer", [60_000, 1 << 30])
def test_an_lmdb_whose_values_end_outside_the_file_is_told(tmp_path, longer):
    path = tmp_path / "features.lmdb"
    lmdb_features.write_scenes(path, sample_scenes(3, regions=40, width=64))
    raw = bytearray(path.read_bytes())
    place = raw.rfind(b"13") - 8  # a node: the length of the value, flags, the length of the key, the key
    assert raw[place + 6 : place + 8] == b"\x02\0"
    raw[place : place + 4] = struct.pack("<I", struct.unpack("<I", raw[place : place + 4])[0] + longer)
    path.write_bytes(raw)
    assert "features.lmdb: damaged LMDB" in survives(LMDB, path)


def test_a_sound_lmdb_is_probed_once_and_read(tmp_path, monkeypatch):
    path = tmp_path / "features.lmdb"
    lmdb_features.write_scenes(path, sample_scenes())
    assert len(list(LmdbFeatures(path))) == 3
    monkeypatch.setattr("subprocess.run", None)  # would be called by a second probe
    assert len(list(LmdbFeatures(path))) == 3


def test_an_lmdb_cut_while_it_is_read_is_told(tmp_path):
    path = tmp_path / "features.lmdb"
    lmdb_features.write_scenes(path, sample_scenes(3, regions=40, width=64))
    script = LMDB.replace(
        "    print(len", "    found = LmdbFeatures(Path(sys.argv[1])); found['11']\n    print(len"
    ).replace(
        "list(LmdbFeatures(Path(sys.argv[1])))",
        "[found[id] for id in (open(sys.argv[1], 'r+').truncate(4096), '12')[1:]]",
    )
    assert "became shorter" in survives(script, path)


STORE = """
import os, sys
from sightline.errors import DataError
from sightline.vision.feature_store import FeatureStore
store = FeatureStore(sys.argv[1], verify=False)
first, *_, last = store.ids()
store[first]
os.truncate(sys.argv[2], int(sys.argv[3]))
try:
    print(store[last].regions.sum())
except DataError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("size", [0, 64])
def test_a_feature_store_cut_while_it_is_read_is_told(tmp_path, size):
    with FeatureStore.writer(tmp_path / "store", fingerprint="") as writer:
        for scene in sample_scenes(6, regions=40, width=64):
            writer.add(scene)
    said = survives(STORE, tmp_path / "store", tmp_path / "store" / "data-00000.bin", size)
    assert said.startswith("TruncatedError")
    assert f"ends at byte {size}" in said
    assert "sightline data repair" in said


def test_a_tsv_cut_while_it_is_read_is_told(tmp_path):
    path = tmp_path / "features.tsv"
    bottom_up_tsv.write_scenes(path, sample_scenes(20, regions=10, width=64))
    scenes = iter(bottom_up_tsv.BottomUpTsv(path))
    next(scenes)
    os.truncate(path, 100)
    with pytest.raises(TruncatedError, match="became shorter"):
        list(scenes)


# `data inspect` goes on


def test_a_missing_package_never_stops_the_other_files(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["11_features"] = np.ones((2, 4), np.float32)
    (tmp_path / "b.jsonl").write_text('{"image": "x.jpg", "caption": "a dog"}\n')
    monkeypatch.setitem(sys.modules, "h5py", None)
    reports = {Path(report.path).name: report for report in inspect(tmp_path)}
    assert "sightline[train]" in reports["a.h5"].problems[0]
    assert reports["b.jsonl"].counts["captions"] == 1


def test_a_list_among_the_words_of_a_vocabulary_is_told(tmp_path):
    path = tmp_path / "vocab.json"
    path.write_text('{"word2idx": {"a": 0}, "idx2word": {"0": ["a"]}, "idx": 1}')
    with pytest.raises(DataError, match="id 0 is a list in idx2word"):
        read_vocabulary(path)
    (report,) = inspect(path)
    assert report.problem_count == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
@pytest.mark.parametrize("name", ["x.jpg", "captions.csv", "index.jsonl", "data.mdb", "test_caps.txt"])
def test_a_pipe_in_a_folder_is_told_and_not_waited_for(tmp_path, name):
    folder = tmp_path / "photos"
    folder.mkdir()
    if name == "index.jsonl":
        write_store(folder, ["1.jpg"])
        (folder / name).unlink()
    Image.new("RGB", (4, 4)).save(folder / "a.jpg")
    os.mkfifo(folder / name)
    script = (
        "import sys; from sightline.cli.commands import main; print('code', main(['data', 'inspect', sys.argv[1]]))"
    )
    said = survives(script, folder)
    assert "code" in said
    assert "no ordinary file" in said or name in ("captions.csv", "test_caps.txt")


def test_a_reader_that_fails_is_one_report(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text('{"image": "x.jpg", "caption": "a dog"}\n')
    (tmp_path / "b.txt").write_text("x.jpg#0\ta dog\n")

    def broken(path: Path, problems: object) -> None:
        raise ZeroDivisionError("oops")

    from sightline.data import caption_table
    from sightline.data import formats as known_formats

    formats = [
        form if form is not caption_table.JSONL else type(form)(form.name, form.about, form.matches, broken)
        for form in known_formats.FORMATS
    ]
    monkeypatch.setattr(known_formats, "FORMATS", formats)
    one, other = inspect(tmp_path)
    assert "ZeroDivisionError: oops" in one.problems[0]
    assert other.counts["captions"] == 1


# Names and texts that steer a terminal


ODD = "cat\x1b[2J\x9b31m\u202e\nfake: line.jpg"


def is_clean(text: str) -> bool:
    return all(character == "\n" or character.isprintable() for character in text)


def test_errors_and_hits_show_odd_names_with_escapes():
    assert is_clean(str(DataError(f"the word {ODD}", where=f"/x/{ODD}", fix=f"rename {ODD}")))
    assert "\n" not in str(DataError("x", where=ODD))
    assert line(Hit(ODD, 0.5, "a \x1b[0m dog")).count("\n") == 0
    assert is_clean(line(Hit(ODD, 0.5, "a \x1b[0m dog")))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_commands_show_odd_names_with_escapes(tmp_path, capsys):
    (tmp_path / ODD).write_bytes(b"no picture")
    (tmp_path / f"{ODD}.json").write_text('{"\x1b[2J": 1}')
    main(["data", "inspect", str(tmp_path), str(tmp_path / f"{ODD}.json")])
    main(["data", "inspect", str(tmp_path / f"not {ODD}")])
    main(["data", "convert", str(tmp_path / f"not {ODD}"), str(tmp_path / "x.tsv")])
    main(["models", str(tmp_path / f"{ODD}.json")])
    said = capsys.readouterr()
    assert "\\x1b[2J" in said.out
    assert is_clean(said.out)
    assert is_clean(said.err)
    assert "\nfake: line" not in said.out + said.err


# A damaged index


def index(folder: Path) -> ExactIndex:
    found = ExactIndex(folder)
    found.clear("eyes")
    found.write([row("a.jpg", [1, 0, 0], "a dog"), row("b.jpg", [0, 1, 0], "a cat")])
    return found


BREAK = {
    "no state": "DELETE FROM state",
    "no version": "UPDATE state SET value = 'x' WHERE name = 'version'",
    "a short vector": "UPDATE vectors SET vector = x'00' WHERE id = 1",
    "a text for a vector": "UPDATE vectors SET vector = 'no' WHERE id = 1",
    "a missing vector": "DELETE FROM vectors WHERE id = 1",
    "a missing table": "DROP TABLE vectors",
    "a view": "DROP TABLE vectors; CREATE VIEW vectors AS WITH RECURSIVE r(id, vector) AS "
    "(SELECT 1, x'00' UNION ALL SELECT id + 1, vector FROM r LIMIT 100000) SELECT * FROM r",
}


@pytest.mark.parametrize("change", BREAK.values(), ids=BREAK)
def test_a_damaged_index_is_told_with_its_place(tmp_path, change):
    found = index(tmp_path)
    with sqlite3.connect(found.path) as db:
        db.executescript(change)
    db.close()
    with pytest.raises(DataError, match=r"photos\.sqlite: the index cannot be used .*index again"):
        (ExactIndex(tmp_path).maker, ExactIndex(tmp_path).find(np.array([1, 0, 0], np.float32), ["dog"], 2))


def test_an_index_with_flipped_bytes_is_told_or_read(tmp_path):
    raw = index(tmp_path).path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(150):
        broken = bytearray(raw)
        for place in rng.integers(0, len(raw), 20):
            broken[place] ^= int(rng.integers(1, 256))
        (tmp_path / "photos.sqlite").write_bytes(broken)
        for ask in (lambda one: one.maker, ExactIndex.states, lambda one: one.find(np.ones(3, np.float32), ["dog"], 2)):
            with contextlib.suppress(DataError):  # and nothing else
                ask(ExactIndex(tmp_path))


# What is said of the licence


def test_the_metadata_tells_every_licence_in_the_wheel():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "LicenseRef-Sightline-Weights" in told["license"]
    listed = {file.relative_to(ROOT).as_posix() for pattern in told["license-files"] for file in ROOT.glob(pattern)}
    held = {file.relative_to(ROOT).as_posix() for file in (ROOT / "src").rglob("*LICENSE*")}
    assert held | {"LICENSE", "NOTICE"} == listed


def test_readme_gives_the_cpu_index_with_its_first_command():
    first = (ROOT / "README.md").read_text().split("```bash\n", 1)[1].splitlines()[0]
    assert "https://download.pytorch.org/whl/cpu" in first


def test_rows_of_every_shape_are_mappings(tmp_path):
    path = tmp_path / "table.yaml"
    path.write_text("base: {a: 1}\nrows: {x: {b: 2}}")
    assert read_rows(path) == {"x": {"a": 1, "b": 2}}


# What fuzzing found (tools/fuzz_readers.py)


def test_numbers_of_thousands_of_digits_in_lines_are_told(tmp_path):
    path = tmp_path / "ExpertAnnotations.txt"
    path.write_text(f"1.jpg\t2.jpg#2\t1\t1\t2\n1.jpg\t3.jpg#0\t{'9' * 5000}\t4\t3\n")
    (report,) = inspect(path)
    assert "ExpertAnnotations.txt, line 2" in report.problems[0]
    (tmp_path / "x.tsv").write_text(f"1\t{'9' * 5000}\t480\t1\t{'A' * 24}\t{'A' * 24}\n")
    (report,) = inspect(tmp_path / "x.tsv")
    assert "image_w is" in report.problems[0]


def test_xml_entities_that_grow_without_bound_are_refused(tmp_path):
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE x [<!ENTITY e0 "lol">{entities}]><annotation><filename>&e11;</filename></annotation>'
    for folder, name, text in (("Annotations", "1.xml", bomb), ("Sentences", "1.txt", "[/EN#1/people A man] .\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    (report,) = inspect(tmp_path)
    assert report.format == "flickr30k-entities" or report.problem_count
    assert report.problem_count
