"""What the index knows of a photo, and what a search finds of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sightline.jobs.job_photos import Mark
from sightline.scene import Array


@dataclass(frozen=True, eq=False)
class Row:
    """A photo in the index.

    Attributes:
        path: of the photo, absolute, with forward slashes: the row's name.
        root: the folder that was indexed when it was found.
        mark: of the file when it was listed.
        content: what tells its bytes from others (`content_of`); "" where they changed while they were looked at.
        size: width and height in pixels, upright.
        vector: (d,) float32 of length 1.
        caption: None where none was asked for.
    """

    path: str
    root: str
    mark: Mark
    content: str
    size: tuple[int, int]
    vector: Array
    caption: str | None = None


class RowState(NamedTuple):
    """What of a row is needed to see whether its photo has to be looked at again."""

    mark: Mark
    content: str
    captioned: bool


class Candidate(NamedTuple):
    """A photo that may be a hit: how near its vector is to the query's, and the BM25 score of its caption."""

    path: str
    caption: str | None
    near: float
    text: float = 0.0


def content_of(path: str | Path) -> str:
    """32 hex digits of the bytes of a file: the same for a copy or a renamed file."""
    if Path(path).is_fifo():
        raise OSError("a pipe is no photo")  # and would be waited for
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
