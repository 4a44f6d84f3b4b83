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

from sightline.data.hdf5_features import dataset_of, has_name, open_hdf5
from sightline.data.records import Problems
from sightline.errors import CountError, DataError, MissingExtraError
from sightline.files import existing

Integers = npt.NDArray[np.integer[Any]]

_DIMENSIONS = {"labels": 2, "label_start_ix": 1, "label_end_ix": 1, "label_length": 1}


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
            return has_name(file, "label_start_ix")
    except (DataError, MissingExtraError):
        return False


def read_labels(path: Path, problems: Problems | None = None) -> Labels:
    """The labels of `path`; rows of two photos or of none, and lengths that are not true, are CountErrors."""
    met = Problems() if problems is None else problems
    before = len(met)
    with _open(path) as file:
        rows, start, end, length = (_integers(file, name, path) for name in _DIMENSIONS)
        boxes = dataset_of(file, "box_ind", path)
        box_shape = None if boxes is None else boxes.shape
    _check_counts(path, rows, start, end, length, box_shape)
    _check_ranges(path, start, end, len(rows), met)
    _check_lengths(path, rows, length, met)
    return Labels(rows, start, end, length, path, sound=len(met) == before)


def read_box_ind(path: Path, first: int, last: int) -> npt.NDArray[np.floating[Any]]:
    """Rows `first` to `last` (from 1, inclusive, like a photo's range) of POS-SCAN's `box_ind`."""
    with _open(path) as file:
        boxes = dataset_of(file, "box_ind", path)
        if boxes is None:
            raise DataError("there is no dataset 'box_ind'", where=path, fix="use POS-SCAN's grounded label file")
        found: npt.NDArray[np.floating[Any]] = boxes[first - 1 : last]
        return found


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    """The open file; the many kinds of errors that h5py raises on damaged or unexpected parts become one."""
    with open_hdf5(existing(path)) as file:
        try:
            yield file
        except (OSError, RuntimeError, LookupError, TypeError, ValueError, AttributeError, MemoryError) as error:
            raise DataError(
                f"its datasets cannot be read ({error})", where=path, fix="copy it again, or run prepro_labels.py again"
            ) from error


def _integers(file: Any, name: str, path: Path) -> Integers:
    stored = dataset_of(file, name, path)
    if stored is None:
        raise DataError(f"there is no dataset {name!r}", where=path, fix="run prepro_labels.py again")
    found = np.asarray(stored[()])
    if found.dtype.kind not in "iu" or found.ndim != _DIMENSIONS[name]:
        raise DataError(
            f"`{name}` has type {found.dtype} and shape {found.shape}, "
            f"whole numbers in {_DIMENSIONS[name]} dimensions were expected",
            where=path,
            fix="run prepro_labels.py again",
        )
    return found.astype(np.int64)


def _check_counts(
    path: Path, rows: Integers, start: Integers, end: Integers, length: Integers, box_shape: tuple[int, ...] | None
) -> None:
    if len(length) != len(rows):
        raise CountError(f"{len(rows)} rows of `labels`, {len(length)} of `label_length`", where=path)
    if len(start) != len(end):
        raise CountError(f"{len(start)} of `label_start_ix`, {len(end)} of `label_end_ix`", where=path)
    if box_shape is not None and box_shape[:2] != rows.shape:
        raise CountError(f"`box_ind` has shape {box_shape}, `labels` {rows.shape}", where=path)


def _check_ranges(path: Path, start: Integers, end: Integers, count: int, problems: Problems) -> None:
    ends = np.concatenate([[0], end])
    previous, last = ends[:-1], int(ends[-1])
    wrong = (start != previous + 1) | (end < start - 1) | (end > count)
    for image in np.flatnonzero(wrong):
        problems.report(
            CountError(
                f"photo {image} has the rows {start[image]} to {end[image]} of {count}, after row {previous[image]}",
                where=path,
                fix="rows count from 1, both ends belong to the photo, and the next photo goes on where it ends",
            )
        )
    if last < count:
        problems.report(
            CountError(
                f"the rows {last + 1} to {count} belong to no photo",
                where=path,
                fix="the last photo ends with the last row: `label_end_ix` is inclusive",
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
