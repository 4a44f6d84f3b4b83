"""The "talk" pair of neuraltalk2 and self-critical: `cocotalk.json` (words, photos) and `cocotalk_label.h5` (captions).

Word ids count from 1 (0 is begin, end and padding), `UNK` comes last. POS-SCAN's `flickrtalk.json` and GVD's
`dic_flickr30k.json` add lemmas and detector classes.

The label file has `labels` (M, L) zero padded; `label_start_ix`, `label_end_ix` (N,) rows of each photo, from 1, both
inclusive; `label_length` (M,). POS-SCAN adds `box_ind`: (M, L) the best region of a word (-1: none), or (M, L, n)
IoUs. Old Lua files hold `images` (N, 3, 256, 256) as well, which are not read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.data.caption_format import caption_set, count_captions
from sightline.data.format import Format, Probe, Summary
from sightline.data.hdf5_features import damage, dataset_of, has_name, open_hdf5
from sightline.data.json_records import Record, describe, read_object
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems, Sentence
from sightline.errors import CountError, DataError, MissingExtraError, MissingRecordError
from sightline.files import existing_path

Integers = npt.NDArray[np.integer[Any]]

_DIMENSIONS = {"labels": 2, "label_start_ix": 1, "label_end_ix": 1, "label_length": 1}


@dataclass(frozen=True, eq=False)
class Labels:
    """The four arrays, checked. `sound` is False where a collecting read met a problem: then do not decode."""

    rows: Integers
    start: Integers
    end: Integers
    length: Integers
    path: Path
    sound: bool = True


def _is_label_file(path: Path) -> bool:
    """Whether an HDF5 file holds labels, or says so in its name."""
    if path.name.endswith("_label.h5"):
        return True
    with contextlib.suppress(DataError, MissingExtraError), _open(path) as file:
        return has_name(file, "label_start_ix")
    return False


def read_labels(path: Path, problems: Problems = STRICT) -> Labels:
    """The labels of `path`; rows of two photos or of none, and lengths that are not true, are CountErrors."""
    before = problems.total
    with _open(path) as file:
        rows, start, end, length = (_integers(file, name, path) for name in _DIMENSIONS)
        boxes = dataset_of(file, "box_ind", path)
        box_shape = None if boxes is None else boxes.shape
    if len(length) != len(rows):
        raise CountError(f"{len(rows)} rows of `labels`, {len(length)} of `label_length`", where=path)
    if len(start) != len(end):
        raise CountError(f"{len(start)} of `label_start_ix`, {len(end)} of `label_end_ix`", where=path)
    if box_shape is not None and box_shape[:2] != rows.shape:
        raise CountError(f"`box_ind` has shape {box_shape}, `labels` {rows.shape}", where=path)
    _check_ranges(path, start, end, len(rows), problems)
    inside = np.arange(rows.shape[1]) < length[:, None]  # (M, L)
    for row in np.flatnonzero(((rows != 0) != inside).any(axis=1) | (length > rows.shape[1])):
        what = f"row {row + 1} has `label_length` {length[row]} and {np.count_nonzero(rows[row])} words"
        fix = "labels must be words followed by zeros, and the length their number"
        problems.report(CountError(what, where=path, fix=fix))
    return Labels(rows, start, end, length, path, sound=problems.total == before)


def read_box_ind(path: Path, first: int, last: int) -> npt.NDArray[np.floating[Any]]:
    """Rows `first` to `last` (from 1, inclusive, like a photo's range) of POS-SCAN's `box_ind`."""
    with _open(path) as file:
        boxes = dataset_of(file, "box_ind", path)
        if boxes is None:
            raise DataError("there is no dataset 'box_ind'", where=path, fix="use POS-SCAN's grounded label file")
        found: npt.NDArray[np.floating[Any]] = boxes[first - 1 : last]
        return found


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    with open_hdf5(existing_path(path)) as file, damage(path):
        yield file


def _integers(file: Any, name: str, path: Path) -> Integers:
    stored = dataset_of(file, name, path)
    if stored is None:
        raise DataError(f"there is no dataset {name!r}", where=path, fix="run prepro_labels.py again")
    found = np.asarray(stored[()])
    if found.dtype.kind not in "iu" or found.ndim != _DIMENSIONS[name]:
        expected = f"whole numbers in {_DIMENSIONS[name]} dimensions were expected"
        what = f"`{name}` has type {found.dtype} and shape {found.shape}, {expected}"
        raise DataError(what, where=path, fix="run prepro_labels.py again")
    return found.astype(np.int64)


def _check_ranges(path: Path, start: Integers, end: Integers, count: int, problems: Problems) -> None:
    ends = np.concatenate([[0], end])
    previous, last = ends[:-1], int(ends[-1])
    fix = "rows count from 1, both ends belong to the photo, and the next photo goes on where it ends"
    for image in np.flatnonzero((start != previous + 1) | (end < start - 1) | (end > count)):
        what = f"photo {image} has the rows {start[image]} to {end[image]} of {count}, after row {previous[image]}"
        problems.report(CountError(what, where=path, fix=fix))
    if last < count:
        fix = "the last photo ends with the last row: `label_end_ix` is inclusive"
        problems.report(CountError(f"the rows {last + 1} to {count} belong to no photo", where=path, fix=fix))


@dataclass(frozen=True)
class Talk:
    """A vocabulary and the photos that were encoded with it.

    Attributes:
        words: the words in id order; word `i` of this tuple has id `i + 1`.
        captions: the photos; without sentences where no label file was read. A sentence's id is its row in the label
            file, counted from 1, which is also its row in POS-SCAN's `box_ind`.
        lemmas: word to lemma (`wtol`); {} where the file has none.
        classes: word to 0-based detector class (`wtod`); {} where the file has none.
        bpe: the merge codes, where words are byte pairs.
    """

    words: tuple[str, ...]
    captions: CaptionSet
    lemmas: dict[str, str]
    classes: dict[str, int]
    bpe: str | None = None


def _matches(probe: Probe) -> bool:
    """A JSON object with `ix_to_word`, or whose images have a `file_path`; or the label file beside it."""
    if probe.json_start == "{":
        images_first = probe.has_key("images", "file_path") and not probe.has_key("sentences")
        return probe.has_key("ix_to_word") or probe.has_key("wtol") or probe.has_key("wtod") or images_first
    return probe.head.startswith(b"\x89HDF") and _is_label_file(probe.path)


def _label_file(path: Path) -> Path | None:
    """The label file beside `<stem>.json`: `<stem>_label.h5`, or the old `<stem>.h5` with pixels in it."""
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    beside = (path.with_name(stem + ending) for ending in ("_label.h5", ".h5"))
    return next((candidate for candidate in beside if candidate.is_file() and _is_label_file(candidate)), None)


def _word_file(labels: Path) -> Path | None:
    beside = (labels.with_name(labels.stem.removesuffix("_label") + ending) for ending in (".json", ".json.gz"))
    return next((candidate for candidate in beside if candidate.is_file()), None)


def read_talk(path: Path, labels: Path | None = None, problems: Problems = STRICT) -> Talk:
    """Words, photos and, where `labels` is given or lies beside `path`, their captions."""
    whole = read_object(path)
    words = _words(whole)
    images = whole.items("images")
    photos: Sequence[CaptionedPhoto] = tuple(whole.each("images", problems, _photo))
    bpe = whole.text_or_none("bpe")
    label_path = labels or _label_file(path)
    if label_path is not None:
        found = read_labels(label_path, problems)
        if len(found.start) != len(images):
            what = f"{len(found.start)} photos have labels in {found.path}, {len(images)} are here"
            raise CountError(what, where=path)
        if found.sound and len(photos) == len(images):
            photos = tuple(_captioned(photos, words, found, bpe is not None, problems))
    classes = _table(whole, "wtod", int, "a class index")
    return Talk(words, caption_set(photos, path, problems), _table(whole, "wtol", str, "text"), classes, bpe)


def read(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """The photos with captions decoded from the label file. `path` is either file of the pair."""
    return _read_either(path, problems).captions


def _survey(path: Path, problems: Problems) -> Summary:
    try:
        if not _is_json(path) and _word_file(path) is None:
            labels = read_labels(path, problems)
            counts = {"photos": len(labels.start), "captions": len(labels.rows)}
            return {**counts}, ["the json with the words is not beside it"]
        talk = _read_either(path, problems)
    except MissingExtraError as error:
        return {}, [str(error)]
    tables = (("lemmas", talk.lemmas), ("words of detector classes", talk.classes))
    sizes = {name: len(table) for name, table in tables if table}
    alone = _is_json(path) and _label_file(path) is None
    notes = ["no label file is beside it: words and photos only"] if alone else []
    return {"words": len(talk.words), **count_captions(talk.captions)[0], **sizes}, notes


def _read_either(path: Path, problems: Problems) -> Talk:
    if _is_json(path):
        return read_talk(path, problems=problems)
    words = _word_file(path)
    if words is None:
        fix = f"put {path.stem.removesuffix('_label')}.json into the same folder"
        what = "the json with the words of these labels is not beside them"
        raise MissingRecordError(what, where=path, fix=fix)
    return read_talk(words, path, problems)


def _is_json(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".json")


def _words(whole: Record) -> tuple[str, ...]:
    table = whole.mapping("ix_to_word")
    for id in range(1, len(table) + 1):
        if not isinstance(table.get(str(id)), str):
            what = f"`ix_to_word` has {len(table)} words, but none under {str(id)!r}"
            raise CountError(what, where=whole.where, fix="ids must count from 1 without gaps")
    return tuple(table[str(id)] for id in range(1, len(table) + 1))


def _photo(image: Record) -> CaptionedPhoto:
    file = image.text_or_none("file_path")
    id = image.identity("id") if image.has("id") or file is None else file
    return CaptionedPhoto(id, (), file, image.text_or_none("split"), image.size())


def _table(whole: Record, key: str, kind: type, expected: str) -> dict[str, Any]:
    if not whole.has(key):
        return {}
    table = whole.mapping(key)
    for word, value in table.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise whole.error(f"{key!r}[{word!r}] must be {expected}, not {describe(value)}")
    return table


def _captioned(
    photos: Sequence[CaptionedPhoto], words: tuple[str, ...], labels: Labels, byte_pairs: bool, problems: Problems
) -> Iterator[CaptionedPhoto]:
    largest = labels.rows.max(axis=1, initial=0)
    for row in (largest > len(words)).nonzero()[0]:
        what = f"row {row + 1} holds word {largest[row]}, the json has {len(words)} words"
        fix = "use the json and the labels of the same prepro_labels.py run"
        problems.report(DataError(what, where=labels.path, fix=fix))
    if largest.max(initial=0) > len(words):
        return
    table = ("", *words)
    rows, lengths = labels.rows.tolist(), labels.length.tolist()
    for photo, start, end in zip(photos, labels.start.tolist(), labels.end.tolist(), strict=True):
        sentences = []
        for row in range(start - 1, end):
            tokens = tuple(table[id] for id in rows[row][: lengths[row]])
            text = " ".join(tokens)
            sentences.append(Sentence(text.replace("@@ ", "") if byte_pairs else text, tokens, id=str(row + 1)))
        yield replace(photo, sentences=tuple(sentences))


FORMAT = Format(
    "cocotalk",
    "Neuraltalk2 / self-critical words and labels (cocotalk.json with cocotalk_label.h5, flickrtalk, dic_flickr30k)",
    _matches,
    _survey,
    captions=read,
)
