"""PyTorch files are read without running them."""

import argparse
import os
import pickle
import resource
import struct
import zipfile

import numpy as np
import pytest
import torch

from sightline.checkpoint.torch_file import read_torch
from sightline.errors import DataError, SightlineError


def content() -> dict[str, object]:
    base = torch.arange(20.0).reshape(5, 4)
    return {
        "epoch": 3,
        "best_rsum": np.float64(412.5),
        "opt": argparse.Namespace(embed_size=8, cross_attn="t2i", bi_gru=True),
        "model": [
            {
                "plain": base,
                "transposed": base.t(),
                "part": base[1:3],
                "empty": torch.zeros(0),
                "scalar": torch.tensor(7),
                "half": torch.ones(3, dtype=torch.float16),
                "bfloat16": torch.ones(3, dtype=torch.bfloat16),
                "flags": torch.tensor([True, False]),
                "parameter": torch.nn.Parameter(torch.ones(2)),
            },
            {},
        ],
    }


@pytest.fixture(params=[True, False], ids=["zip", "legacy"])
def saved(request, tmp_path):
    path = tmp_path / "model_best.pth.tar"
    torch.save(content(), path, _use_new_zipfile_serialization=request.param)
    return path


def test_both_layouts_give_what_was_saved(saved):
    read, expected = read_torch(saved), content()
    assert read["epoch"] == 3
    assert read["best_rsum"] == 412.5
    assert vars(read["opt"]) == vars(expected["opt"])
    assert list(read["model"][0]) == list(expected["model"][0])
    for name, tensor in expected["model"][0].items():
        assert read["model"][0][name].dtype == tensor.dtype
        assert torch.equal(read["model"][0][name], tensor), name


def test_tensors_that_share_a_storage_share_it_again(saved):
    model = read_torch(saved)["model"][0]
    assert model["plain"].untyped_storage().data_ptr() == model["part"].untyped_storage().data_ptr()


class Hostile:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("as_zip", [True, False])
def test_a_file_that_would_run_code_is_refused_and_runs_nothing(tmp_path, as_zip):
    mark, path = tmp_path / "ran", tmp_path / "hostile.pth"
    torch.save({"model": Hostile(mark)}, path, _use_new_zipfile_serialization=as_zip)
    with pytest.raises(DataError, match=r"it asks for (posix|nt)\.system"):
        read_torch(path)
    assert not mark.exists()


def test_a_module_pickled_whole_is_refused(saved):
    torch.save(torch.nn.Linear(2, 2), saved)
    with pytest.raises(DataError, match=r"it asks for torch\.nn"):
        read_torch(saved)


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_cut_file_is_told(saved, keep):
    data = saved.read_bytes()
    saved.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(SightlineError, match=r"model_best\.pth\.tar"):
        read_torch(saved)


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"# A README\n\nwith text", pickle.dumps({"a": 1}), pickle.dumps([1] * 3)]
)
def test_other_files_are_told(tmp_path, data):
    path = tmp_path / "model.pth"
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"model\.pth: not a PyTorch file"):
        read_torch(path)


def test_a_zip_of_something_else_is_told(tmp_path):
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "hello")
    with pytest.raises(DataError, match="PyTorch did not write"):
        read_torch(path)


def test_a_compressed_archive_is_refused(tmp_path):
    torch.save({"a": torch.zeros(4)}, tmp_path / "a.pth")
    with (
        zipfile.ZipFile(tmp_path / "a.pth") as plain,
        zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(DataError, match="compressed archive"):
        read_torch(tmp_path / "bomb.pth")


class Window:
    """Pickles as a tensor that reaches beyond its storage."""

    def __init__(self, offset, size, stride):
        self.arguments = offset, size, stride

    def __reduce__(self):
        storage = torch.zeros(4).untyped_storage()
        typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.float32, _internal=True)
        return torch._utils._rebuild_tensor_v2, (typed, *self.arguments, False, {})


