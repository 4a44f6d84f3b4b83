"""npy and npz, read without pickle, and with errors that tell damage from a wrong kind of file.

Errors about bytes name no place: who has read them knows it (`errors.about`).
"""

import io
import math
import zipfile
import zlib
from collections.abc import Collection
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sightline.errors import ChecksumError, DataError, MissingRecordError, TruncatedError, about
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

    def check_length(self, length: int) -> None:
        """Refuse a file of a `length` in which the array does not end."""
        stored = length - self.offset
        if stored < self.size:
            row = self.size // max(1, self.shape[0]) if self.shape else self.size
            place = f": the last whole row is {stored // row - 1}" if len(self.shape) > 2 and stored >= row > 0 else ""
            what = f"the array has {stored} of its {self.size} bytes{place}"
            raise TruncatedError(what, fix="copy or download it again")


def _read_header(file: IO[bytes]) -> _Header:
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception as error:  # numpy parses the header as Python text, and lets whatever that raises through
        if "EOF" in str(error) and isinstance(error, ValueError):
            raise TruncatedError("the npy header ends too early", fix=_AGAIN) from error
        raise DataError("its npy header cannot be read", fix=_AGAIN) from error
    if any(length < 0 for length in shape):
        raise DataError(f"its npy header says the shape is {shape}", fix=_AGAIN)
    if dtype.hasobject:
        raise DataError("the array holds pickled objects, which are never loaded", fix="save numbers")
    return _Header(shape, dtype, fortran, file.tell())


def _parse_npy(data: bytes) -> AnyArray:
    header = _read_header(io.BytesIO(data))
    header.check_length(len(data))
    try:
        flat = np.frombuffer(data, dtype=header.dtype, count=math.prod(header.shape), offset=header.offset)
        return _native(flat.reshape(header.shape, order="F" if header.fortran else "C"))
    except (ValueError, OverflowError) as error:  # numbers of no bytes, or a side longer than an address
        raise DataError(f"its npy header says {header.shape} of {header.dtype}", fix=_AGAIN) from error


def _parse_npz(data: bytes, wanted: Collection[str]) -> dict[str, AnyArray]:
    """The arrays of one npz file's bytes that are `wanted` and there."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = {name.removesuffix(".npy"): name for name in archive.namelist()}
            stored = {key: _member(archive, names[key]) for key in wanted if key in names}
    except zipfile.BadZipFile as error:
        if "CRC" in str(error):
            raise ChecksumError(f"the bytes were damaged: {error}", fix=_AGAIN) from error
        raise TruncatedError("the npz ends too early: its directory is missing", fix=_AGAIN) from error
    except (EOFError, OSError, ValueError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise DataError(f"the npz cannot be unpacked: {error}", fix=_AGAIN) from error
    if not stored:
        what = f"none of the arrays {', '.join(wanted)}; this npz holds {', '.join(names) or 'nothing'}"
        raise MissingRecordError(what, fix="store region features under `feat` or `features`")
    return {key: _parse_npy(raw) for key, raw in stored.items()}


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The bytes that a member's npy header declares, and not one more: few packed bytes may hold many."""
    with archive.open(name) as file:
        start = file.read(_LONGEST_HEADER)
        header = _read_header(io.BytesIO(start))
        check_declared_size(header.size, archive.getinfo(name).compress_size, f"`{name}`")
        end = header.offset + header.size
        data = start + file.read(max(0, end - len(start)))
        if len(data) > end or file.read(1):
            raise DataError(f"{name} holds more than the {header.size} bytes of its array", fix="extract it again")
    return data


def parse_arrays(data: bytes, wanted: Collection[str]) -> dict[str, AnyArray]:
    """The arrays of npz bytes by name, or the one array of npy bytes under the first name in `wanted`."""
    if data.startswith(ZIP_MAGIC):
        return _parse_npz(data, wanted)
    if data.startswith(NPY_MAGIC):
        return {next(iter(wanted)): _parse_npy(data)}
    if NPY_MAGIC.startswith(data) or ZIP_MAGIC.startswith(data):
        raise TruncatedError(f"it ends after {len(data)} bytes", fix=_AGAIN)
    raise DataError("neither npy nor npz", fix=_AGAIN)


class NpyRows:
    """The rows of one npy array (n, ...), each read on its own.

    Rows are read, not mapped: pages of a mapped file count as resident once touched, and a pass over 33 GB of features
    would look like 33 GB of memory to every scheduler and out-of-memory killer.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = existing_path(path)
        with about(self.path):
            with open_bytes(self.path) as file:
                self._header = _read_header(file)
            if self._header.fortran or not self.shape:
                raise DataError("the array is not stored row by row", fix="save it with np.ascontiguousarray")
            if self._header.size == 0 and self.shape[0]:  # any number of rows that hold nothing
                raise DataError(f"its npy header says the shape is {self.shape}", fix=_AGAIN)
            self._header.check_length(self.path.stat().st_size)

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
