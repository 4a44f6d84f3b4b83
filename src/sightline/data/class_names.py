"""Class names of a detector or of a grounding reference, one per line: GVD's `flickr30k_class_name.txt`."""

from __future__ import annotations

from pathlib import Path

from sightline.data.caption_format import collect, line_of, numbered_lines
from sightline.data.format import Format, Probe, Report
from sightline.data.records import Problems
from sightline.errors import DuplicateRecordError


def matches(probe: Probe) -> bool:
    """A text file that says in its name that it holds class names: its lines could be anything's."""
    return probe.name.endswith(".txt") and "class_name" in probe.name and bool(probe.lines)


def read_class_names(path: Path, problems: Problems | None = None) -> list[str]:
    """The names; the position is the class, counted from 0."""
    met = Problems() if problems is None else problems
    names: dict[str, None] = {}
    for number, line in numbered_lines(path, met):
        name = line.strip()
        if name in names:
            met.report(DuplicateRecordError(f"the class {name!r} appears twice", where=line_of(path, number)))
        names[name] = None
    return list(names)


def inspect(path: Path) -> Report:
    """The count of classes."""
    names, problems = collect(path, read_class_names)
    return Report.of(path, FORMAT, {"classes": len(names or ())}, problems)


FORMAT = Format("class-names", "Class names, one per line (flickr30k_class_name.txt)", matches, inspect)
