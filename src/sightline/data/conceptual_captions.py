"""Conceptual Captions `Train_GCC-training.tsv`: `caption<TAB>url` on each line."""

from __future__ import annotations

import re
from pathlib import Path

from sightline.data.caption_format import checked, line_of, mostly, numbered_lines, report_captions
from sightline.data.format import Format, Probe
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence
from sightline.errors import DataError

_LINE = re.compile(r"([^\t]*)\t(https?://\S+)\s*$")


def matches(probe: Probe) -> bool:
    """Lines of a caption, a tab and a web address."""
    return mostly(probe.lines, _LINE.match)


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """A photo per line; its id is the line's number, its file the web address (which may occur more than once)."""
    met = Problems() if problems is None else problems
    photos = []
    for number, line in numbered_lines(path, met):
        found, where = _LINE.match(line), line_of(path, number)
        if found is None:
            met.report(DataError("not `caption<TAB>https://…`", where=where, fix="write the line like the others"))
            continue
        caption = checked(found[1], where, met)
        photos.append(CaptionedPhoto(str(number), (Sentence(caption),), found[2]))
    return CaptionSet(tuple(photos), str(path))


FORMAT: Format = Format(
    "conceptual-captions",
    "Conceptual Captions: captions with web addresses (Train_GCC-training.tsv)",
    matches,
    inspect=lambda path: report_captions(path, FORMAT, read),
    captions=read,
)
