"""Captions in tables: `.csv` or `.tsv` with a header (`file,caption`, open_clip's `filepath<TAB>title`), or lines of
JSON, `{"file": "a.jpg", "caption": "…"}`. What `sightline caption` writes is read like any other table.

`metadata.csv` and `metadata.jsonl` are the tables of Hugging Face's `imagefolder`: beside the photos, with the columns
`file_name` and `text`.
"""

import codecs
import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

from sightline.data.caption_format import (
    caption_format,
    count_captions,
    each_with_caption,
    join_rows,
    line_of,
    parse_lines,
)
from sightline.data.format import Probe, Summary
from sightline.data.json_records import Record, read_each
from sightline.data.photo_finder import PhotoFinder, is_file
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption
from sightline.errors import CountError, DataError, DuplicateRecordError, MissingRecordError, about, plural
from sightline.files import open_bytes, open_text, parse_json, write_text

FILE_COLUMNS = ("file", "filename", "file_name", "filepath", "image", "path")
CAPTION_COLUMNS = ("caption", "title", "text")
IMAGE_FOLDER = ("metadata.csv", "metadata.jsonl")  # names that Hugging Face's `datasets` looks for beside photos
SAVE_AS_UTF8 = "save it as UTF-8 (in a spreadsheet: the type `CSV UTF-8`)"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class _Row(NamedTuple):
    where: str
    file: str  # as written
    captions: tuple[str, ...]


def read(
    path: Path, problems: Problems = STRICT, photos_in: PhotoFinder | None = None, *, away: bool = False
) -> CaptionSet:
    """Photos with captions, from a table, lines of JSON or one JSON list; a photo may have several rows.

    The id is the file as written. `photos_in` is where each photo must be, unless it may be `away`; its file is the
    path there.
    """
    rows: Iterable[_Row]
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        rows = parse_lines(path, problems, lambda line, where: _json_row(Record(parse_json(line, where), where)))
    elif Probe(path).json_start == "[":
        rows = read_each(path, problems, _json_row, "photos")
    else:
        rows = _csv_rows(path, problems)
    photos, files = list[CaptionedPhoto](), dict[str, str]()
    for row in rows:
        if not row.file:
            problems.report(DataError("the file is empty", where=row.where, fix="name the photo, or remove the row"))
            continue
        if photos_in is not None and row.file not in files:
            files[row.file] = row.file
            with Problems(collect=True) if away else problems, about(row.where):
                files[row.file] = photos_in.require(row.file)
        sentences = tuple(Sentence(check_caption(text, row.where, problems)) for text in row.captions)
        photos.append(CaptionedPhoto(row.file, sentences, files.get(row.file, row.file)))
    return join_rows(photos, path)


def _column(names: Iterable[str], wanted: tuple[str, ...], where: str, among: str) -> str:
    """The first of `wanted` among `names`, in whatever case and spacing, as it is written there."""
    written = {name.strip().lower(): name for name in names}
    for name in wanted:
        if name in written:
            return written[name]
    what = f"there is no {', '.join(wanted[:-1])} or {wanted[-1]} among {among}"
    raise DataError(what, where=where, fix="name the columns, such as `file,caption`")


def _csv_rows(path: Path, problems: Problems) -> Iterator[_Row]:
    with open_bytes(path) as raw:
        if raw.read(2) in _UTF16:
            raise DataError("this is UTF-16 text", where=path, fix=SAVE_AS_UTF8)
    with open_text(path) as file:
        cast(io.TextIOWrapper, file).reconfigure(newline="")  # captions may hold line breaks, which csv keeps
        try:
            first = file.readline()
            reader = csv.reader(file, delimiter=_delimiter(first), strict=True)
            header = _header(first)
            among = "the columns " + (", ".join(header) or "(none)")
            file_place = header.index(_column(header, FILE_COLUMNS, line_of(path, 1), among))
            caption_place = header.index(_column(header, CAPTION_COLUMNS, line_of(path, 1), among))
            for cells in reader:
                where = line_of(path, reader.line_num + 1)
                if len(cells) == len(header):
                    yield _Row(where, cells[file_place], (cells[caption_place],))
                    continue
                what = f"{plural(len(cells), 'column')}, the header has {len(header)}"
                fix = 'put captions that hold the separator into "quotation marks"'
                problems.report(CountError(what, where=where, fix=fix))
        except UnicodeDecodeError as error:
            raise DataError("this is not UTF-8 text", where=path, fix=SAVE_AS_UTF8) from error
        except csv.Error as error:
            problems.report(DataError(f"not a valid table: {error}", where=line_of(path, reader.line_num + 1)))


def _delimiter(header: str) -> str:
    """Whichever occurs most; spreadsheets write `;` where the comma divides decimals."""
    return max("\t,;", key=header.count)


def _header(line: str) -> list[str]:
    return next(csv.reader([line], delimiter=_delimiter(line)), [])