@pytest.mark.parametrize(
    "window",
    [
        (0, (5,), (1,)),
        (2, (2, 2), (2, 1)),
        (-1, (1,), (1,)),
        (0, (2,), (-1,)),
        pytest.param((0, (2, 40_000), (0, 0)), id="one number 80,000 times"),
    ],
)
def test_a_tensor_larger_than_its_storage_is_refused(tmp_path, window):
    torch.save({"x": Window(*window)}, tmp_path / "x.pth")
    with pytest.raises(DataError, match=r"larger than its storage|not a readable PyTorch file"):
        read_torch(tmp_path / "x.pth")


@pytest.mark.parametrize("window", [(0, 5, 1), (0, (2,), (1, 1)), ("0", (1,), (1,)), (0, (2.0,), (1,))])
def test_a_tensor_without_a_plain_shape_is_told(tmp_path, window):
    torch.save({"x": Window(*window)}, tmp_path / "x.pth")
    with pytest.raises(DataError, match="not a readable PyTorch file"):
        read_torch(tmp_path / "x.pth")


def test_a_big_endian_archive_is_told(tmp_path):
    torch.save({"a": torch.zeros(4)}, tmp_path / "a.pth")
    with zipfile.ZipFile(tmp_path / "a.pth") as little, zipfile.ZipFile(tmp_path / "big.pth", "w") as big:
        for name in little.namelist():
            big.writestr(name, b"big" if name.endswith("byteorder") else little.read(name))
    with pytest.raises(DataError, match="big-endian"):
        read_torch(tmp_path / "big.pth")


# Pickles by hand: opcodes that `torch.save` would never write.
FLOATS = b"ctorch\nFloatStorage\n"


def text(word):
    return b"X" + struct.pack("<I", len(word)) + word.encode()


def storage(key="0", count=1, kind=FLOATS, view=b""):
    return b"(" + text("storage") + kind + text(key) + text("cpu") + b"J" + struct.pack("<i", count) + view + b"tQ"


def tensor(size=1, **of_storage):
    window = b"K\x00(J" + struct.pack("<i", size) + b"t(K\x01t"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage(**of_storage) + window + b"\x89NtR"


def write_zip(path, body, storages=("0",)):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + body + b".")
        archive.writestr("archive/version", b"3\n")
        for key in storages:
            archive.writestr(f"archive/data/{key}", struct.pack("<f", 1.5))


def write_legacy(path, body, keys, raw=b""):
    head = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    path.write_bytes(b"".join([*head, b"\x80\x02" + body + b".", pickle.dumps(keys, 2), raw]))


ONE_NUMBER = struct.pack("<qf", 1, 1.5)
REFUSED = "not a readable PyTorch file|larger than its storage"


def test_pickles_by_hand_are_read_when_they_are_honest(tmp_path):
    write_zip(tmp_path / "x.pth", tensor())
    assert read_torch(tmp_path / "x.pth").tolist() == [1.5]
    write_legacy(tmp_path / "x.pth", tensor(view=b"N"), ["0"], ONE_NUMBER)
    assert read_torch(tmp_path / "x.pth").tolist() == [1.5]


