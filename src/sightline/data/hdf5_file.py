"""HDF5 files from strangers: other files are never read in their name, and nothing that declares far more than it
stores.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.feature_source import PerProcess, library
from sightline.data.numpy_files import AnyArray
from sightline.errors import DataError, MissingRecordError, TruncatedError
from sightline.files import PathLike, check_declared_size

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_AGAIN = "copy or download it again"


class Hdf5File:
    """One HDF5 file, open once a process. What h5py raises on damaged parts is a DataError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = PerProcess(partial(_open, path))
        self._handle()

    def names(self, most: int | None = None) -> list[str]:
        """What the file holds; a name that is no UTF-8 is spelled so that it is not found again."""
        with damage(self.path):
            keys = itertools.islice(self._handle(), most)
            return [key if isinstance(key, str) else key.decode("utf-8", "replace") for key in keys]

    def has(self, name: str) -> bool:
        return self._link(name) is not None

    def has_group(self, name: str) -> bool:
        import h5py

        with damage(self.path):
            return isinstance(self._link(name), h5py.HardLink) and isinstance(self._handle()[name], h5py.Group)

    def dataset(self, name: str, where: PathLike | None = None) -> Any:
        """The dataset, or None; its numbers are in this file, and not far fewer than it declares.

        An HDF5 file can name other files, to be read as if they were parts of it: by links, by external storage, by
        virtual datasets. None of these is followed.
        """
        import h5py

        place = where or self.path
        link = self._link(name)
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise _elsewhere(f"`{name}` is a link to {getattr(link, 'filename', '')} {link.path}", place)
        with damage(place):
            dataset = self._handle()[name]
            if not isinstance(dataset, h5py.Dataset):
                raise DataError(f"there is no dataset {name!r}, but a group", where=place, fix="store one array there")
            if dataset.external or dataset.is_virtual:
                raise _elsewhere(f"the numbers of `{name}` are in another file", place)
            if dataset.shape is None or dataset.dtype.hasobject:
                raise DataError(f"`{name}` holds no plain numbers", where=place, fix="store numbers")
            # A side of no length would make any number of rows free.
            declared = math.prod(max(1, side) for side in dataset.shape) * dataset.dtype.itemsize
            check_declared_size(declared, dataset.id.get_storage_size(), f"`{name}`", place)
            return dataset

    def read(self, name: str, where: PathLike | None = None, row: int | None = None) -> AnyArray:
        """The numbers of a dataset, or of one row of it; a MissingRecordError without such a dataset."""
        place = where or self.path
        dataset = self.dataset(name, place)
        if dataset is None:
            raise MissingRecordError(f"there is no dataset {name!r}", where=place, fix="make the file again with it")
        with damage(place):
            return np.asarray(dataset[() if row is None else row])

    def _link(self, name: str) -> Any:
        with damage(self.path):
            return self._handle().get(name, getlink=True)  # `name in file` would follow a link already


def _open(path: Path) -> Any:
    """The open `h5py.File`, or an error that tells a cut file from one that is no HDF5."""
    h5py = library("h5py", f"reading {path.name}")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if "truncated" in str(error):
            raise TruncatedError("the HDF5 file ends too early", where=path, fix=_AGAIN) from error
        raise DataError(f"not a readable HDF5 file: {error}", where=path, fix=_AGAIN) from error


def _elsewhere(what: str, where: PathLike) -> DataError:
    fix = "copy everything into one file, for example with `h5repack`"
    return DataError(f"{what}, and other files are never read in its name", where=where, fix=fix)


@contextlib.contextmanager
def damage(where: PathLike) -> Iterator[None]:
    """What h5py raises on damaged parts of a file is one kind of error."""
    try:
        yield
    except (OSError, RuntimeError, LookupError, AttributeError, TypeError, ValueError, MemoryError) as error:
        raise DataError(f"damaged HDF5: {error}", where=where, fix=_AGAIN) from error
