"""PyTorch files from strangers (`.pth`, `.pth.tar`), without running them: tensors and plain containers, nothing else.

Both layouts are read: the zip archive of PyTorch 1.6 and later, and the older stream of pickles followed by raw
storages, which Python 2 wrote too. A storage is only ever a run of numbers taken from the file.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from sightline.data.restricted_pickle import CONTAINERS, NUMBERS, load
from sightline.errors import DataError, TruncatedError
from sightline.files import PathLike, existing

_TYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


class _StorageType:
    dtype: torch.dtype


@dataclass(eq=False)
class _Storage:
    """A run of numbers; in the older layout it is filled after the pickle was read."""

    numbers: Tensor


class _Tensor:
    """How PyTorch rebuilds a tensor: a window into a storage."""

    def __new__(cls, storage: Any, offset: Any, size: Any, stride: Any, *_: object) -> Any:
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError("a tensor without a storage")
        last = int(offset) + sum((int(n) - 1) * int(s) for n, s in zip(size, stride, strict=True))
        if min((int(offset), *map(int, size), *map(int, stride))) < 0 or (
            0 not in tuple(size) and last >= len(storage.numbers)
        ):
            raise pickle.UnpicklingError("a tensor larger than its storage")
        return storage.numbers.as_strided(tuple(size), tuple(stride), offset)


class _Parameter:
    """A parameter is its tensor."""

    def __new__(cls, data: Any, *_: object) -> Any:
        return data


ALLOWED: dict[str, type] = {
    **CONTAINERS,
    **NUMBERS,
    "torch._utils._rebuild_tensor": _Tensor,
    "torch._utils._rebuild_tensor_v2": _Tensor,
    "torch._utils._rebuild_parameter": _Parameter,
    **{
        f"{module}.{name}Storage": type(f"{name}Storage", (_StorageType,), {"dtype": dtype})
        for module in ("torch", "torch.cuda")
        for name, dtype in _TYPES.items()
    },
}


def read_torch(path: PathLike) -> Any:
    """What a PyTorch file holds, its tensors on the CPU; a file that asks for any other class is refused."""
    target = existing(path)
    try:
        if zipfile.is_zipfile(target):
            with zipfile.ZipFile(target) as archive:
                return _read_archive(archive, target)
        with target.open("rb") as file:
            return _read_legacy(file, target)
    except (zipfile.BadZipFile, KeyError, RuntimeError, EOFError) as error:
        raise DataError(
            f"not a readable PyTorch file: {error}", where=target, fix="copy or download it again"
        ) from error


def _read_archive(archive: zipfile.ZipFile, path: Path) -> Any:
    pickles = [name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl"]
    if len(pickles) != 1:
        raise DataError("a zip archive that PyTorch did not write", where=path, fix="give the checkpoint itself")
    if any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist()):
        raise DataError("a compressed archive, which PyTorch never writes", where=path, fix="only use files you trust")
    folder = pickles[0].removesuffix("data.pkl")
    order = f"{folder}byteorder"
    if order in archive.namelist() and archive.read(order) != b"little":
        raise DataError("the file was written on a big-endian machine", where=path, fix="save it again elsewhere")
    seen: dict[str, _Storage] = {}

    def numbers(dtype: torch.dtype, key: str, count: int) -> _Storage:
        if key not in seen:
            seen[key] = _Storage(_numbers(archive.read(f"{folder}data/{key}"), dtype, count, path))
        return seen[key]

    with archive.open(pickles[0]) as file:
        return load(file, ALLOWED, path, _persistent(numbers))


def _read_legacy(file: IO[bytes], path: Path) -> Any:
    if load(file, {}, path) != _LEGACY_MAGIC:
        raise DataError("not a PyTorch file", where=path, fix="give a .pth or .pth.tar checkpoint")
    load(file, {}, path)  # the protocol
    load(file, CONTAINERS, path)  # sizes on the machine that wrote it
    seen: dict[str, _Storage] = {}
    size = path.stat().st_size

    def numbers(dtype: torch.dtype, key: str, count: int) -> _Storage:
        if not 0 <= count * dtype.itemsize <= size:
            raise pickle.UnpicklingError("a storage larger than the file")
        return seen.setdefault(key, _Storage(torch.zeros(count, dtype=dtype)))

    value = load(file, ALLOWED, path, _persistent(numbers))
    for key in load(file, {}, path):
        storage = seen[str(key)].numbers
        count = int.from_bytes(file.read(8), "little")
        if count != len(storage):
            raise DataError(f"storage {key} has {count} numbers, not {len(storage)}", where=path, fix="copy it again")
        storage.copy_(_numbers(file.read(count * storage.dtype.itemsize), storage.dtype, count, path))
    return value


def _persistent(numbers: Callable[[torch.dtype, str, int], _Storage]) -> Callable[[Any], _Storage]:
    def resolve(pid: Any) -> _Storage:
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise pickle.UnpicklingError(f"it refers to {pid!r}")
        if not isinstance(pid[1], type) or not issubclass(pid[1], _StorageType):
            raise pickle.UnpicklingError(f"a storage of {pid[1]!r}")
        if len(pid) > 5 and pid[5] is not None:
            raise pickle.UnpicklingError("a storage that is a view of another")
        return numbers(pid[1].dtype, str(pid[2]), int(pid[4]))

    return resolve


def _numbers(data: bytes, dtype: torch.dtype, count: int, path: Path) -> Tensor:
    if len(data) < count * dtype.itemsize:
        raise TruncatedError("a tensor ends too early", where=path, fix="copy or download the file again")
    if count == 0:
        return torch.zeros(0, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype, count=count)
