"""What every caption format shares: unique photos, checked text, the report, and what a writer may be given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from sightline.data.format import Format, Report
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption
from sightline.errors import DataError, DuplicateRecordError, MissingRecordError
from sightline.files import open_text

T = TypeVar("T")


def caption_set(photos: Iterable[CaptionedPhoto], path: Path, problems: Problems) -> CaptionSet:
    """The photos as a set; a second photo of the same id is reported, and left out when collecting."""
    unique: dict[str, CaptionedPhoto] = {}
    for photo in photos:
        if unique.setdefault(photo.id, photo) is not photo:
            problems.report(
                DuplicateRecordError(
                    f"image {photo.id} appears twice", where=path, fix="merge its captions into one entry"
                )
            )
    return CaptionSet(tuple(unique.values()), str(path))


def checked(text: str, where: object, problems: Problems) -> str:
    """`text`, reported if it is a printed bytes object. `where` is printed only then: captions come by the million."""
    if text[:2] in ("b'", 'b"'):
        check_caption(text, str(where), problems)
    return text


class CaptionCollector:
    """Photos whose captions come in several rows: `add` each row, then `photos` in order of first appearance."""

    def __init__(self) -> None:
        self._photos: dict[str, CaptionedPhoto] = {}
        self._sentences: dict[str, list[Sentence]] = {}

    def add(self, photo: CaptionedPhoto) -> None:
        """Add a row; the first row of an id gives the photo's file, split and size."""
        self._photos.setdefault(photo.id, photo)
        self._sentences.setdefault(photo.id, []).extend(photo.sentences)

    def get(self, id: str) -> CaptionedPhoto | None:
        """The first row of photo `id`."""
        return self._photos.get(id)

    def photos(self) -> Iterator[CaptionedPhoto]:
        """Each photo once, with all its sentences."""
        for id, photo in self._photos.items():
            yield CaptionedPhoto(id, tuple(self._sentences[id]), photo.file, photo.split, photo.size)


def collect(path: Path, read: Callable[[Path, Problems], T]) -> tuple[T | None, Problems]:
    """What `read` makes of `path` while noting every problem; None where nothing could be read at all."""
    problems = Problems(collect=True)
    try:
        return read(path, problems), problems
    except DataError as error:
        problems.report(error)
        return None, problems


def report_captions(path: Path, format: Format, read: Callable[[Path, Problems], CaptionSet]) -> Report:
    """The report of a caption format that has nothing special to tell."""
    return caption_report(path, format, *collect(path, read))


def caption_report(
    path: Path, format: Format, captions: CaptionSet | None, problems: Problems, notes: Iterable[str] = ()
) -> Report:
    """Photos, captions and splits of what a collecting read gave, and notes about odd ones."""
    photos = () if captions is None else captions.photos
    counts: dict[str, int | str] = {"photos": len(photos), "captions": sum(len(p.sentences) for p in photos)}
    if captions is not None:
        counts |= {f"photos of split {name}": count for name, count in captions.splits().items()}
    found = [*notes]
    if empty := sum(not sentence.text.strip() for photo in photos for sentence in photo.sentences):
        found.append(f"{empty} captions are empty")
    if (bare := sum(not photo.sentences for photo in photos)) and bare < len(photos):
        found.append(f"{bare} photos have no caption")
    return Report.of(path, format, counts, problems, found)


def each_captioned(captions: CaptionSet) -> Iterator[CaptionedPhoto]:
    """The photos a writer is given; one without a caption is an error, since most formats could not hold it."""
    for photo in captions:
        if not photo.sentences:
            raise MissingRecordError(
                f"image {photo.id} has no caption",
                where=captions.source or None,
                fix="caption it, or leave it out before writing",
            )
        yield photo


def sentence_numbers(captions: CaptionSet) -> Iterator[int]:
    """A number for each sentence: its own id where all are distinct plain numbers, else its position."""
    ids = [sentence.id or "" for sentence in captions.sentences()]
    plain = all(id.isascii() and id.isdigit() and len(id) < 20 and str(int(id)) == id for id in ids)
    keep = plain and len(set(ids)) == len(ids)
    return iter(map(int, ids)) if keep else iter(range(len(ids)))


def numbered_lines(path: Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """Each line of a text file with its number from 1; an empty one is reported, and left out when collecting."""
    with open_text(path) as file:
        for number, raw in enumerate(file, 1):
            line = raw.rstrip("\n")
            if line.strip():
                yield number, line
            else:
                problems.report(DataError("the line is empty", where=line_of(path, number), fix="remove it"))


def line_of(path: Path, number: int) -> str:
    """How messages name a line."""
    return f"{path}, line {number}"


def mostly(lines: Iterable[str], fits: Callable[[str], object]) -> bool:
    """Whether at least half of the non-empty lines fit, and there is one: a few broken lines do not hide a format."""
    verdicts = [bool(fits(line)) for line in lines if line.strip()]
    return bool(verdicts) and 2 * sum(verdicts) >= len(verdicts)
