"""Captions in a spreadsheet file, `.csv` or `.tsv` with a header: `file,caption`, open_clip's `filepath<TAB>title`."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from sightline.data.caption_format import line_of, report_captions
from sightline.data.caption_table import CAPTION_COLUMNS, FILE_COLUMNS, Row, column, from_rows, to_rows
from sightline.data.format import Format, Probe
from sightline.data.records import CaptionSet, Problems
from sightline.errors import CountError, DataError
from sightline.files import open_bytes, open_text, write_text

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def matches(probe: Probe) -> bool:
    """A table whose header names a file and a caption column, or that is called captions.csv or captions.tsv."""
    if probe.name in ("captions.csv", "captions.tsv"):
        return True
    lines = probe.head.decode("utf-16", "ignore").splitlines() if probe.head.startswith(_UTF16) else probe.lines
    if not probe.name.endswith((".csv", ".tsv", ".txt")) or not lines:
        return False
    header = _header(lines[0])
    return column(header, FILE_COLUMNS) is not None and column(header, CAPTION_COLUMNS) is not None


def read(path: Path, problems: Problems | None = None, check_files: bool = True) -> CaptionSet:
    """Photos with captions; several rows per photo are allowed. `check_files` wants each photo beside the table."""
    met = Problems() if problems is None else problems
    return from_rows(_rows(path, met), path, met, check_files)


def write(path: Path, captions: CaptionSet) -> int:
    """Write a row per caption, with tabs where the name ends in `.tsv`; returns the number of photos."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t" if path.suffix == ".tsv" else ",")
    writer.writerow(("file", "caption"))
    writer.writerows(to_rows(captions))
    write_text(path, text.getvalue())
    return len(captions)


def _delimiter(header: str) -> str:
    """Whichever occurs most; spreadsheets write `;` where the comma divides decimals."""
    return max("\t,;", key=header.count)


def _header(line: str) -> list[str]:
    return next(csv.reader([line], delimiter=_delimiter(line)), [])


def _check_encoding(path: Path) -> None:
    with open_bytes(path) as file:
        if file.read(2) in _UTF16:
            raise DataError(
                "this is UTF-16 text", where=path, fix="save it as UTF-8 (in a spreadsheet: the type `CSV UTF-8`)"
            )


def _rows(path: Path, problems: Problems) -> Iterator[Row]:
    _check_encoding(path)
    with open_text(path) as file:
        cast(io.TextIOWrapper, file).reconfigure(
            newline=""
        )  # captions may hold line breaks, which csv keeps as they are
        header_line = file.readline()
        reader = csv.reader(file, delimiter=_delimiter(header_line), strict=True)
        try:
            header = _header(header_line)
            places = [_place(header, wanted, path) for wanted in (FILE_COLUMNS, CAPTION_COLUMNS)]
            for cells in reader:
                line = reader.line_num + 1
                if len(cells) != len(header):
                    problems.report(
                        CountError(
                            f"{len(cells)} columns, the header has {len(header)}",
                            where=line_of(path, line),
                            fix='put captions that hold the separator into "quotation marks"',
                        )
                    )
                    continue
                yield Row(line, cells[places[0]], (cells[places[1]],))
        except csv.Error as error:
            problems.report(DataError(f"not a valid table: {error}", where=line_of(path, reader.line_num + 1)))


def _place(header: list[str], wanted: tuple[str, ...], path: Path) -> int:
    name = column(header, wanted)
    if name is None:
        raise DataError(
            f"the header {header} has no column {', '.join(wanted[:-1])} or {wanted[-1]}",
            where=line_of(path, 1),
            fix="the first line must name the columns, such as `file,caption`",
        )
    return header.index(name)


FORMAT: Format = Format(
    "captions-csv",
    "Photos with captions in a table (.csv or .tsv with a header; open_clip's filepath and title)",
    matches,
    inspect=lambda path: report_captions(path, FORMAT, read),
    captions=read,
    write_captions=write,
)
