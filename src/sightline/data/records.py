"""What readers give: photos with sentences (`CaptionSet`), which words mean which boxes, scenes by id, and problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from sightline.errors import ByteStringError, DataError, DuplicateRecordError, MissingRecordError
from sightline.scene import Box, Scene


@dataclass(frozen=True)
class Sentence:
    """One caption: its text, and the tokens and Penn tags where the file gives them."""

    text: str
    tokens: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    id: str | None = None


@dataclass(frozen=True)
class CaptionedPhoto:
    """One image and what people said about it. `file` is as the source names it, often relative to an image folder."""

    id: str
    sentences: tuple[Sentence, ...] = ()
    file: str | None = None
    split: str | None = None
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class CaptionSet:
    """Photos with their sentences, in file order."""

    photos: tuple[CaptionedPhoto, ...]
    source: str = ""
    _index: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for position, photo in enumerate(self.photos):
            if self._index.setdefault(photo.id, position) != position:
                what = f"image {photo.id} appears twice"
                raise DuplicateRecordError(what, where=self.source, fix="merge its captions into one entry")

    def __len__(self) -> int:
        return len(self.photos)

    def __iter__(self) -> Iterator[CaptionedPhoto]:
        return iter(self.photos)

    def __getitem__(self, id: str) -> CaptionedPhoto:
        try:
            return self.photos[self._index[id]]
        except KeyError:
            what = f"no image {id} among the {len(self)} here"
            raise MissingRecordError(what, where=self.source, fix="check the id's spelling and leading zeros") from None

    def __contains__(self, id: object) -> bool:
        return id in self._index

    def splits(self) -> dict[str, int]:
        """Photos per split, in order of first appearance."""
        return dict(Counter(photo.split for photo in self.photos if photo.split is not None))

    def split(self, name: str) -> CaptionSet:
        if not (names := self.splits()):
            raise MissingRecordError("these captions have no splits", where=self.source, fix="leave --split out")
        if name not in names:
            raise MissingRecordError(f"no split {name!r}", where=self.source, fix=f"choose one of {', '.join(names)}")
        return replace(self, photos=tuple(photo for photo in self.photos if photo.split == name))

    def sentences(self) -> Iterator[Sentence]:
        for photo in self.photos:
            yield from photo.sentences


@dataclass(frozen=True)
class GroundedWord:
    """A word of a sentence that names something in the picture."""

    index: int  # the word's place in the sentence's tokens, from 0
    label: str  # its class, the lemma of a head noun ("dog")
    boxes: tuple[Box, ...]  # x1 y1 x2 y2 in pixels of the photo's original size; one thing may have several


@dataclass(frozen=True)
class GroundedSentence:
    """A sentence with its grounded words."""

    tokens: tuple[str, ...]
    words: tuple[GroundedWord, ...] = ()


@dataclass(frozen=True)
class GroundedPhoto:
    """The grounded sentences of one photo; `size` is the width and height the boxes refer to."""

    id: str
    sentences: tuple[GroundedSentence, ...]
    size: tuple[int, int] | None = None
    split: str | None = None


@dataclass(frozen=True)
class GroundedPrediction:
    """A class that a generated sentence mentions, and the box its word points at (pixels)."""

    index: int
    label: str
    box: Box


class SceneSource(Protocol):
    """Scenes by image id, in file order, read when asked for, never all in memory."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Scene]: ...
    def __getitem__(self, id: str) -> Scene: ...
    def ids(self) -> Sequence[str]: ...


class Problems:
    """Where a reader reports what is wrong: strict raises at once, `collect` goes on so that `inspect` lists them all.

    One parser serves both. `with problems:` reports the DataError that ends what is inside.
    """

    def __init__(self, collect: bool = False) -> None:
        self.collect = collect
        self.errors: list[DataError] = []  # the first 20
        self.total = 0

    def report(self, error: DataError) -> None:
        if not self.collect:
            raise error
        self.total += 1
        if len(self.errors) < 20:
            self.errors.append(error)

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not self.collect or not isinstance(error, DataError):
            return False
        self.report(error)
        return True


STRICT = Problems()  # the default of every reader: the first problem is raised


def check_caption(text: str, where: object, problems: Problems) -> str:
    """`text`, reported if it is a printed bytes object, `b'...'`: a Python 2 habit that ruins vocabularies.

    `where` is printed only then: captions come by the million.
    """
    if text[:2] in ("b'", 'b"') and len(text) > 2 and text.rstrip()[-1:] == text[1]:
        what = f"the caption {text[:40]!r} is a printed bytes object"
        fix = "write captions as UTF-8 text: decode bytes with .decode('utf-8') instead of str()"
        problems.report(ByteStringError(what, where=str(where), fix=fix))
    return text
