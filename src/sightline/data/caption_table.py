"""Tables of captions, a row each: what the columns may be called, and how rows become photos."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sightline.data.caption_format import CaptionCollector, checked, each_captioned, line_of
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence
from sightline.errors import DataError, DuplicateRecordError, MissingRecordError

FILE_COLUMNS = ("file", "filename", "file_name", "filepath", "image", "path")
CAPTION_COLUMNS = ("caption", "title", "text")


class Row(NamedTuple):
    """A line of a table: where it is, the photo's file as written, and its captions."""

    line: int
    file: str
    captions: tuple[str, ...]


def column(names: Iterable[str], wanted: tuple[str, ...]) -> str | None:
    """The first of `wanted` among `names`, in whatever case and spacing, as it is written there."""
    written = {name.strip().lower(): name for name in names}
    return next((written[name] for name in wanted if name in written), None)


def from_rows(rows: Iterable[Row], path: Path, problems: Problems, check_files: bool) -> CaptionSet:
    """Photos in order of first appearance. The id is the file as written, which is looked for beside the table."""
    gathering = CaptionCollector()
    for row in rows:
        where = line_of(path, row.line)
        if not row.file:
            problems.report(DataError("the file is empty", where=where, fix="name the photo, or remove the row"))
            continue
        if check_files and gathering.get(row.file) is None and not _is_file(path.parent / row.file):
            problems.report(
                MissingRecordError(
                    f"there is no file {row.file!r} in {path.parent}",
                    where=where,
                    fix="names are relative to the table's folder; correct the name, or remove the row",
                )
            )
        sentences = tuple(Sentence(checked(text, where, problems)) for text in row.captions)
        gathering.add(CaptionedPhoto(row.file, sentences, row.file))
    return CaptionSet(tuple(gathering.photos()), str(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long to be a name, such as a caption in the wrong column
        return False


def to_rows(captions: CaptionSet) -> Iterator[tuple[str, str]]:
    """(file, caption) of every sentence; the file is the photo's, or its id where it has none."""
    seen: set[str] = set()
    for photo in each_captioned(captions):
        file = photo.file or photo.id
        if file in seen:
            raise DuplicateRecordError(
                f"two photos have the file {file}", where=captions.source or None, fix="give each its own file"
            )
        seen.add(file)
        for sentence in photo.sentences:
            yield file, sentence.text
