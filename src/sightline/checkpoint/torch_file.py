"""PyTorch files from strangers (`.pth`, `.pth.tar`), without running them: tensors and plain containers, nothing else.

`torch.load(weights_only=True)` reads both layouts, the zip archive of PyTorch 1.6 and later and the older stream of
pickles, which Python 2 wrote too; it calls nothing but what it lists and `ALLOWED` adds. What it lets pass is refused
here: archives that are compressed, which PyTorch never writes, or big-endian, whose numbers it misreads; tensors that
reach outside their storage, which it does not notice with a negative stride, or that repeat it to any size.
"""

import math
import pickle
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline.data.restricted_pickle import CONTAINERS, NUMBERS, Namespace
from sightline.errors import DataError, about
from sightline.files import PathLike, existing_path

# What released checkpoints hold beside tensors, as classes that have no behaviour.
ALLOWED: list[Any] = [(kind, name) for name, kind in {**CONTAINERS, **NUMBERS}.items()]
LEGACY = pickle.dumps(0x1950A86A20F9469CFC6C, 2)  # how a file of the older layout begins
# What reading a damaged file raises; the last four are of zipfile, on damaged directories.
BROKEN = (
    zipfile.BadZipFile, pickle.UnpicklingError, EOFError, RuntimeError, AttributeError, LookupError, OverflowError,
    TypeError, ValueError, AssertionError, MemoryError, OSError, struct.error, zlib.error,
)  # fmt: skip


def read_torch(path: PathLike) -> Any:
    """What a PyTorch file holds, its tensors on the CPU; a file that asks for any other class is refused."""
    target = existing_path(path)
    with about(target):
        content = _load(target)
        for tensor in _tensors(content):
            _check_tensor(tensor)
    return content


def _load(target: Path) -> Any:
    try:
        with target.open("rb") as file:
            is_stream = file.read(len(LEGACY)) == LEGACY
        if zipfile.is_zipfile(target):
            _check_archive(target)
        elif not is_stream:
            raise DataError("not a PyTorch file", fix="give a .pth or .pth.tar checkpoint")
        with torch.serialization.safe_globals(ALLOWED), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of pickle protocols that PyTorch does not write
            return torch.load(target, map_location="cpu", weights_only=True, encoding="latin1")
    except BROKEN as error:
        what = f"not a readable PyTorch file: {_reason(error)}"
        raise DataError(what, fix="give a whole .pth or .pth.tar file") from error


def _check_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        pickles = [name for name in names if name.endswith("/data.pkl") or name == "data.pkl"]
        if len(pickles) != 1:
            raise DataError("a zip archive that PyTorch did not write", fix="give the checkpoint itself")
        if any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist()):
            raise DataError("a compressed archive, which PyTorch never writes", fix="use files you trust")
        order = pickles[0].removesuffix("data.pkl") + "byteorder"
        if order in names and archive.read(order) != b"little":
            raise DataError("the file was written on a big-endian machine", fix="save it again elsewhere")


def _reason(error: Exception) -> str:
    """The cause in a few words: PyTorch adds a page of advice, and a class that is asked for is the whole story."""
    text = str(error)
    if wanted := re.search(r"GLOBAL (\S+)", text):
        return f"it asks for {wanted[1][:100]}"
    if cause := re.search(r"WeightsUnpickler error:\s*([^\n]+)", text):
        return cause[1][:100]
    return "a pickle that PyTorch refuses" if "weights_only" in text else text.split("\n")[0][:100]


def _tensors(content: Any) -> Iterator[Tensor]:
    """All tensors in containers, each container once: they may hold each other, and themselves."""
    waiting, done = [content], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            yield value
        elif id(value) not in done:
            done.add(id(value))
            if isinstance(value, Mapping):
                waiting += value.values()
            elif isinstance(value, list | tuple | set):
                waiting += value
            elif isinstance(value, Namespace):
                waiting += vars(value).values()


def _check_tensor(tensor: Tensor) -> None:
    """Refuse what is no plain tensor within its storage, each number of which it has once."""
    plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout == torch.strided and tensor.device.type == "cpu"
    if not plain or tensor.is_quantized:
        raise DataError("it has a tensor of another kind than plain numbers", fix="use files you trust")
    size, stride, offset = tensor.shape, tensor.stride(), tensor.storage_offset()
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if min(offset, *stride, 0) < 0 or math.prod(size) > count or (0 not in size and last >= count):
        raise DataError("it has a tensor larger than its storage", fix="only use files you trust")
