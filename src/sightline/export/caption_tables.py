"""Captions as a table and as lines of JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator

from sightline.export.caption_json import CaptionJson

COLUMNS = ("path", "caption", "confidence", "low_confidence", "objects")
BETWEEN = "; "  # objects of one cell


def csv_lines(captions: Iterable[CaptionJson]) -> Iterator[str]:
    """A header, and a row for each photo; `objects` are the names of what is seen, the surest first."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    yield _row(writer, buffer, COLUMNS)
    for told in captions:
        low = "true" if told["low_confidence"] else "false"
        objects = BETWEEN.join(concept["name"] for concept in told["concepts"])
        yield _row(writer, buffer, (told["path"], told["caption"], told["confidence"], low, objects))


def json_lines(captions: Iterable[CaptionJson]) -> Iterator[str]:
    """An object a line; a name with a line break does not break the line."""
    for told in captions:
        yield json.dumps(told, ensure_ascii=False, allow_nan=False) + "\n"


def json_array(captions: Iterable[CaptionJson]) -> Iterator[str]:
    """One array, an object a line."""
    between = "["
    for told in captions:
        yield between + json.dumps(told, ensure_ascii=False, allow_nan=False)
        between = ",\n "
    yield "[]\n" if between == "[" else "]\n"


def _row(writer: csv._writer, buffer: io.StringIO, values: Iterable[object]) -> str:  # type: ignore[name-defined]
    writer.writerow(values)
    row = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return row
