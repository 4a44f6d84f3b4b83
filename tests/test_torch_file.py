"""PyTorch files are read without running them."""

import argparse
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from sightline.converters.torch_file import read_torch
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


@pytest.mark.parametrize("data", [b"", b"hello", pickle.dumps({"a": 1}), pickle.dumps([1] * 3)])
def test_other_files_are_told(tmp_path, data):
    path = tmp_path / "model.pth"
    path.write_bytes(data)
    with pytest.raises(SightlineError, match=r"model\.pth"):
        read_torch(path)


def test_a_zip_of_something_else_is_told(tmp_path):
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "hello")
    with pytest.raises(DataError, match="PyTorch did not write"):
        read_torch(path)


def test_a_compressed_archive_is_refused(tmp_path):
    torch.save({"a": torch.zeros(4)}, tmp_path / "a.pth")
    with zipfile.ZipFile(tmp_path / "a.pth") as plain, zipfile.ZipFile(
        tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED
    ) as packed:
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


@pytest.mark.parametrize("window", [(0, (5,), (1,)), (2, (2, 2), (2, 1)), (-1, (1,), (1,)), (0, (2,), (-1,))])
def test_a_tensor_larger_than_its_storage_is_refused(tmp_path, window):
    torch.save({"x": Window(*window)}, tmp_path / "x.pth")
    with pytest.raises(DataError, match="larger than its storage"):
        read_torch(tmp_path / "x.pth")
