"""The photos of a job: which they are, and whether they have changed since.

A photo is a file, an object on storage (s3://bucket/cat.jpg), or a row of a parquet file (photos.parquet/cat.jpg).
"""

import itertools
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sightline.errors import SightlineError
from sightline.files import PathLike
from sightline.vision.find_photos import find_photos, is_picture, walk_folder
from sightline.vision.object_storage import Mark, is_address, pictures_at
from sightline.vision.parquet_photos import PhotoTable, is_table, mark_elsewhere, split_row_path

GONE: Mark = (0, 0)  # of a photo that is not there: no file has been changed at time 0
MARKS_AT_ONCE = 32  # threads that look up marks, which storage may answer slowly


@dataclass(frozen=True)
class PhotoRef:
    """A photo to work on, not yet read: its name in results, its path or address, and its mark when it was listed."""

    id: str
    path: PathLike
    mark: Mark = GONE


Listing = tuple[list[PhotoRef], list[SightlineError]]
"""Photos, each once, and errors of what could not be listed."""


def photos_below(source: PathLike) -> Listing:
    """Every photo below a folder or an address, or in a parquet file, by name; and errors of what could not be listed.

    They are called by their paths below it; those of a parquet file by their ids, or by the paths that it holds.
    """
    if is_elsewhere(source):
        return _photos_elsewhere(os.fspath(source))
    walk = walk_folder(source)
    return [PhotoRef(path.relative_to(source).as_posix(), path, mark_of(path)) for path in walk.photos], walk.problems


def find_named_photos(sources: Iterable[str]) -> Listing:
    """The photos that names on a command line mean, as `find_photos` takes them, or of addresses and parquet files."""
    photos: dict[str, PhotoRef] = {}
    problems: list[SightlineError] = []
    for elsewhere, names in itertools.groupby(sources, is_elsewhere):
        if not elsewhere:
            walk = find_photos(list(names))
            problems += walk.problems
            for path in walk.photos:
                photos.setdefault(id_of(path), PhotoRef(id_of(path), path, mark_of(path)))
            continue
        for name in names:
            try:
                refs, errors = _photos_elsewhere(name)
            except SightlineError as error:
                refs, errors = [], [error]
            problems += errors
            for ref in refs:
                photos.setdefault(id_of(ref.path), PhotoRef(id_of(ref.path), ref.path, ref.mark))
    return list(photos.values()), problems


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
    return not is_address(photo.path) and split_row_path(photo.path) is None


def mark_of(path: PathLike) -> Mark:
    """Size and time of last change, by which a changed photo is noticed; `GONE` if there is no such file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - addresses are no Paths
        return status.st_size, status.st_mtime_ns
    except OSError:
        try:
            return mark_elsewhere(path) or GONE
        except SightlineError:
            return GONE


def is_elsewhere(source: PathLike) -> bool:
    """True if photos there are no local files: `source` is an address or a parquet file."""
    return is_address(source) or is_table(source)


def _photos_elsewhere(source: str) -> Listing:
    if is_table(source):
        return _photos_in_table(source)
    pictures = pictures_at(source)
    if len(pictures) == 1 and pictures[0][0] == source:  # the address of one photo
        path, mark = pictures[0]
        return [PhotoRef(Path(path).name, path, mark)], []
    top = f"{source.rstrip('/')}/"
    return [PhotoRef(path.removeprefix(top), path, mark) for path, mark in pictures], []


def _photos_in_table(source: str) -> Listing:
    table, mark = PhotoTable(source), mark_of(source)
    if table.holds_bytes:
        return [PhotoRef(name, _below(source, name), mark) for name in table.names], table.problems
    near = source.rpartition("/")[0] if is_address(source) else str(Path(source).parent)
    texts = [text for text in dict.fromkeys(table.texts) if text]
    paths = [text if is_address(text) else _below(near, text) for text in texts]
    with ThreadPoolExecutor(MARKS_AT_ONCE) as pool:
        marks = list(pool.map(mark_of, paths))
    return [PhotoRef(text, path, mark) for text, path, mark in zip(texts, paths, marks, strict=True)], []


def _below(folder: str, name: str) -> PathLike:
    return f"{folder}/{name}" if is_address(folder) else Path(folder) / name
