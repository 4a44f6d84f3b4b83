"""Lists of photos, a file name per line: Flickr8k's `Flickr_8k.trainImages.txt`, Karpathy's split as names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from sightline.data.captions import IMAGE_SUFFIXES, collect, line_of, mostly, numbered_lines
from sightline.data.format import Format, Probe, Report
from sightline.data.records import CaptionSet, Problems
from sightline.errors import DataError, DuplicateRecordError, MissingRecordError

_COCO_NAME = re.compile(r"(?:COCO_[a-z]+\d{4}_)?0*(\d+)$")
_FLICKR_NAME = re.compile(r"(\d+)_[0-9a-f]{10}$")


def matches(probe: Probe) -> bool:
    """Lines that are the name of a picture and nothing else."""
    return not probe.json_start and mostly(probe.lines, _is_name)


def read_names(path: Path, problems: Problems | None = None) -> list[str]:
    """The names, in file order; one that is not a picture's, or that appears twice, is an error."""
    met = Problems() if problems is None else problems
    names: dict[str, None] = {}
    for number, line in numbered_lines(path, met):
        name, where = line.strip(), line_of(path, number)
        if not _is_name(line):
            met.report(DataError(f"{name[:60]!r} is not the name of a picture", where=where))
        elif name in names:
            met.report(DuplicateRecordError(f"{name} appears twice", where=where, fix="remove one of the two"))
        else:
            names[name] = None
    return list(names)


def photo_number(name: str) -> str:
    """The id that other files of the same set use for a photo of this name.

    >>> [photo_number(name) for name in ("COCO_val2014_000000391895.jpg", "1000268201_693b08cb0e.jpg", "a/b.png")]
    ['391895', '1000268201', 'b']
    """
    stem = PurePosixPath(name).stem
    found = _COCO_NAME.match(stem) or _FLICKR_NAME.match(stem)
    return found[1] if found else stem


def with_splits(captions: CaptionSet, lists: Mapping[str, Path]) -> CaptionSet:
    """`captions` with each photo's split taken from lists of file names; photos in no list have none.

    A name in two lists, or of no photo here, is an error.
    """
    split_of: dict[str, str] = {}
    for split, path in lists.items():
        for name in read_names(path):
            base = PurePosixPath(name).name
            if base in split_of:
                raise DuplicateRecordError(
                    f"{name} is in {split_of[base]} and in {split}", where=path, fix="a photo has one split"
                )
            split_of[base] = split
    photos = tuple(replace(p, split=split_of.pop(PurePosixPath(p.file or p.id).name, None)) for p in captions)
    if split_of:
        name, split = next(iter(split_of.items()))
        raise MissingRecordError(
            f"{len(split_of)} photos of the lists are not here, such as {name} of {split}",
            where=captions.source or None,
            fix="read the captions that the lists were made for",
        )
    return CaptionSet(photos, captions.source)


def inspect(path: Path) -> Report:
    """The count of names."""
    names, problems = collect(path, read_names)
    return Report.of(path, FORMAT, {"photos": len(names or ())}, problems)


def _is_name(line: str) -> bool:
    return line.strip().lower().endswith(IMAGE_SUFFIXES) and "\t" not in line


FORMAT = Format(
    "image-list",
    "A list of photos, a file name per line (a split of Flickr8k or COCO)",
    matches,
    inspect,
)
