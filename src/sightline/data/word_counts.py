"""Word lists of R2M and UC-GAN, `word_counts.txt`: a word and its count per line, most frequent first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sightline.data.caption_format import checked, collect, line_of, mostly, numbered_lines
from sightline.data.format import Format, Probe, Report
from sightline.data.records import Problems
from sightline.errors import DataError, DuplicateRecordError
from sightline.files import write_text

START, END = "<S>", "</S>"

_LINE = re.compile(r"(\S+) (\d{1,18})$")


def matches(probe: Probe) -> bool:
    """Lines of one word, one space and a number."""
    return mostly(probe.lines, _LINE.match)


def read_counts(path: Path, problems: Problems | None = None) -> dict[str, int]:
    """Word to count in file order: the position is the word's id."""
    met = Problems() if problems is None else problems
    counts: dict[str, int] = {}
    for number, line in numbered_lines(path, met):
        found, where = _LINE.match(line), line_of(path, number)
        if found is None:
            met.report(DataError(f"{line[:60]!r} is not a word, a space and a count", where=where))
        elif found[1] in counts:
            met.report(DuplicateRecordError(f"the word {found[1]!r} appears twice", where=where, fix="add the counts"))
        else:
            counts[checked(found[1], where, met)] = int(found[2])
    return counts


def write_counts(path: Path, counts: Mapping[str, int]) -> int:
    """Write `<S>` and `</S>`, then the words by falling count (ties in alphabetical order); returns the lines."""
    rows = [(mark, counts.get(mark, 0)) for mark in (START, END)]
    rows += sorted(
        (item for item in counts.items() if item[0] not in (START, END)), key=lambda item: (-item[1], item[0])
    )
    for word, count in rows:
        if word.split() != [word] or count < 0:
            raise DataError(f"{word!r} with count {count} cannot be a line of a word list", where=path)
    write_text(path, "".join(f"{word} {count}\n" for word, count in rows))
    return len(rows)


def inspect(path: Path) -> Report:
    """The count of words, and whether their order is the usual one."""
    counts, problems = collect(path, read_counts)
    words = list(counts or {})
    values = [count for word, count in (counts or {}).items() if word not in (START, END)]
    notes = [] if words[:2] == [START, END] else [f"{START} and {END} are not the first two words"]
    if values != sorted(values, reverse=True):
        notes.append("the words are not sorted by count")
    return Report.of(path, FORMAT, {"words": len(words)}, problems, notes)


FORMAT = Format(
    "word-counts",
    "R2M / UC-GAN word list (word_counts.txt)",
    matches,
    inspect,
)
