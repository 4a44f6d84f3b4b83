"""GVD's split file `split_ids_*.json`, `{"train": ["id", …], "val": […], "test": […]}`."""

from __future__ import annotations

import re
from pathlib import Path

from sightline.data.caption_format import collect
from sightline.data.format import Format, Probe, Report
from sightline.data.json_records import read_object
from sightline.data.records import Problems
from sightline.errors import DuplicateRecordError

SPLITS = ("train", "val", "test", "training", "validation", "testing", "hidden_test")

_START = re.compile(r'\s*\{\s*"(' + "|".join(SPLITS) + r')"\s*:\s*\[\s*("[^"]*"|\])')


def matches(probe: Probe) -> bool:
    """A JSON object that opens with the ids of a split."""
    return probe.text is not None and _START.match(probe.text) is not None


def read_split(path: Path, problems: Problems | None = None) -> dict[str, tuple[str, ...]]:
    """Split to ids; an id in two places is an error."""
    met = Problems() if problems is None else problems
    whole = read_object(path)
    splits = {name: whole.texts(name) for name in whole.value}
    seen: dict[str, str] = {}
    for name, ids in splits.items():
        for id in ids:
            if id in seen:
                met.report(
                    DuplicateRecordError(
                        f"id {id} is in {seen[id]} and in {name}", where=path, fix="keep it in one split"
                    )
                )
            seen[id] = name
    return splits


def inspect(path: Path) -> Report:
    """Counts per split."""
    splits, problems = collect(path, read_split)
    return Report.of(
        path, FORMAT, {f"photos of split {name}": len(ids) for name, ids in (splits or {}).items()}, problems
    )


FORMAT = Format("split-ids", "Ids of the photos of each split (split_ids_*.json)", matches, inspect)
