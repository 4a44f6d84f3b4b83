"""The "talk" pair of neuraltalk2 and self-critical: `cocotalk.json` (words, photos) and `cocotalk_label.h5` (captions).

Word ids count from 1 (0 is begin, end and padding), `UNK` comes last. POS-SCAN's `flickrtalk.json` and GVD's
`dic_flickr30k.json` add lemmas and detector classes, which are not read.

The label file has `labels` (M, L) zero padded; `label_start_ix`, `label_end_ix` (N,) rows of each photo, from 1, both
inclusive; `label_length` (M,). POS-SCAN's boxes of words and the pixels in old Lua files are not read.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.data.caption_format import caption_set, count_captions
from sightline.data.format import Format, Probe, Summary
from sightline.data.hdf5_features import HDF5_MAGIC, Hdf5File
from sightline.data.json_records import Record, read_object
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems, Sentence
from sightline.errors import CountError, DataError, MissingExtraError, MissingRecordError, about
from sightline.files import existing_path

Integers = npt.NDArray[np.integer[Any]]

_DIMENSIONS = {"labels": 2, "label_start_ix": 1, "label_end_ix": 1, "label_length": 1}  # of the arrays that are read


@dataclass(frozen=True, eq=False)
class Labels:
    """The four arrays, checked."""

    rows: Integers
    start: Integers
    end: Integers
    length: Integers
    path: Path


def read_labels(path: Path, problems: Problems = STRICT) -> Labels:
    """The labels of `path`; rows of two photos or of none, and lengths that are not true, are CountErrors."""
    file = Hdf5File(existing_path(path))
    with about(path):
        rows, start, end, length = (_integers(file, name) for name in _DIMENSIONS)
        if len(length) != len(rows):
            raise CountError(f"{len(rows)} rows of `labels`, {len(length)} of `label_length`")
        if len(start) != len(end):
            raise CountError(f"{len(start)} of `label_start_ix`, {len(end)} of `label_end_ix`")
    ends = np.concatenate([[0], end])
    previous, last, count = ends[:-1], int(ends[-1]), len(rows)
    fix = "rows count from 1, both ends belong to the photo, and the next photo goes on where it ends"
    for image in np.flatnonzero((start != previous + 1) | (end < start - 1) | (end > count)):
        what = f"photo {image} has the rows {start[image]} to {end[image]} of {count}, after row {previous[image]}"
        problems.report(CountError(what, where=path, fix=fix))
    if last < count:
        fix = "the last photo ends with the last row: `label_end_ix` is inclusive"
        problems.report(CountError(f"the rows {last + 1} to {count} belong to no photo", where=path, fix=fix))
    inside = np.arange(rows.shape[1]) < length[:, None]  # (M, L)
    for row in np.flatnonzero(((rows != 0) != inside).any(axis=1) | (length > rows.shape[1])):
        what = f"row {row + 1} has `label_length` {length[row]} and {np.count_nonzero(rows[row])} words"
        fix = "labels must be words followed by zeros, and the length their number"
        problems.report(CountError(what, where=path, fix=fix))
    return Labels(rows, start, end, length, path)


def _integers(file: Hdf5File, name: str) -> Integers:
    array = file.read(name)
    if array.dtype.kind not in "iu" or array.ndim != _DIMENSIONS[name]:
        expected = f"whole numbers in {_DIMENSIONS[name]} dimensions were expected"
        what = f"`{name}` has type {array.dtype} and shape {array.shape}, {expected}"
        raise DataError(what, fix="run prepro_labels.py again")
    return array.astype(np.int64)


def read_talk(path: Path, problems: Problems = STRICT) -> tuple[tuple[str, ...], CaptionSet]:
    """The words, of which word `i` has id `i + 1`, and the photos that were encoded with them, with their captions
    where there are labels: a sentence's id is its row there, counted from 1. `path` is either file of the pair.
    """
    word_path, label_path = _pair(path)
    if word_path is None:
        fix = f"put {path.stem.removesuffix('_label')}.json into the same folder"
        what = "the json with the words of these labels is not beside them"
        raise MissingRecordError(what, where=path, fix=fix)
    record = read_object(word_path)
    words = _words(record)
    byte_pairs = record.text_or_none("bpe") is not None
    photos: Sequence[CaptionedPhoto] = record.each("images", problems, _photo)
    count = len(record.items("images"))
    if label_path is not None:
        before = problems.total
        labels = read_labels(label_path, problems)
        if len(labels.start) != count:
            what = f"{len(labels.start)} photos have labels in {label_path}, {count} are here"
            raise CountError(what, where=word_path)
        if problems.total == before and len(photos) == count:  # labels with problems may name rows that are not there
            photos = tuple(_decode(photos, words, labels, byte_pairs, problems))
    return words, caption_set(photos, word_path, problems)


def _pair(path: Path) -> tuple[Path | None, Path | None]:
    """The json with the words and the file of labels, one of which is `path`; None where the other is not beside it.

    Labels are `<stem>_label.h5`, or the old `<stem>.h5` with pixels in it.
    """
    if path.name.endswith((".json", ".json.gz")):
        stem = path.name.removesuffix(".gz").removesuffix(".json")
        beside = (path.with_name(stem + ending) for ending in ("_label.h5", ".h5"))
        return path, next((file for file in beside if file.is_file() and _is_label_file(file)), None)
    stem = path.stem.removesuffix("_label")
    beside = (path.with_name(stem + ending) for ending in (".json", ".json.gz"))
    return next((file for file in beside if file.is_file()), None), path


def _is_label_file(path: Path) -> bool:
    """Whether an HDF5 file holds labels, or says so in its name."""
    if path.name.endswith("_label.h5"):
        return True
    with contextlib.suppress(DataError, MissingExtraError):
        return Hdf5File(path).has("label_start_ix")
    return False


def _words(record: Record) -> tuple[str, ...]:
    table = record.mapping("ix_to_word")
    for id in range(1, len(table) + 1):
        if not isinstance(table.get(str(id)), str):
            what = f"`ix_to_word` has {len(table)} words, but none under {str(id)!r}"
            raise CountError(what, where=record.where, fix="ids must count from 1 without gaps")
    return tuple(table[str(id)] for id in range(1, len(table) + 1))


def _photo(image: Record) -> CaptionedPhoto:
    file = image.text_or_none("file_path")
    id = image.identity("id") if image.has("id") or file is None else file
    return CaptionedPhoto(id, (), file, image.text_or_none("split"), image.size())


def _decode(
    photos: Sequence[CaptionedPhoto], words: tuple[str, ...], labels: Labels, byte_pairs: bool, problems: Problems
) -> Iterator[CaptionedPhoto]:
    """The photos with the captions that the labels are the word ids of."""
    largest = labels.rows.max(axis=1, initial=0)
    for row in np.flatnonzero(largest > len(words)).tolist():
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


def _survey(path: Path, problems: Problems) -> Summary:
    word_path, label_path = _pair(path)
    try:
        if word_path is None:
            labels = read_labels(path, problems)
            counts: dict[str, int | str] = {"photos": len(labels.start), "captions": len(labels.rows)}
            return counts, ["the json with the words is not beside it"]
        words, captions = read_talk(path, problems)
    except MissingExtraError as error:
        return {}, [str(error)]
    notes = ["no label file is beside it: words and photos only"] if label_path is None else []
    return {"words": len(words), **count_captions(captions)[0]}, notes


def _matches(probe: Probe) -> bool:
    """A JSON object with `ix_to_word`, or whose images have a `file_path`; or the label file beside it."""
    if probe.json_start == "{":
        images_first = probe.has_key("images", "file_path") and not probe.has_key("sentences")
        return images_first or probe.has_any_key("ix_to_word", "wtol", "wtod")
    return probe.head.startswith(HDF5_MAGIC) and _is_label_file(probe.path)


FORMAT = Format(
    "cocotalk",
    "Neuraltalk2 / self-critical words and labels (cocotalk.json with cocotalk_label.h5, flickrtalk, dic_flickr30k)",
    _matches,
    _survey,
    captions=lambda path: read_talk(path)[1],
)
