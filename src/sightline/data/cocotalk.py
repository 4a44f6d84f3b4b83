"""The "talk" pair of neuraltalk2 and self-critical: `cocotalk.json` (words, photos) and `cocotalk_label.h5` (captions).

Word ids count from 1 (0 is begin, end and padding), `UNK` comes last. POS-SCAN's `flickrtalk.json` and GVD's
`dic_flickr30k.json` add lemmas and detector classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sightline.data.caption_format import caption_set, collect
from sightline.data.format import Format, Probe, Report
from sightline.data.json_records import Record, parse_each, read_object, told
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence
from sightline.data.talk_labels import Labels, is_label_file, read_labels
from sightline.errors import CountError, DataError, MissingExtraError, MissingRecordError


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


def matches(probe: Probe) -> bool:
    """A JSON object with `ix_to_word`, or whose images have a `file_path`; or the label file beside it."""
    if probe.json_start == "{":
        images_first = probe.has_key("images", "file_path") and not probe.has_key("sentences")
        return probe.has_key("ix_to_word") or probe.has_key("wtol") or probe.has_key("wtod") or images_first
    return probe.head.startswith(b"\x89HDF") and is_label_file(probe.path)


def label_file(path: Path) -> Path | None:
    """The label file beside `<stem>.json`: `<stem>_label.h5`, or the old `<stem>.h5` with pixels in it."""
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    beside = (path.with_name(stem + ending) for ending in ("_label.h5", ".h5"))
    return next((candidate for candidate in beside if candidate.is_file() and is_label_file(candidate)), None)


def word_file(labels: Path) -> Path | None:
    """The json beside a label file."""
    stem = labels.stem.removesuffix("_label")
    beside = (labels.with_name(stem + ending) for ending in (".json", ".json.gz"))
    return next((candidate for candidate in beside if candidate.is_file()), None)


def read_talk(path: Path, labels: Path | None = None, problems: Problems | None = None) -> Talk:
    """Words, photos and, where `labels` is given or lies beside `path`, their captions."""
    met = Problems() if problems is None else problems
    whole = read_object(path)
    words = _words(whole)
    images = whole.items("images")
    photos: Sequence[CaptionedPhoto] = tuple(parse_each(images, path, "images", met, _photo))
    bpe = whole.text("bpe") if whole.has("bpe") else None
    label_path = labels or label_file(path)
    if label_path is not None:
        found = read_labels(label_path, met)
        if len(found.start) != len(images):
            raise CountError(
                f"{len(found.start)} photos have labels in {found.path}, {len(images)} are here", where=path
            )
        if found.sound and len(photos) == len(images):
            photos = tuple(_captioned(photos, words, found, bpe is not None, met))
    classes = _table(whole, "wtod", int, "a class index")
    return Talk(words, caption_set(photos, path, met), _table(whole, "wtol", str, "text"), classes, bpe)


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """The photos with captions decoded from the label file. `path` is either file of the pair."""
    return _read_either(path, Problems() if problems is None else problems).captions


def inspect(path: Path) -> Report:
    """Counts of words, photos and captions."""
    try:
        return _inspect(path)
    except MissingExtraError as error:
        return Report.of(path, FORMAT, {}, notes=[str(error)])


def _inspect(path: Path) -> Report:
    if _is_json(path) or word_file(path) is not None:
        talk, problems = collect(path, _read_either)
        alone = _is_json(path) and label_file(path) is None
        notes = ["no label file is beside it: words and photos only"] if alone else []
        return Report.of(path, FORMAT, {} if talk is None else _counts(talk), problems, notes)
    labels, problems = collect(path, read_labels)
    rows = {} if labels is None else {"photos": len(labels.start), "captions": len(labels.rows)}
    return Report.of(path, FORMAT, dict(rows), problems, ["the json with the words is not beside it"])


def _read_either(path: Path, problems: Problems) -> Talk:
    if _is_json(path):
        return read_talk(path, problems=problems)
    words = word_file(path)
    if words is None:
        raise MissingRecordError(
            "the json with the words of these labels is not beside them",
            where=path,
            fix=f"put {path.stem.removesuffix('_label')}.json into the same folder",
        )
    return read_talk(words, path, problems)


def _is_json(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".json")


def _counts(talk: Talk) -> dict[str, int | str]:
    counts: dict[str, int | str] = {"words": len(talk.words), "photos": len(talk.captions)}
    counts["captions"] = sum(1 for _ in talk.captions.sentences())
    counts |= {f"photos of split {name}": count for name, count in talk.captions.splits().items()}
    tables = (("lemmas", talk.lemmas), ("words of detector classes", talk.classes))
    return counts | {name: len(table) for name, table in tables if table}


def _words(whole: Record) -> tuple[str, ...]:
    table = whole.mapping("ix_to_word")
    for id in range(1, len(table) + 1):
        if not isinstance(table.get(str(id)), str):
            raise CountError(
                f"`ix_to_word` has {len(table)} words, but none under {str(id)!r}",
                where=whole.where,
                fix="ids must count from 1 without gaps",
            )
    return tuple(table[str(id)] for id in range(1, len(table) + 1))


def _photo(image: Record) -> CaptionedPhoto:
    file = image.text("file_path") if image.has("file_path") else None
    id = image.identity("id") if image.has("id") or file is None else file
    return CaptionedPhoto(id, (), file, image.text("split") if image.has("split") else None, image.size())


def _table(whole: Record, key: str, kind: type, expected: str) -> dict[str, Any]:
    if not whole.has(key):
        return {}
    table = whole.mapping(key)
    for word, value in table.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise whole.error(f"{key!r}[{word!r}] must be {expected}, not {told(value)}")
    return table


def _captioned(
    photos: Sequence[CaptionedPhoto], words: tuple[str, ...], labels: Labels, byte_pairs: bool, problems: Problems
) -> Iterator[CaptionedPhoto]:
    largest = labels.rows.max(axis=1, initial=0)
    for row in (largest > len(words)).nonzero()[0]:
        problems.report(
            DataError(
                f"row {row + 1} holds word {largest[row]}, the json has {len(words)} words",
                where=labels.path,
                fix="use the json and the labels of the same prepro_labels.py run",
            )
        )
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
    matches,
    inspect,
    captions=read,
)
