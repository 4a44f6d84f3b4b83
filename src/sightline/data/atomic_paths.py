"""Whole files and folders that other libraries write by path: made under a temporary name, then renamed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from sightline.errors import DataError
from sightline.files import PathLike, sync_folder


@contextlib.contextmanager
def writing(target: PathLike, *failures: type[Exception]) -> Iterator[None]:
    """Tell of a full disk, or a place one may not write to, by a DataError that names `target`.

    `failures` are what else the library that writes raises for these.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, (OSError, *failures)):
            raise
        number = getattr(error, "errno", None)  # h5py's own words are a page of libhdf5's state
        reason = os.strerror(number) if number else str(error).split("\n", 1)[0]
        raise DataError(
            f"cannot write: {reason}", where=target, fix="make room, or choose a folder you may write to"
        ) from error


@contextlib.contextmanager
def atomic_file(path: PathLike) -> Iterator[Path]:
    """A temporary neighbour of `path` for a library to write; on success it takes `path`'s place, else it vanishes."""
    target = Path(path)
    with writing(target):
        draft = _draft(target)
        try:
            yield draft
            draft.replace(target)
            sync_folder(target.parent)
        finally:
            draft.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: PathLike) -> Iterator[Path]:
    """A temporary folder that becomes `path` on success, else vanishes. A folder with something in it is refused."""
    target = Path(path)
    with writing(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise DataError("there is something here already", where=target, fix="name a new folder, or empty this one")
        draft = _draft(target)
        draft.mkdir()
        try:
            yield draft
            if target.exists():
                target.rmdir()  # Windows does not rename onto an empty folder
            draft.rename(target)
            sync_folder(target.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _draft(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.with_name(f".{secrets.token_hex(8)}.tmp")  # short: that of `target` may be as long as can be
