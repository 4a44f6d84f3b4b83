"""What has to be done to bring an index up to date with a folder: the least that can be looked at."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sightline.errors import SightlineError
from sightline.jobs.job_photos import Photo
from sightline.search.rows import RowState, content_of


@dataclass
class Plan:
    """What to do with photos.

    Attributes:
        look: photos that are new or have changed.
        take: photos whose bytes are known, with the path of the row that knows them: moved, copied, or touched.
        copies: ids of those of `take` that are new: what they were copied from is still there, or was moved already.
        gone: paths of rows whose files are no longer there.
        kept: how many are in the index as they are.
    """

    look: list[Photo] = field(default_factory=list)
    take: list[tuple[Photo, str]] = field(default_factory=list)
    copies: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    kept: int = 0


def plan(
    root: str,
    photos: Sequence[Photo],
    problems: Sequence[SightlineError],
    known: Mapping[str, RowState],
    *,
    captions: bool = True,
    again: bool = False,
) -> Plan:
    """Compare the photos below a folder with an index.

    A file is read only if one of the same length is in the index: it may be that one, under another name.

    Args:
        root: the folder; rows of photos elsewhere stay, unless they have moved to here.
        photos: that are below it now; ids are absolute paths.
        problems: folders that cannot be read; what is below them stays.
        known: what is in the index.
        captions: whether photos without caption have to be looked at again.
        again: look at all photos again.
    """
    todo, listed = Plan(), {photo.id for photo in photos}
    unread = tuple(f"{error.where}/" for error in problems if error.where)
    below = f"{root.rstrip('/')}/"
    missing = (path for path in known if path.startswith(below) and path not in listed)
    todo.gone = {path for path in missing if not path.startswith(unread)}
    whole = {path: row for path, row in known.items() if row.captioned or not captions}
    changed = {photo.id for photo in photos if photo.id in known and known[photo.id].mark != photo.mark}
    by_length, moved = dict[int, dict[str, str]](), set[str]()
    for path, row in whole.items():
        if row.content:
            by_length.setdefault(row.mark[0], {})[row.content] = path
    for photo in photos:
        if again:
            todo.look.append(photo)
        elif photo.id in whole and whole[photo.id].mark == photo.mark:
            todo.kept += 1
        elif source := _same(photo, by_length):
            there = Path(source).exists()
            if photo.id not in known and ((there and source not in changed) or source in moved):
                todo.copies.add(photo.id)
            moved.add(source)
            todo.take.append((photo, source))
            if not there:
                todo.gone.add(source)
        else:
            todo.look.append(photo)
    return todo


def _same(photo: Photo, by_length: Mapping[int, Mapping[str, str]]) -> str | None:
    """The path of a row of the same bytes."""
    alike = by_length.get(photo.mark[0])
    if alike is None:
        return None
    try:
        return alike.get(content_of(os.fspath(photo.path)))
    except OSError:  # whoever looks at it tells why
        return None
