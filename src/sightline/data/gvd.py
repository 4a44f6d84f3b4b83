"""GVD's files for grounded captions of Flickr30k: reference, captions, splits, and submissions to its evaluation.

- `flickr30k_cleaned_class.json`: the object words of each reference caption, their class and their box.
- `cap_flickr30k.json`: for each image of `dic_flickr30k.json`, its captions with object words.
- `split_ids_*.json`: `{"train": ["id", …], "val": […], "test": […]}`.
- submissions: `{"results": {"<id>": [{"clss", "idx_in_sent", "bbox"}, …]}, "eval_mode": …, "external_data": {"used",
  "details"}}`; five sentences per image in GT mode (the references), one in gen mode (the generated caption).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.data.caption_format import plain_captions, record_format
from sightline.data.format import Summary
from sightline.data.json_records import (
    Record,
    check_numbers,
    describe,
    parse_each,
    read_list,
    read_object,
    report_repeated_keys,
)
from sightline.data.records import STRICT, GroundedPhoto, GroundedPrediction, GroundedSentence, GroundedWord, Problems
from sightline.data.talk import read_talk
from sightline.errors import BoxError, ConfigError, CountError, DataError, DuplicateRecordError, MissingRecordError
from sightline.files import write_json
from sightline.scene import Box

SPLITS = ("train", "val", "test", "training", "validation", "testing", "hidden_test")
SENTENCES = {"GT": 5, "gen": 1}  # of an image, in a submission of each mode
_SPLIT_START = re.compile(r'\s*\{\s*"(' + "|".join(SPLITS) + r')"\s*:\s*\[\s*("[^"]*"|\])')


def read_reference(path: Path, problems: Problems = STRICT) -> tuple[tuple[str, ...], dict[str, GroundedPhoto]]:
    """The class list, from which class indices of detectors count, and the photos by id."""
    record = read_object(path)
    classes = record.texts("vocab")
    photos: dict[str, GroundedPhoto] = {}

    def add(image: Record) -> None:
        id = image.identity("image_id")
        if id in photos:
            raise DuplicateRecordError(f"image {id} appears twice", where=image.where, fix="merge the two entries")
        size = _size(image)
        keys = ("tokens", "process_clss", "process_idx", "process_bnd_box")
        sentences = _sentences(image.items("captions"), path, id, keys, problems, size)
        for name in {word.label for sentence in sentences for word in sentence.words}.difference(classes):
            raise MissingRecordError(f"`vocab` does not hold the class {name!r}", where=image.where)
        photos[id] = GroundedPhoto(id, sentences, size)

    record.each("annotations", problems, add)
    return classes, photos


def _size(image: Record) -> tuple[int, int]:
    size = image.items("image_size")
    if len(size) != 2 or not all(re.fullmatch(r"0{0,9}[1-9]\d{0,8}", str(side), re.ASCII) for side in size):
        raise image.error(f"'image_size' must be [width, height], not {size}")
    return int(size[0]), int(size[1])


def read_gvd_captions(path: Path, problems: Problems = STRICT) -> list[GroundedPhoto]:
    """The photos of a `cap_…`; ids and splits come from the `dic_…` beside it."""
    entries = read_list(path)
    dictionary = path.with_name(path.name.replace("cap_", "dic_", 1))
    if dictionary == path or not dictionary.is_file():
        what = "the ids of these captions are in a dictionary that is not beside them"
        raise MissingRecordError(what, where=path, fix=f"add {dictionary.name}")
    images = read_talk(dictionary)[1].photos
    if len(images) != len(entries):
        what = f"{len(entries)} images here, {len(images)} in {dictionary}"
        raise CountError(what, where=path, fix="use files of one run")
    photos = []
    for position, (image, captions) in enumerate(zip(images, entries, strict=True)):
        with problems:
            if not isinstance(captions, list):
                what = f"a list of captions was expected, not {describe(captions)}"
                raise DataError(what, where=f"{path}, [{position}]")
            sentences = _sentences(captions, path, image.id, ("caption", "clss", "idx", "bbox"), problems, image.size)
            photos.append(GroundedPhoto(image.id, sentences, image.size, image.split))
    return photos


def _sentences(
    values: list[Any], path: Path, photo: str, keys: Sequence[str], problems: Problems, size: tuple[int, int] | None
) -> tuple[GroundedSentence, ...]:
    """The captions of one photo; `keys` are those of tokens, classes, word indices and boxes."""

    def parse(record: Record) -> GroundedSentence:
        tokens = record.texts(keys[0])
        words = _object_words(record, keys[1:], tokens, size)
        return GroundedSentence(tokens, tuple(GroundedWord(word.index, word.label, (word.box,)) for word in words))

    return tuple(parse_each(values, path, f"image {photo}, captions", problems, parse))


def _object_words(
    record: Record, keys: Sequence[str], tokens: Sequence[str] | None = None, size: tuple[int, int] | None = None
) -> tuple[GroundedPrediction, ...]:
    """The object words of one caption: classes, words and boxes, equally many, inside the sentence and the photo."""
    class_key, word_key, box_key = keys
    classes, words, boxes = record.texts(class_key), record.items(word_key), record.items(box_key)
    if not len(classes) == len(words) == len(boxes):
        counts = f"{len(classes)} {class_key!r}, {len(words)} {word_key!r} and {len(boxes)} {box_key!r}"
        raise CountError(f"{counts} must be equally many", where=record.where)
    for word in words:
        if type(word) is not int or word < 0:
            raise record.error(f"{word_key!r} must hold word positions counted from 0, not {word!r}")
        if tokens is not None and word >= len(tokens):
            raise CountError(f"{word_key!r} names word {word}, the caption has {len(tokens)}", where=record.where)
    checked = [_box(box, f"{box_key!r}[{i}]", record, size) for i, box in enumerate(boxes)]
    return tuple(map(GroundedPrediction, words, classes, checked))


def _box(value: Any, name: str, record: Record, size: tuple[int, int] | None) -> Box:
    x1, y1, x2, y2 = check_numbers(value, ("x1", "y1", "x2", "y2"), name, record.where)
    if x2 < x1 or y2 < y1:
        raise BoxError(f"{name} is {value}", where=record.where, fix="boxes must be x1 y1 x2 y2 in pixels")
    # Up to one pixel beyond the border is taken as the border, as in scene.normalise_boxes.
    if size is not None and (min(x1, y1) < -1 or x2 > size[0] + 1 or y2 > size[1] + 1):
        fix = "boxes must be x1 y1 x2 y2 in pixels of the original photo, and its size width, height"
        raise BoxError(f"{name} is {value}, outside the {size[0]}×{size[1]} photo", where=record.where, fix=fix)
    return x1, y1, x2, y2


def _count_photos(photos: Iterable[GroundedPhoto], **more: int) -> Summary:
    sentences = [photo.sentences for photo in photos]
    words = sum(len(caption.words) for captions in sentences for caption in captions)
    return {"photos": len(sentences), "captions": sum(map(len, sentences)), "object words": words, **more}, ()


def read_split(path: Path, problems: Problems = STRICT) -> dict[str, tuple[str, ...]]:
    """Split to ids; an id in two places is an error."""
    record = read_object(path)
    splits = {name: record.texts(name) for name in record.value}
    split_of: dict[str, str] = {}
    for name, ids in splits.items():
        for id in ids:
            if id in split_of:
                what = f"id {id} is in {split_of[id]} and in {name}"
                problems.report(DuplicateRecordError(what, where=path, fix="keep it in one split"))
            split_of[id] = name
    return splits


@dataclass(frozen=True)
class Submission:
    """Predictions by image id, a tuple of object words for each sentence."""

    results: Mapping[str, tuple[tuple[GroundedPrediction, ...], ...]]
    mode: str = "gen"  # or GT
    external_data: str = ""  # what else was learnt from, if anything

    def __post_init__(self) -> None:
        if self.mode not in SENTENCES:
            what = f"the mode {self.mode!r} is neither GT nor gen"
            raise ConfigError(what, fix="GT grounds references, gen captions")


def read_submission(path: Path, problems: Problems = STRICT) -> Submission:
    """A checked submission. Where `eval_mode` is missing, the number of sentences tells it."""
    record = read_object(path)
    results = record.mapping("results")
    report_repeated_keys(path, problems)
    first: Any = next(iter(results.values()), [])
    likely = "gen" if isinstance(first, list) and len(first) == 1 else "GT"
    mode = record.text("eval_mode") if record.has("eval_mode") else likely
    if mode not in SENTENCES:
        raise record.error(f"'eval_mode' is {mode!r}", fix="write GT (references grounded) or gen (captions generated)")
    checked = {}
    for id, sentences in results.items():
        with problems:
            checked[id] = _check_result(id, sentences, mode, path, problems)
    external = Record(record.mapping("external_data") if record.has("external_data") else {}, path, "external_data")
    return Submission(checked, mode, external.text_or_none("details") or "")


def write_submission(path: Path, submission: Submission) -> int:
    """Write a submission, checked like one that is read; returns the number of images."""
    results = {}
    for id, sentences in submission.results.items():
        results[id] = [
            {
                "clss": [word.label for word in sentence],
                "idx_in_sent": [word.index for word in sentence],
                "bbox": [list(word.box) for word in sentence],
            }
            for sentence in sentences
        ]
        _check_result(id, results[id], submission.mode, path, STRICT)
    external = {"used": bool(submission.external_data), "details": submission.external_data}
    write_json(path, {"results": results, "eval_mode": submission.mode, "external_data": external})
    return len(results)


def _check_result(
    id: str, sentences: Any, mode: str, path: Path, problems: Problems
) -> tuple[tuple[GroundedPrediction, ...], ...]:
    where = f"{path}, image {id}"
    if not isinstance(sentences, list):
        raise DataError(f"a list of sentences was expected, not {describe(sentences)}", where=where)
    if len(sentences) != SENTENCES[mode]:
        raise CountError(f"{len(sentences)} sentences, {mode} mode has {SENTENCES[mode]} per image", where=where)
    keys = ("clss", "idx_in_sent", "bbox")
    return tuple(parse_each(sentences, path, f"image {id}", problems, lambda record: _object_words(record, keys)))


def _count_submission(submission: Submission) -> Summary:
    words = sum(len(sentence) for sentences in submission.results.values() for sentence in sentences)
    return {"photos": len(submission.results), "object words": words, "mode": submission.mode}, ()


_REFERENCE_KEYS = ("process_idx", "process_clss", "process_bnd_box", "lemma2w")
_SUBMISSION_KEYS = ("idx_in_sent", "eval_mode", "external_data")

REFERENCE = record_format(
    "gvd-reference",
    "GVD grounding reference for Flickr30k (flickr30k_cleaned_class.json)",
    lambda probe: probe.json_start == "{" and probe.has_any_key(*_REFERENCE_KEYS),
    read_reference,
    lambda reference: _count_photos(reference[1].values(), classes=len(reference[0])),
    captions=lambda path: plain_captions(read_reference(path)[1].values(), path),
)
CAPTIONS = record_format(
    "gvd-captions",
    "GVD captions with object words (cap_flickr30k.json, beside dic_flickr30k.json)",
    lambda probe: probe.json_start == "[" and probe.has_key("caption", "clss", "idx"),
    read_gvd_captions,
    _count_photos,
    captions=lambda path: plain_captions(read_gvd_captions(path), path),
)
SPLIT = record_format(
    "split-ids",
    "Ids of the photos of each split (split_ids_*.json)",
    lambda probe: probe.text is not None and _SPLIT_START.match(probe.text) is not None,
    read_split,
    lambda splits: ({f"photos of split {name}": len(ids) for name, ids in splits.items()}, ()),
)
SUBMISSION = record_format(
    "grounding-submission",
    "Predicted boxes of object words, for GVD's grounding evaluation",
    lambda probe: probe.json_start == "{" and probe.has_key("results") and probe.has_any_key(*_SUBMISSION_KEYS),
    read_submission,
    _count_submission,
)