def test_numbers_and_options_of_python_2_are_read(tmp_path):
    kind = b"cnumpy\ndtype\n(U\x02f8K\x00K\x01tR(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    number = b"cnumpy.core.multiarray\nscalar\n(" + kind + b"U\x08" + struct.pack("<d", -412.5) + b"tR"
    options = b"cargparse\nNamespace\n)\x81}U\x0across_attnU\x03t2isb"
    write_legacy(tmp_path / "x.pth", b"(" + number + options + b"t", [])
    rsum, opt = read_torch(tmp_path / "x.pth")
    assert rsum == -412.5
    assert vars(opt) == {"cross_attn": "t2i"}


@pytest.mark.parametrize("name", ["dtype", "__new__", "__init__", "__setstate__"])
@pytest.mark.parametrize(
    "victim",
    [
        FLOATS,
        *(b"ctorch._utils\n%b\n" % f for f in (b"_rebuild_tensor_v2", b"_rebuild_parameter")),
        *(b"cargparse\nNamespace\n", b"cnumpy\ndtype\n"),
    ],
)
def test_a_file_cannot_change_how_later_files_are_read(tmp_path, saved, victim, name):
    write_zip(tmp_path / "x.pth", victim + b"N}" + text(name) + text("evil") + b"s\x86b")  # BUILD on a class
    with pytest.raises(DataError, match=r"x\.pth"):
        read_torch(tmp_path / "x.pth")
    read = read_torch(saved)
    assert torch.equal(read["model"][0]["parameter"], torch.ones(2))
    assert read["best_rsum"] == 412.5
    assert read["opt"].embed_size == 8


@pytest.mark.parametrize(
    "state", [b"(" + storage() + b"K\x00(J\x80\x96\x98\x00t(K\x01tt", b"}" + text("size") + b"(J\x80\x96\x98\x00ts"]
)
def test_a_tensor_cannot_be_made_larger_than_its_storage_later(tmp_path, state):
    write_zip(tmp_path / "x.pth", tensor() + state + b"b")  # BUILD on an instance
    with pytest.raises(DataError, match=REFUSED):
        read_torch(tmp_path / "x.pth")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(tensor().replace(storage(), b"]"), id="no storage"),
        pytest.param(b"ctorch._utils\n_rebuild_tensor_v2\n)\x81", id="made without its window"),
        pytest.param(tensor(count=-1), id="-1 numbers"),
        pytest.param(tensor(2, count=2), id="fewer numbers than it says"),
        pytest.param(tensor(1_000_000, count=1_000_000), id="larger than the file"),
        pytest.param(storage(view=text("view")), id="a view of another"),
        pytest.param(storage(kind=text("FloatStorage")), id="of a text"),
        pytest.param(b"(" + text("module") + b"tQ", id="no storage at all"),
        pytest.param(b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n(" + text("x") + b"tR", id="without numbers"),
    ],
)
def test_tensors_that_are_no_plain_run_of_numbers_are_refused(tmp_path, body):
    write_zip(tmp_path / "x.pth", body)
    with pytest.raises(DataError, match=REFUSED):
        read_torch(tmp_path / "x.pth")


@pytest.mark.parametrize("make", [lambda x: x.to_sparse(), lambda x: x.to("meta")], ids=["sparse", "meta"])
def test_tensors_of_other_kinds_are_refused(tmp_path, make):
    torch.save({"x": make(torch.ones(2, 2))}, tmp_path / "x.pth")
    with pytest.raises(DataError, match="another kind than plain numbers"):
        read_torch(tmp_path / "x.pth")


@pytest.mark.parametrize(
    ("keys", "raw"), [(["1"], ONE_NUMBER), (5, ONE_NUMBER), (["0"], b""), (["0"], struct.pack("<qff", 2, 1, 2))]
)
def test_a_legacy_file_whose_storages_are_not_those_of_its_tensors_is_refused(tmp_path, keys, raw):
    write_legacy(tmp_path / "x.pth", tensor(view=b"N"), keys, raw)
    with pytest.raises(DataError, match=REFUSED):
        read_torch(tmp_path / "x.pth")


def test_a_storage_larger_than_the_file_takes_no_memory(tmp_path):
    write_legacy(tmp_path / "x.pth", tensor(view=b"N", count=2**31 - 1), ["0"], ONE_NUMBER)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=REFUSED):
        read_torch(tmp_path / "x.pth")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB; it says 8 GB


def test_what_occurs_twice_is_read_once(tmp_path):
    value: list[object] = [torch.ones(2), (torch.zeros(1),)]
    for _ in range(60):  # 2⁶⁰ lists for a reader that unfolds them
        value = [value, value]
    value.append(value)
    torch.save(value, tmp_path / "x.pth")
    read = read_torch(tmp_path / "x.pth")
    assert read[0] is read[1]
    assert read[2] is read


def test_tensors_among_options_are_checked_too(tmp_path):
    torch.save({"opt": argparse.Namespace(weights=[torch.ones(2)])}, tmp_path / "x.pth")
    assert torch.equal(read_torch(tmp_path / "x.pth")["opt"].weights[0], torch.ones(2))
    torch.save({"opt": argparse.Namespace(weights=[Window(0, (2, 40_000), (0, 0))])}, tmp_path / "x.pth")
    with pytest.raises(DataError, match="larger than its storage"):
        read_torch(tmp_path / "x.pth")
