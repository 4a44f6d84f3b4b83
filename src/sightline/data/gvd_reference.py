"""GVD's grounding reference `flickr30k_cleaned_class.json`: object words of each caption, their class and their box."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.data.caption_format import collect
from sightline.data.format import Format, Probe, Report
from sightline.data.grounding_records import GroundedPhoto, GroundedPrediction, GroundedSentence, GroundedWord
from sightline.data.json_records import Record, four_numbers, parse_each, read_object
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence
from sightline.errors import BoxError, CountError, DuplicateRecordError, MissingRecordError
from sightline.scene import Box


@dataclass(frozen=True)
class GroundingReference:
    """The class list, the photos by id, and the words of each lemma."""

    classes: tuple[str, ...]
    photos: dict[str, GroundedPhoto]
    lemmas: dict[str, Any]


def matches(probe: Probe) -> bool:
    """A JSON object with `process_idx` and its neighbours, or with `lemma2w`."""
    keys = ("process_idx", "process_clss", "process_bnd_box", "lemma2w")
    return probe.json_start == "{" and any(map(probe.has_key, keys))


def read_reference(path: Path, problems: Problems | None = None) -> GroundingReference:
    """Classes, photos and lemmas. Class indices of detectors count from this class list."""
    met = Problems() if problems is None else problems
    whole = read_object(path)
    classes = whole.texts("vocab")
    known = frozenset(classes)
    photos: dict[str, GroundedPhoto] = {}

    def add(image: Record) -> None:
        id = image.identity("image_id")
        if id in photos:
            raise DuplicateRecordError(f"image {id} appears twice", where=image.where, fix="merge the two entries")
        names = ("tokens", "process_clss", "process_idx", "process_bnd_box")
        size = _size(image)
        found = parse_captions(image.items("captions"), path, id, names, met, size)
        for name in {word.label for sentence in found for word in sentence.words} - known:
            raise MissingRecordError(f"`vocab` does not hold the class {name!r}", where=image.where)
        photos[id] = GroundedPhoto(id, found, size)

    for _ in parse_each(whole.items("annotations"), path, "annotations", met, add):
        pass
    return GroundingReference(classes, photos, whole.mapping("lemma2w") if whole.has("lemma2w") else {})


def parse_captions(
    values: list[Any],
    path: Path,
    photo: str,
    names: Sequence[str],
    problems: Problems,
    size: tuple[int, int] | None = None,
) -> tuple[GroundedSentence, ...]:
    """The captions of one photo; `names` are the keys of tokens, classes, word indices and boxes."""

    def parse(record: Record) -> GroundedSentence:
        tokens = record.texts(names[0])
        words = object_words(record, names[1:], tokens, size)
        return GroundedSentence(tokens, tuple(GroundedWord(word.index, word.label, (word.box,)) for word in words))

    return tuple(parse_each(values, path, f"image {photo}, captions", problems, parse))


def object_words(
    record: Record,
    names: Sequence[str],
    tokens: Sequence[str] | None = None,
    size: tuple[int, int] | None = None,
) -> tuple[GroundedPrediction, ...]:
    """The object words of one caption: classes, words and boxes, equally many, inside the sentence and the photo."""
    class_key, word_key, box_key = names
    classes, words, boxes = record.texts(class_key), record.items(word_key), record.items(box_key)
    if not len(classes) == len(words) == len(boxes):
        counts = f"{len(classes)} {class_key!r}, {len(words)} {word_key!r} and {len(boxes)} {box_key!r}"
        raise CountError(f"{counts} must be equally many", where=record.where)
    for word in words:
        if not isinstance(word, int) or isinstance(word, bool) or word < 0:
            raise record.error(f"{word_key!r} must hold word positions counted from 0, not {word!r}")
        if tokens is not None and word >= len(tokens):
            raise CountError(f"{word_key!r} names word {word}, the caption has {len(tokens)}", where=record.where)
    checked = [_box(box, f"{box_key!r}[{i}]", record, size) for i, box in enumerate(boxes)]
    return tuple(map(GroundedPrediction, words, classes, checked))


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """The captions as tokens."""
    photos = read_reference(path, problems).photos.values()
    return CaptionSet(tuple(map(plain_photo, photos)), str(path))


def plain_photo(photo: GroundedPhoto) -> CaptionedPhoto:
    """The photo with its captions as plain sentences."""
    sentences = tuple(Sentence(" ".join(caption.tokens), caption.tokens) for caption in photo.sentences)
    return CaptionedPhoto(photo.id, sentences, f"{photo.id}.jpg", photo.split, photo.size)


def inspect(path: Path) -> Report:
    """Counts of photos, captions, classes and grounded words."""
    reference, problems = collect(path, read_reference)
    photos = () if reference is None else tuple(reference.photos.values())
    return Report.of(
        path, FORMAT, counts_of(photos) | {"classes": len(reference.classes) if reference else 0}, problems
    )


def counts_of(photos: Sequence[GroundedPhoto]) -> dict[str, int | str]:
    """Photos, captions and object words, for reports."""
    return {
        "photos": len(photos),
        "captions": sum(len(photo.sentences) for photo in photos),
        "object words": sum(len(caption.words) for photo in photos for caption in photo.sentences),
    }


def _size(image: Record) -> tuple[int, int]:
    size = image.items("image_size")
    if len(size) != 2 or not all(re.fullmatch(r"0{0,9}[1-9]\d{0,8}", str(side), re.ASCII) for side in size):
        raise image.error(f"'image_size' must be [width, height], not {size}")
    return int(size[0]), int(size[1])


def _box(value: Any, name: str, record: Record, size: tuple[int, int] | None) -> Box:
    x1, y1, x2, y2 = four_numbers(value, name, record.where)
    if x2 < x1 or y2 < y1:
        raise BoxError(f"{name} is {value}", where=record.where, fix="boxes must be x1 y1 x2 y2 in pixels")
    # Up to one pixel beyond the border is taken as the border, as in scene.normalise_boxes.
    if size is not None and (min(x1, y1) < -1 or x2 > size[0] + 1 or y2 > size[1] + 1):
        raise BoxError(
            f"{name} is {value}, outside the {size[0]}×{size[1]} photo",
            where=record.where,
            fix="boxes must be x1 y1 x2 y2 in pixels of the original photo, and its size width, height",
        )
    return x1, y1, x2, y2


FORMAT = Format(
    "gvd-reference",
    "GVD grounding reference for Flickr30k (flickr30k_cleaned_class.json)",
    matches,
    inspect,
    captions=read,
)
