"""`cocotalk_label.h5`: captions as word ids, and which rows belong to which photo.

Datasets: `labels` (M, L) zero padded; `label_start_ix`, `label_end_ix` (N,) rows of each photo, counted from 1, both
inclusive; `label_length` (M,). POS-SCAN adds `box_ind`: (M, L) the best region of a word (-1: none), or (M, L, n) IoUs.
Old Lua files hold `images` (N, 3, 256, 256) as well, which are not read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.data.records import Problems
from sightline.errors import CountError, DataError, MissingExtraError, TruncatedError
from sightline.files import existing

Integers = npt.NDArray[np.integer[Any]]

_DATASETS = ("labels", "label_start_ix", "label_end_ix", "label_length")


@dataclass(frozen=True, eq=False)
class Labels:
    """The four arrays, checked. `sound` is False where a collecting read met a problem: then do not decode."""

    rows: Integers
    start: Integers
    end: Integers
    length: Integers
    path: Path
    sound: bool = True


def is_label_file(path: Path) -> bool:
    """Whether an HDF5 file holds labels, or says so in its name."""
    if path.name.endswith("_label.h5"):
        return True
    try:
        with _open(path) as file:
            return "label_start_ix" in file
    except (DataError, MissingExtraError):
        return False


def read_labels(path: Path, problems: Problems | None = None) -> Labels:
    """The labels of `path`; ranges that overlap or leave the file, and lengths that are not true, are CountErrors."""
    met = Problems() if problems is None else problems
    before = len(met)
    with _open(path) as file:
        for name in _DATASETS:
            if name not in file:
                raise DataError(f"there is no dataset {name!r}", where=path, fix="run prepro_labels.py again")
        arrays = [file[name][()] for name in _DATASETS]
        box_shape = file["box_ind"].shape if "box_ind" in file else None
    rows, start, end, length = (array.astype(np.int64) for array in arrays)
    _check_shapes(path, rows, start, end, length, box_shape)
    _check_ranges(path, start, end, len(rows), met)
    _check_lengths(path, rows, length, met)
    return Labels(rows, start, end, length, path, sound=len(met) == before)


def read_box_ind(path: Path, first: int, last: int) -> npt.NDArray[np.floating[Any]]:
    """Rows `first` to `last` (from 1, inclusive, like a photo's range) of POS-SCAN's `box_ind`."""
    with _open(path) as file:
        if "box_ind" not in file:
            raise DataError("there is no dataset 'box_ind'", where=path, fix="use POS-SCAN's grounded label file")
        found: npt.NDArray[np.floating[Any]] = file["box_ind"][first - 1 : last]
        return found


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError.of("h5py", "train", f"reading {path.name}") from error
    try:
        file = h5py.File(existing(path), "r")
    except OSError as error:
        kind = TruncatedError if "truncated" in str(error) else DataError
        raise kind(f"HDF5 cannot open it ({error})", where=path, fix="copy or download it again") from error
    with file:
        yield file


def _check_shapes(
    path: Path, rows: Integers, start: Integers, end: Integers, length: Integers, box_shape: tuple[int, ...] | None
) -> None:
    if rows.ndim != 2:
        raise DataError(f"`labels` has shape {rows.shape}, (captions, words) was expected", where=path)
    if len(length) != len(rows):
        raise CountError(f"{len(rows)} rows of `labels`, {len(length)} of `label_length`", where=path)
    if len(start) != len(end):
        raise CountError(f"{len(start)} of `label_start_ix`, {len(end)} of `label_end_ix`", where=path)
    if box_shape is not None and box_shape[:2] != rows.shape:
        raise CountError(f"`box_ind` has shape {box_shape}, `labels` {rows.shape}", where=path)


def _check_ranges(path: Path, start: Integers, end: Integers, count: int, problems: Problems) -> None:
    previous = np.concatenate([[0], end[:-1]]) if len(end) else end
    wrong = (start < 1) | (end > count) | (start > end + 1) | (start <= previous)
    for image in np.flatnonzero(wrong):
        problems.report(
            CountError(
                f"photo {image} has the rows {start[image]} to {end[image]} of {count}, after row {previous[image]}",
                where=path,
                fix="rows count from 1, both ends belong to the photo, and photos do not share rows",
            )
        )


def _check_lengths(path: Path, rows: Integers, length: Integers, problems: Problems) -> None:
    inside = np.arange(rows.shape[1]) < length[:, None]  # (M, L)
    for row in np.flatnonzero(((rows != 0) != inside).any(axis=1) | (length > rows.shape[1])):
        problems.report(
            CountError(
                f"row {row + 1} has `label_length` {length[row]} and {np.count_nonzero(rows[row])} words",
                where=path,
                fix="labels must be words followed by zeros, and the length their number",
            )
        )