def _json_row(record: Record) -> _Row:
    among, where = ", ".join(record.value) or "no keys", record.where
    file = record.text(_column(record.value, FILE_COLUMNS, where, among))
    return _Row(where, file, record.one_or_many(_column(record.value, CAPTION_COLUMNS, where, among)))


def write_csv(path: Path, captions: CaptionSet) -> int:
    """Write a row per caption, with tabs where the name ends in `.tsv`; returns the number of photos."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t" if path.suffix == ".tsv" else ",")
    writer.writerow(_names_of_columns(path))
    writer.writerows(_to_rows(captions, path))
    write_text(path, text.getvalue())
    return len(captions)


def write_jsonl(path: Path, captions: CaptionSet) -> int:
    """Write a line per caption; returns the number of photos."""
    names = _names_of_columns(path)
    rows = (dict(zip(names, row, strict=True)) for row in _to_rows(captions, path))
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return len(captions)


def _names_of_columns(path: Path) -> tuple[str, str]:
    return ("file_name", "text") if path.name in IMAGE_FOLDER else ("file", "caption")


def _to_rows(captions: CaptionSet, path: Path) -> Iterator[tuple[str, str]]:
    """(file, caption) of every sentence; the file is the photo's, or its id where it has none."""
    written: set[str] = set()
    for photo in each_with_caption(captions):
        file = photo.file or photo.id
        if path.name in IMAGE_FOLDER:
            file = _from_folder(path.parent, file, captions.source)
        if file in written:
            what = f"two photos have the file {file}"
            raise DuplicateRecordError(what, where=captions.source or None, fix="give each its own file")
        written.add(file)
        yield from ((file, sentence.text) for sentence in photo.sentences)


def _from_folder(folder: Path, file: str, source: str) -> str:
    """Where a photo is from a folder that holds it: `datasets` refuses a table whose photos are not there."""
    if (folder / file).is_file() and not Path(file).is_absolute():
        return file
    for photo in (Path(file), Path(source).parent / file):  # as named here, or beside the table that named it
        if photo.is_file() and folder.is_dir():
            for place in (photo.absolute(), photo.resolve()):  # as a link it may be there, and what it leads to is not
                if above := next((above for above in place.parents if above.samefile(folder)), None):
                    return place.relative_to(above).as_posix()
    fix = "copy the photos there first: `metadata` tables stand beside them"
    raise MissingRecordError(f"there is no photo {file!r} in {folder}", where=source or None, fix=fix)


def _is_csv(probe: Probe) -> bool:
    """A table whose header names a file and a caption column, or that is called captions.csv or captions.tsv."""
    if probe.name in ("captions.csv", "captions.tsv"):
        return True
    encoding = "utf-16" if probe.head.startswith(_UTF16) else "latin-1" if probe.is_other_text else None
    lines = probe.head.decode(encoding, "ignore").splitlines() if encoding else probe.lines
    names = {name.strip().lower() for name in _header(lines[0])} if lines else set()
    holds_both = not names.isdisjoint(FILE_COLUMNS) and not names.isdisjoint(CAPTION_COLUMNS)
    return probe.name.endswith((".csv", ".tsv", ".txt")) and holds_both


def _names_columns(probe: Probe) -> bool:
    return probe.has_any_key(*FILE_COLUMNS) and probe.has_any_key(*CAPTION_COLUMNS)


def _is_jsonl(probe: Probe) -> bool:
    """A `.jsonl` of objects with a file and a caption, or one that is called captions.jsonl."""
    if probe.name == "captions.jsonl":
        return True
    return probe.name.endswith(".jsonl") and probe.json_start == "{" and _names_columns(probe)


def _is_array(probe: Probe) -> bool:
    """A `.json` list of such objects; those with an `image` are LAVIS's."""
    is_list = probe.name.endswith(".json") and probe.json_start == "["
    return is_list and _names_columns(probe) and not probe.has_key("image")


def _count(captions: CaptionSet) -> Summary:
    """Photos may be elsewhere: scoring needs none, and auditing and training have an option for their folder."""
    counts, notes = count_captions(captions)
    folder = Path(captions.source).parent
    away = sum(not is_file(folder / (photo.file or photo.id)) for photo in captions)
    return counts, [*notes, f"{away:,} of the photos {'is' if away == 1 else 'are'} not beside it"] if away else notes


CSV = caption_format(
    "captions-csv",
    "Photos with captions in a table (.csv or .tsv with a header; open_clip's filepath and title)",
    _is_csv,
    read,
    write_csv,
    _count,
)
JSONL = caption_format(
    "captions-jsonl", "Photos with captions as lines of JSON (.jsonl)", _is_jsonl, read, write_jsonl, _count
)
JSON = caption_format(
    "captions-json",
    "Photos with captions in one JSON list, as `sightline caption` writes it",
    _is_array,
    read,
    count=_count,
)
FORMATS = (CSV, JSONL, JSON)
