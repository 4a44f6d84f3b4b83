"""The photos of a job: which they are, and whether they have changed since."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sightline.errors import SightlineError
from sightline.files import PathLike
from sightline.vision.pixels import Pixels
from sightline.vision.walk import walk_folder

Mark = tuple[int, int]  # bytes of the file, and nanoseconds of its last change
GONE: Mark = (0, 0)


@dataclass(frozen=True)
class Photo:
    """A photo to work on: its name in results, its file, and what the file looked like when it was listed."""

    id: str
    path: Path
    mark: Mark


@dataclass(frozen=True, eq=False)
class LoadedPhoto:
    """A photo that was read: (size, size, 3) pixels, and its upright width and height before they were squashed."""

    id: str
    path: Path
    pixels: Pixels
    size: tuple[int, int]


def photos_below(folder: PathLike) -> tuple[list[Photo], list[SightlineError]]:
    """Every photo below a folder, by name, called by its path below it; and what is wrong with the folder."""
    walked = walk_folder(folder)
    return [Photo(path.relative_to(folder).as_posix(), path, mark_of(path)) for path in walked.photos], walked.problems


def mark_of(path: Path) -> Mark:
    """What tells a file from its later versions; whoever reads a file that is gone says so."""
    try:
        known = path.stat()
    except OSError:
        return GONE
    return known.st_size, known.st_mtime_ns
