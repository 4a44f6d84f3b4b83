"""The photos of a job: which they are, and whether they have changed since.

A photo is a file, an object on storage (s3://bucket/cat.jpg), or a row of a parquet file (photos.parquet/cat.jpg).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from sightline.errors import SightlineError
from sightline.files import PathLike
from sightline.vision.find_photos import find_photos, is_picture, walk_folder
from sightline.vision.object_storage import Mark, is_address

GONE: Mark = (0, 0)
ASKING = 32  # marks that are asked for at once


@dataclass(frozen=True)
class PhotoRef:
    """A photo to work on, not yet read: its name in results, its path or address, and its mark when it was listed."""

    id: str
    path: PathLike
    mark: Mark = GONE


@dataclass
class PhotoList:
    """The photos of a listing, each once, and errors of what could not be listed."""

    photos: list[PhotoRef] = field(default_factory=list)
    problems: list[SightlineError] = field(default_factory=list)


def photos_below(source: PathLike) -> tuple[list[PhotoRef], list[SightlineError]]:
    """Every photo below a folder or an address, or in a parquet file, by name; and errors of what could not be listed.

    They are called by their paths below it; those of a parquet file by their ids, or by the paths that it holds.
    """
    if is_elsewhere(source):
        return _photos_elsewhere(os.fspath(source))
    walked = walk_folder(source)
    return [
        PhotoRef(path.relative_to(source).as_posix(), path, mark_of(path)) for path in walked.photos
    ], walked.problems


def find_named_photos(sources: Iterable[str], *, listing: IO[bytes] | None = None) -> PhotoList:
    """The photos that names on a command line mean (see `find_photos`). Their ids are absolute paths.

    Args:
        sources: files, folders, patterns, `-` for a list; addresses, and parquet files.
        listing: what `-` reads; standard input by default.
    """
    names, found, photos = list(sources), PhotoList(), dict[str, PhotoRef]()
    groups = [names] if not any(map(is_elsewhere, names)) else [[name] for name in names]
    for group in groups:
        if is_elsewhere(group[0]):
            try:
                listed, problems = _photos_elsewhere(group[0])
            except SightlineError as error:
                listed, problems = [], [error]
            paths = [(photo.path, photo.mark) for photo in listed]
        else:
            walk = find_photos(group, listing=listing)
            paths, problems = [(path, mark_of(path)) for path in walk.photos], walk.problems
        found.problems += problems
        for path, mark in paths:
            photos.setdefault(id_of(path), PhotoRef(id_of(path), path, mark))
    found.photos = list(photos.values())
    return found


def id_of(path: PathLike) -> str:
    """The id of a photo: its address or absolute path. Links are not followed."""
    return os.fspath(path) if is_address(path) else os.path.abspath(path)  # noqa: PTH100 - resolve would follow them


def top_of(sources: Iterable[str]) -> str:
    """The folder or address that all that is named on a command line is below; "" where there is none.

    >>> top_of([".", "*/*.jpg"]) == os.getcwd()
    True
    """
    tops = list(dict.fromkeys(map(_top, sources)))
    if len(tops) < 2 or any(map(is_address, tops)):
        return tops[0] if len(tops) == 1 else ""
    try:
        return os.path.commonpath(tops)
    except ValueError:  # drives of Windows have nothing in common
        return ""


def _top(source: str) -> str:
    """The folder of what is named: itself, that of a photo, or that from which a pattern looks."""
    if is_elsewhere(source):
        return source.rpartition("/")[0] if is_address(source) and is_picture(source) else id_of(source)
    if source == "-":
        return id_of("")
    path = source
    while not os.path.isdir(path) and path:  # noqa: PTH112 - any text may be a path
        path = os.path.dirname(path.rstrip("/"))  # noqa: PTH120
    return id_of(path)


def has_file(photo: PhotoRef) -> bool:
    """True if the photo is a file of its own, so that a sidecar can stand beside it."""
    from sightline.vision.parquet_photos import split_row_path

    return not is_address(photo.path) and split_row_path(photo.path) is None


def mark_of(path: PathLike) -> Mark:
    """Size and time of last change, by which a changed photo is noticed; `GONE` if there is no such file."""
    try:
        known = os.stat(path)  # noqa: PTH116 - addresses are no Paths
    except OSError:
        return _mark_elsewhere(path)
    return known.st_size, known.st_mtime_ns


def _mark_elsewhere(path: PathLike) -> Mark:
    from sightline.vision.parquet_photos import mark_elsewhere

    try:
        return mark_elsewhere(path) or GONE
    except SightlineError:
        return GONE


def is_elsewhere(source: PathLike) -> bool:
    """True if photos there are no local files: `source` is an address or a parquet file."""
    from sightline.vision.parquet_photos import is_table

    return is_address(source) or is_table(source)


def _photos_elsewhere(source: str) -> tuple[list[PhotoRef], list[SightlineError]]:
    from sightline.vision.object_storage import pictures_at
    from sightline.vision.parquet_photos import is_table

    if is_table(source):
        return _photos_in_table(source)
    found = pictures_at(source)
    top = f"{source.rstrip('/')}/"
    alone = len(found) == 1 and found[0][0] == source
    return [PhotoRef(Path(path).name if alone else path.removeprefix(top), path, mark) for path, mark in found], []


def _photos_in_table(source: str) -> tuple[list[PhotoRef], list[SightlineError]]:
    from sightline.vision.parquet_photos import PhotoTable

    table, mark = PhotoTable(source), mark_of(source)
    if table.holds_bytes:
        return [PhotoRef(name, _below(source, name), mark) for name in table.names], table.problems
    near = source.rpartition("/")[0] if is_address(source) else str(Path(source).parent)
    texts = [text for text in dict.fromkeys(table.texts) if text]
    paths = [text if is_address(text) else _below(near, text) for text in texts]
    with ThreadPoolExecutor(ASKING) as pool:
        marks = list(pool.map(mark_of, paths))
    return [PhotoRef(text, path, mark) for text, path, mark in zip(texts, paths, marks, strict=True)], []


def _below(folder: str, name: str) -> PathLike:
    """A path below a folder or an address."""
    return f"{folder}/{name}" if is_address(folder) else Path(folder) / name
