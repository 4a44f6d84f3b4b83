"""Captions as lines of JSON, `{"file": "a.jpg", "caption": "…"}`; Hugging Face's `metadata.jsonl` is one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from sightline.data.caption_format import line_of, numbered_lines, report_captions
from sightline.data.caption_table import CAPTION_COLUMNS, FILE_COLUMNS, Row, column, from_rows, to_rows
from sightline.data.format import Format, Probe
from sightline.data.json_records import Record, parse_line, read_list
from sightline.data.records import CaptionSet, Problems
from sightline.errors import DataError
from sightline.files import write_text


def matches(probe: Probe) -> bool:
    """A `.jsonl` of objects with a file and a caption, or one that is called captions.jsonl."""
    if probe.name == "captions.jsonl":
        return True
    file, caption = any(map(probe.has_key, FILE_COLUMNS)), any(map(probe.has_key, CAPTION_COLUMNS))
    return probe.name.endswith(".jsonl") and probe.json_start == "{" and file and caption


def read(path: Path, problems: Problems | None = None, check_files: bool = True) -> CaptionSet:
    """Photos with captions; several lines per photo, and lists of captions, are allowed."""
    met = Problems() if problems is None else problems
    return from_rows(_rows(path, met), path, met, check_files)


def read_array(path: Path) -> CaptionSet:
    """The same of one JSON array of such objects, as `sightline caption --json` prints it; files are not looked for."""
    rows = [_row(Record(value, path, "photos", at), at + 1) for at, value in enumerate(read_list(path))]
    return from_rows(iter(rows), path, Problems(), check_files=False)


def write(path: Path, captions: CaptionSet) -> int:
    """Write a line per caption; returns the number of photos."""
    rows = ({"file": file, "caption": caption} for file, caption in to_rows(captions))
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return len(captions)


def _rows(path: Path, problems: Problems) -> Iterator[Row]:
    for number, line in numbered_lines(path, problems):
        try:
            yield _row(Record(parse_line(line, line_of(path, number)), path, "line", number), number)
        except DataError as error:
            problems.report(error)


def _row(record: Record, number: int) -> Row:
    file, caption = column(record.value, FILE_COLUMNS), column(record.value, CAPTION_COLUMNS)
    if file is None or caption is None:
        missing = FILE_COLUMNS if file is None else CAPTION_COLUMNS
        raise DataError(
            f"there is no {', '.join(missing[:-1])} or {missing[-1]} among {', '.join(record.value) or 'no keys'}",
            where=record.where,
        )
    return Row(number, record.text(file), record.one_or_many(caption))


FORMAT: Format = Format(
    "captions-jsonl",
    "Photos with captions as lines of JSON (.jsonl)",
    matches,
    inspect=lambda path: report_captions(path, FORMAT, read),
    captions=read,
    write_captions=write,
)
