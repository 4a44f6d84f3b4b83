"""npy and npz, read without pickle, and with errors that tell damage from a wrong kind of file."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Collection
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sightline.errors import ChecksumError, DataError, MissingRecordError, TruncatedError
from sightline.files import PathLike, check_declared_size, existing_path, open_bytes

AnyArray = npt.NDArray[Any]
NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"
_AGAIN = "copy or extract it again"
_LONGEST_HEADER = 1 << 16  # bytes; numpy writes a hundred or so


class _Header(NamedTuple):
    """What an npy file says of its array; its bytes begin at `offset`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def _read_header(file: IO[bytes], where: PathLike) -> _Header:
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception as error:  # numpy parses the header as Python text, and lets whatever that raises through
        if "EOF" in str(error) and isinstance(error, ValueError):
            raise TruncatedError("the npy header ends too early", where=where, fix=_AGAIN) from error
        raise DataError("its npy header cannot be read", where=where, fix=_AGAIN) from error
    if any(length < 0 for length in shape):
        raise DataError(f"its npy header says the shape is {shape}", where=where, fix=_AGAIN)
    if dtype.hasobject:
        raise DataError("the array holds pickled objects, which are never loaded", where=where, fix="save numbers")
    return _Header(shape, dtype, fortran, file.tell())


def _parse_npy(data: bytes, where: PathLike) -> AnyArray:
    header = _read_header(io.BytesIO(data), where)
    if len(data) - header.offset < header.size:
        raise _cut(header, len(data) - header.offset, where)
    try:
        flat = np.frombuffer(data, dtype=header.dtype, count=math.prod(header.shape), offset=header.offset)
        return _native(flat.reshape(header.shape, order="F" if header.fortran else "C"))
    except (ValueError, OverflowError) as error:  # numbers of no bytes, or a side longer than an address
        raise DataError(f"its npy header says {header.shape} of {header.dtype}", where=where, fix=_AGAIN) from error


def _parse_npz(data: bytes, where: PathLike, wanted: Collection[str]) -> dict[str, AnyArray]:
    """The arrays of one npz file's bytes that are `wanted` and there."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = {name.removesuffix(".npy"): name for name in archive.namelist()}
            stored = {key: _member(archive, names[key], where) for key in wanted if key in names}
    except zipfile.BadZipFile as error:
        if "CRC" in str(error):
            raise ChecksumError(f"the bytes were damaged: {error}", where=where, fix=_AGAIN) from error
        raise TruncatedError("the npz ends too early: its directory is missing", where=where, fix=_AGAIN) from error
    except (EOFError, OSError, ValueError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise DataError(f"the npz cannot be unpacked: {error}", where=where, fix=_AGAIN) from error
    if not stored:
        what = f"none of the arrays {', '.join(wanted)}; this npz holds {', '.join(names) or 'nothing'}"
        raise MissingRecordError(what, where=where, fix="store region features under `feat` or `features`")
    return {key: _parse_npy(raw, where) for key, raw in stored.items()}


def _member(archive: zipfile.ZipFile, name: str, where: PathLike) -> bytes:
    """The bytes that a member's npy header declares, and not one more: few packed bytes may hold many."""
    with archive.open(name) as file:
        start = file.read(_LONGEST_HEADER)
        header = _read_header(io.BytesIO(start), where)
        check_declared_size(header.size, archive.getinfo(name).compress_size, f"`{name}`", where)
        end = header.offset + header.size
        data = start + file.read(max(0, end - len(start)))
        if len(data) > end or file.read(1):
            what = f"{name} holds more than the {header.size} bytes of its array"
            raise DataError(what, where=where, fix="extract it again")
    return data


def parse_arrays(data: bytes, where: PathLike, wanted: Collection[str]) -> dict[str, AnyArray]:
    """The arrays of npz bytes by name, or the one array of npy bytes under the first name in `wanted`."""
    if data.startswith(ZIP_MAGIC):
        return _parse_npz(data, where, wanted)
    if data.startswith(NPY_MAGIC):
        return {next(iter(wanted)): _parse_npy(data, where)}
    if NPY_MAGIC.startswith(data) or ZIP_MAGIC.startswith(data):
        raise TruncatedError(f"it ends after {len(data)} bytes", where=where, fix=_AGAIN)
    raise DataError("neither npy nor npz", where=where, fix=_AGAIN)


class NpyRows:
    """The rows of one npy array (n, ...), each read on its own.

    Rows are read, not mapped: pages of a mapped file count as resident once touched, and a pass over 33 GB of features
    would look like 33 GB of memory to every scheduler and out-of-memory killer.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = existing_path(path)
        with open_bytes(self.path) as file:
            self._header = _read_header(file, self.path)
        if self._header.fortran or not self.shape:
            fix = "save it with np.ascontiguousarray"
            raise DataError("the array is not stored row by row", where=self.path, fix=fix)
        stored = self.path.stat().st_size - self._header.offset
        if self._header.size == 0 and self.shape[0]:  # any number of rows that hold nothing
            raise DataError(f"its npy header says the shape is {self.shape}", where=self.path, fix=_AGAIN)
        if stored < self._header.size:
            raise _cut(self._header, stored, self.path)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._header.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, row: int) -> AnyArray:
        count = math.prod(self.shape[1:])
        start = self._header.offset + row * count * self._header.dtype.itemsize
        values = np.fromfile(self.path, dtype=self._header.dtype, count=count, offset=start)
        if len(values) != count:
            raise TruncatedError(f"row {row} ends too early", where=self.path, fix=_AGAIN)
        return _native(values.reshape(self.shape[1:]))


def _native(array: AnyArray) -> AnyArray:
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _cut(header: _Header, stored: int, where: PathLike) -> TruncatedError:
    row = header.size // max(1, header.shape[0]) if header.shape else header.size
    place = f": the last whole row is {stored // row - 1}" if len(header.shape) > 2 and stored >= row > 0 else ""
    what = f"the array has {stored} of its {header.size} bytes{place}"
    return TruncatedError(what, where=where, fix="copy or download it again")
