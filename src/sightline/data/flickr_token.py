"""Flickr caption lists `Flickr8k.token.txt` and `results_20130124.token`: `photo.jpg#0<TAB>caption` on each line."""

from __future__ import annotations

import re
from pathlib import Path

from sightline.data.caption_format import (
    CaptionCollector,
    caption_report,
    checked,
    collect,
    line_of,
    mostly,
    numbered_lines,
)
from sightline.data.format import Format, Probe, Report
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence
from sightline.errors import DataError, DuplicateRecordError
from sightline.vision.find_photos import SUFFIXES

_LINE = re.compile(r"([^\t]+)#(\d+)\t(.*)$")


def matches(probe: Probe) -> bool:
    """Lines of a file name, `#`, a number, a tab and a caption."""
    return mostly(probe.lines, _LINE.match)


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """Photos with captions. The id is the file name as written, a sentence's id the whole `photo.jpg#0`."""
    met = Problems() if problems is None else problems
    gathering, seen = CaptionCollector(), set[str]()
    for number, line in numbered_lines(path, met):
        found = _LINE.match(line)
        where = line_of(path, number)
        if found is None:
            met.report(DataError("not `photo.jpg#0<TAB>caption`", where=where, fix="write the line like the others"))
            continue
        name, place, caption = found.groups()
        if f"{name}#{place}" in seen:
            met.report(DuplicateRecordError(f"{name}#{place} appears twice", where=where, fix="number it anew"))
            continue
        seen.add(f"{name}#{place}")
        checked(caption, where, met)
        gathering.add(CaptionedPhoto(name, (Sentence(caption, id=f"{name}#{place}"),), name))
    return CaptionSet(tuple(gathering.photos()), str(path))


def inspect(path: Path) -> Report:
    """Counts of photos and captions, and names that are no picture's."""
    captions, problems = collect(path, read)
    odd = [photo.id for photo in captions or () if not photo.id.lower().endswith(SUFFIXES)]
    notes = [f"{len(odd)} names are not those of pictures, such as {odd[0]}"] if odd else []
    return caption_report(path, FORMAT, captions, problems, notes)


FORMAT = Format(
    "flickr-token",
    "Flickr8k / Flickr30k captions, a line each (Flickr8k.token.txt, results_20130124.token)",
    matches,
    inspect,
    captions=read,
)
