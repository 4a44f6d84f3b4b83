"""What every format of captions or lines shares: checked text, photos that are unique or joined, and the report."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from sightline.data.format import Format, Probe, Summary
from sightline.data.json_records import json_id
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, GroundedPhoto, Problems, Sentence, check_caption
from sightline.errors import DataError, DuplicateRecordError, MissingRecordError, plural
from sightline.files import open_text

T = TypeVar("T")


def photo_of(
    id: str, texts: Iterable[str], where: object, problems: Problems, file: str | None = None
) -> CaptionedPhoto:
    """A photo with plain captions, of which it must have one."""
    sentences = tuple(Sentence(check_caption(text, where, problems)) for text in texts)
    check_any(id, sentences, where, problems)
    return CaptionedPhoto(id, sentences, file)


def check_any(photo: str, captions: object, where: object, problems: Problems) -> None:
    """Report a photo without any caption where captions are the point of the file."""
    if not captions:
        problems.report(
            MissingRecordError(f"image {photo} has no caption", where=str(where), fix="add one or remove the image")
        )


def caption_set(photos: Iterable[CaptionedPhoto], path: Path, problems: Problems) -> CaptionSet:
    """The photos as a set; a second photo of the same id is reported, and left out when collecting."""
    unique: dict[str, CaptionedPhoto] = {}
    for photo in photos:
        if unique.setdefault(photo.id, photo) is not photo:
            what = f"image {photo.id} appears twice"
            problems.report(DuplicateRecordError(what, where=path, fix="merge its captions into one entry"))
    return CaptionSet(tuple(unique.values()), str(path))


def join_rows(rows: Iterable[CaptionedPhoto], path: Path) -> CaptionSet:
    """Photos whose captions come in several rows; the first row of an id gives file, split and size."""
    first: dict[str, CaptionedPhoto] = {}
    sentences: dict[str, list[Sentence]] = {}
    for row in rows:
        first.setdefault(row.id, row)
        sentences.setdefault(row.id, []).extend(row.sentences)
    return CaptionSet(tuple(replace(row, sentences=tuple(sentences[id])) for id, row in first.items()), str(path))


def plain_captions(photos: Iterable[GroundedPhoto], path: Path) -> CaptionSet:
    """The captions of grounded photos as plain tokens, without what is grounded. `file` is `<id>.jpg`."""
    plain = []
    for photo in photos:
        sentences = tuple(Sentence(" ".join(sentence.tokens), sentence.tokens) for sentence in photo.sentences)
        plain.append(CaptionedPhoto(photo.id, sentences, f"{photo.id}.jpg", photo.split, photo.size))
    return CaptionSet(tuple(plain), str(path))


def count_captions(captions: CaptionSet) -> Summary:
    """Photos, captions and splits, and notes about odd ones."""
    sentences = list(captions.sentences())
    counts: dict[str, int | str] = {"photos": len(captions), "captions": len(sentences)}
    counts |= {f"photos of split {name}": count for name, count in captions.splits().items()}
    notes = []
    if empty := sum(not sentence.text.strip() for sentence in sentences):
        notes.append(f"{plural(empty, 'caption')} {'is' if empty == 1 else 'are'} empty")
    bare = sum(not photo.sentences for photo in captions)
    if 0 < bare < len(captions):
        notes.append(f"{plural(bare, 'photo')} {'has' if bare == 1 else 'have'} no caption")
    return counts, notes


def caption_format(
    name: str,
    about: str,
    matches: Callable[[Probe], bool],
    read: Callable[[Path, Problems], CaptionSet],
    write: Callable[[Path, CaptionSet], int] | None = None,
    count: Callable[[CaptionSet], Summary] = count_captions,
) -> Format:
    """A format of captions, with a `write` or without."""
    return record_format(
        name, about, matches, read, count, captions=lambda path: read(path, STRICT), write_captions=write
    )


def record_format(
    name: str,
    about: str,
    matches: Callable[[Probe], bool],
    read: Callable[[Path, Problems], T],
    count: Callable[[T], Summary],
    **readers_and_writers: Any,
) -> Format:
    """A format whose `read` returns any type, and whose `count` makes the report of it."""
    return Format(name, about, matches, lambda path, problems: count(read(path, problems)), **readers_and_writers)


def each_with_caption(captions: CaptionSet) -> Iterator[CaptionedPhoto]:
    """The photos a writer is given; one without a caption is an error, since most formats could not hold it."""
    for photo in captions:
        check_any(photo.id, photo.sentences, captions.source, Problems())
        yield photo


def sentence_numbers(captions: CaptionSet) -> Iterator[int]:
    """A number for each sentence: its own id where all are distinct plain numbers, else its position."""
    ids = [json_id(sentence.id or "") for sentence in captions.sentences()]
    numbers = [id for id in ids if isinstance(id, int)]
    return iter(numbers if len(set(numbers)) == len(ids) else range(len(ids)))


def numbered_lines(path: Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """Each line of a text file with its number from 1; an empty one is reported, and left out when collecting."""
    with open_text(path) as file:
        for number, raw in enumerate(file, 1):
            line = raw.rstrip("\n")
            if line.strip():
                yield number, line
            else:
                problems.report(DataError("the line is empty", where=line_of(path, number), fix="remove it"))


def parse_lines(path: Path, problems: Problems, parse: Callable[[str, str], T]) -> Iterator[T]:
    """`parse(line, where)` of every line; a DataError that it raises is reported, and the line left out."""
    for number, line in numbered_lines(path, problems):
        try:  # which costs nothing, while `with problems` does: lines come by the million
            parsed = parse(line, line_of(path, number))
        except DataError as error:
            problems.report(error)
        else:
            yield parsed


def parse_unique_lines(path: Path, problems: Problems, parse: Callable[[str, str], tuple[str, T]]) -> dict[str, T]:
    """The keys and values that `parse(line, where)` gives; a key that comes again is reported, and left out."""
    values: dict[str, T] = {}

    def add(line: str, where: str) -> None:
        key, value = parse(line, where)
        if key in values:
            raise DuplicateRecordError(f"{key} appears twice", where=where, fix="remove one of the two")
        values[key] = value

    for _ in parse_lines(path, problems, add):
        pass
    return values


def line_of(path: Path, number: int) -> str:
    """How messages name a line."""
    return f"{path}, line {number}"


def mostly(lines: Iterable[str], fits: Callable[[str], object]) -> bool:
    """Whether at least half of the non-empty lines fit, and there is one: a few broken lines do not hide a format."""
    verdicts = [bool(fits(line)) for line in lines if line.strip()]
    return bool(verdicts) and 2 * sum(verdicts) >= len(verdicts)
