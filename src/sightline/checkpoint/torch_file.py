"""PyTorch files from strangers (`.pth`, `.pth.tar`), without running them: tensors and plain containers, nothing else.

Both layouts are read: the zip archive of PyTorch 1.6 and later, and the older stream of pickles followed by raw
storages, which Python 2 wrote too. A storage is only ever a run of numbers taken from the file.
"""

from __future__ import annotations

import pickle
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from sightline.checkpoint.torch_parts import ALLOWED, Storage, resolver, with_tensors
from sightline.data.restricted_pickle import CONTAINERS, load
from sightline.errors import DataError, TruncatedError
from sightline.files import PathLike, existing_path

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


def read_torch(path: PathLike) -> Any:
    """What a PyTorch file holds, its tensors on the CPU; a file that asks for any other class is refused."""
    target = existing_path(path)
    try:
        if zipfile.is_zipfile(target):
            with zipfile.ZipFile(target) as archive:
                return _read_archive(archive, target)
        with target.open("rb") as file:
            return _read_legacy(file, target)
    except (
        *(zipfile.BadZipFile, pickle.UnpicklingError, EOFError, RuntimeError),
        *(AttributeError, LookupError, OverflowError, TypeError, ValueError),
        *(AssertionError, MemoryError, OSError, struct.error, zlib.error),  # of zipfile, on damaged directories
    ) as error:
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
    with archive.open(pickles[0]) as file:
        content, storages = _read_pickle(file, path)
    numbers = {key: _numbers(archive.read(f"{folder}data/{key}"), part, path) for key, part in storages.items()}
    return with_tensors(content, numbers)


def _read_legacy(file: IO[bytes], path: Path) -> Any:
    try:
        magic = load(file, {}, path)
    except DataError:  # text, a picture, or whatever it is
        magic = None
    if magic != _LEGACY_MAGIC:
        raise DataError("not a PyTorch file", where=path, fix="give a .pth or .pth.tar checkpoint")
    load(file, {}, path)  # the protocol
    load(file, CONTAINERS, path)  # sizes on the machine that wrote it
    content, storages = _read_pickle(file, path)
    keys = [str(key) for key in load(file, {}, path)]
    if sorted(keys) != sorted(storages):
        raise DataError("its list of storages is not that of its tensors", where=path, fix="copy or download it again")
    numbers = {}
    for key in keys:
        part, count = storages[key], int.from_bytes(file.read(8), "little")
        if count != part.count:
            raise DataError(f"storage {key} has {count} numbers, not {part.count}", where=path, fix="copy it again")
        numbers[key] = _numbers(file.read(count * part.dtype.itemsize), part, path)
    return with_tensors(content, numbers)


def _read_pickle(file: IO[bytes], path: Path) -> tuple[Any, dict[str, Storage]]:
    """The content, windows in the place of tensors, and the storages they look into."""
    storages: dict[str, Storage] = {}
    content = load(file, ALLOWED, path, resolver(storages))
    if sum(part.count * part.dtype.itemsize for part in storages.values()) > path.stat().st_size:
        raise DataError("its storages are larger than the file", where=path, fix="only use files you trust")
    return content, storages


def _numbers(data: bytes, storage: Storage, path: Path) -> Tensor:
    if len(data) < storage.count * storage.dtype.itemsize:
        raise TruncatedError("a tensor ends too early", where=path, fix="copy or download the file again")
    if storage.count == 0:
        return torch.zeros(0, dtype=storage.dtype)
    return torch.frombuffer(bytearray(data), dtype=storage.dtype, count=storage.count)
