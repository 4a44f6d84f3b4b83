"""Captions and judgements a line each: Flickr8k and Flickr30k, Conceptual Captions, Flickr8k's expert judgements."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sightline.data.caption_format import (
    Counts,
    caption_format,
    count_captions,
    join_rows,
    line_of,
    mostly,
    numbered_lines,
    parse_lines,
    photo_of,
    record_format,
)
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption
from sightline.errors import DataError, DuplicateRecordError
from sightline.vision.find_photos import SUFFIXES

_TOKEN = re.compile(r"([^\t]+)#(\d+)\t(.*)$")
_CONCEPTUAL = re.compile(r"([^\t]*)\t(https?://\S+)\s*$")
_JUDGEMENT = re.compile(r"([^\t]+)\t([^\t]+#\d+)\t(-?\d{1,9})\t(-?\d{1,9})\t(-?\d{1,9})\s*$")


def read_flickr(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """Lines of `photo.jpg#0<TAB>caption`. A photo's id is its file name, a sentence's the whole `photo.jpg#0`."""
    known: set[str] = set()

    def row(line: str, where: str) -> CaptionedPhoto:
        parts = _TOKEN.match(line)
        if parts is None:
            raise DataError("not `photo.jpg#0<TAB>caption`", where=where, fix="write the line like the others")
        name, id, caption = parts[1], f"{parts[1]}#{parts[2]}", parts[3]
        if id in known:
            raise DuplicateRecordError(f"{id} appears twice", where=where, fix="number it anew")
        known.add(id)
        return CaptionedPhoto(name, (Sentence(check_caption(caption, where, problems), id=id),), name)

    return join_rows(parse_lines(path, problems, row), path)


def _count_flickr(captions: CaptionSet) -> tuple[Counts, list[str]]:
    counts, notes = count_captions(captions)
    odd = [photo.id for photo in captions if not photo.id.lower().endswith(SUFFIXES)]
    if odd:
        notes.insert(0, f"{len(odd)} names are not those of pictures, such as {odd[0]}")
    return counts, notes


def read_conceptual(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """Lines of `caption<TAB>url`: the photo's id is the line's number, its file the address, which may come again."""
    photos = []
    for number, line in numbered_lines(path, problems):
        parts, where = _CONCEPTUAL.match(line), line_of(path, number)
        if parts is None:
            problems.report(DataError("not `caption<TAB>https://…`", where=where, fix="write the line like the others"))
            continue
        photos.append(photo_of(str(number), (parts[1],), where, problems, parts[2]))
    return CaptionSet(tuple(photos), str(path))


@dataclass(frozen=True)
class Judgement:
    """How well three people found that `caption` (an id such as `photo.jpg#2`, often another photo's) fits `image`.

    Scores go from 1 (not at all) to 4 (fully).
    """

    image: str
    caption: str
    scores: tuple[int, int, int]


def read_judgements(path: Path, problems: Problems = STRICT) -> list[Judgement]:
    """Every judgement of Flickr8k's `ExpertAnnotations.txt`, in file order."""
    known: set[tuple[str, str]] = set()

    def judgement(line: str, where: str) -> Judgement:
        parts = _JUDGEMENT.match(line)
        if parts is None:
            raise DataError("not `photo<TAB>caption id<TAB>score<TAB>score<TAB>score`", where=where)
        one, two, three = (int(parts[group]) for group in (3, 4, 5))
        if not all(1 <= score <= 4 for score in (one, two, three)):
            raise DataError(f"the scores {one}, {two}, {three} are not all from 1 to 4", where=where)
        if (parts[1], parts[2]) in known:
            raise DuplicateRecordError(f"{parts[2]} is judged twice for {parts[1]}", where=where)
        known.add((parts[1], parts[2]))
        return Judgement(parts[1], parts[2], (one, two, three))

    return list(parse_lines(path, problems, judgement))


FLICKR = caption_format(
    "flickr-token",
    "Flickr8k / Flickr30k captions, a line each (Flickr8k.token.txt, results_20130124.token)",
    lambda probe: mostly(probe.lines, _TOKEN.match),
    read_flickr,
    count=_count_flickr,
)
CONCEPTUAL = caption_format(
    "conceptual-captions",
    "Conceptual Captions: captions with web addresses (Train_GCC-training.tsv)",
    lambda probe: mostly(probe.lines, _CONCEPTUAL.match),
    read_conceptual,
)
JUDGEMENTS = record_format(
    "flickr8k-judgements",
    "Expert judgements of captions for photos (ExpertAnnotations.txt)",
    lambda probe: mostly(probe.lines, _JUDGEMENT.match),
    read_judgements,
    lambda found: ({"judgements": len(found), "photos": len({one.image for one in found})}, ()),
)
