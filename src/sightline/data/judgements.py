"""Flickr8k's `ExpertAnnotations.txt`: how well three people found that a caption fits a photo, 1 (not) to 4 (fully)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sightline.data.caption_format import collect, line_of, mostly, numbered_lines
from sightline.data.format import Format, Probe, Report
from sightline.data.records import Problems
from sightline.errors import DataError, DuplicateRecordError

_LINE = re.compile(r"([^\t]+)\t([^\t]+#\d+)\t(-?\d{1,9})\t(-?\d{1,9})\t(-?\d{1,9})\s*$")


@dataclass(frozen=True)
class Judgement:
    """The scores of `caption` (an id such as `photo.jpg#2`, often another photo's) for `image`."""

    image: str
    caption: str
    scores: tuple[int, int, int]


def matches(probe: Probe) -> bool:
    """Lines of a photo, a caption id and three whole numbers."""
    return mostly(probe.lines, _LINE.match)


def read_judgements(path: Path, problems: Problems | None = None) -> list[Judgement]:
    """Every judgement, in file order."""
    met = Problems() if problems is None else problems
    found: dict[tuple[str, str], Judgement] = {}
    for number, line in numbered_lines(path, met):
        try:
            judgement = _parse(line, line_of(path, number))
            pair = judgement.image, judgement.caption
            if found.setdefault(pair, judgement) is not judgement:
                raise DuplicateRecordError(f"{pair[1]} is judged twice for {pair[0]}", where=line_of(path, number))
        except DataError as error:
            met.report(error)
    return list(found.values())


def inspect(path: Path) -> Report:
    """Counts of judgements and photos."""
    found, problems = collect(path, read_judgements)
    judgements = found or []
    counts: dict[str, int | str] = {"judgements": len(judgements), "photos": len({j.image for j in judgements})}
    return Report.of(path, FORMAT, counts, problems)


def _parse(line: str, where: str) -> Judgement:
    found = _LINE.match(line)
    if found is None:
        raise DataError("not `photo<TAB>caption id<TAB>score<TAB>score<TAB>score`", where=where)
    one, two, three = (int(found[group]) for group in (3, 4, 5))
    if not all(1 <= score <= 4 for score in (one, two, three)):
        raise DataError(f"the scores {one}, {two}, {three} are not all from 1 to 4", where=where)
    return Judgement(found[1], found[2], (one, two, three))


FORMAT = Format(
    "flickr8k-judgements",
    "Expert judgements of captions for photos (ExpertAnnotations.txt)",
    matches,
    inspect,
)
