"""Captions in JSON: of Karpathy's splits and SentiCap, LAVIS and BLIP, neuraltalk2, CLIPScore."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from sightline.data.caption_format import (
    caption_format,
    caption_set,
    check_any,
    count_captions,
    each_with_caption,
    join_rows,
    photo_of,
    sentence_numbers,
)
from sightline.data.format import Probe, Summary
from sightline.data.gvd import SPLITS
from sightline.data.json_records import Record, json_id, read_each, read_object, report_repeated_keys
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption
from sightline.errors import CountError, DuplicateRecordError
from sightline.files import write_json
from sightline.text.vocabulary import split_plain

SENTIMENTS = {1: "positive", 0: "negative"}  # by the number that SentiCap stores


def read_karpathy(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """Photos with captions, tokens and splits. The id is `cocoid` where there is one, else `imgid`."""

    def photo(image: Record) -> CaptionedPhoto:
        id = image.identity("cocoid" if image.has("cocoid") else "imgid")
        parsed = _photo(image, id, problems, lambda record: _sentence(record, problems))
        entries = image.items("sentences")
        ids = image.items("sentids") if image.has("sentids") else None
        if ids is not None and len(ids) != len(entries):
            what = f"`sentids` lists {len(ids)} sentences, `sentences` holds {len(entries)}"
            raise CountError(what, where=image.where, fix="make the two agree")
        for entry, own in zip(entries, ids or (), strict=False):
            if isinstance(entry, dict) and entry.get("sentid", own) != own:
                what = "`sentids` and the `sentid` of `sentences` differ"
                raise CountError(what, where=image.where, fix="make the two agree")
        check_any(id, entries, path, problems)
        return replace(parsed, size=image.size())

    return caption_set(read_object(path).each("images", problems, photo), path, problems)


def read_senticap(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """Every photo once, though one with both sentiments is listed twice.

    A sentence's id is `<imgid>/<positive|negative>/<k>`.
    """

    def photo(image: Record) -> CaptionedPhoto:
        id = image.identity("imgid")

        def sentence(record: Record) -> Sentence:
            sentiment = SENTIMENTS.get(record.integer("sentiment"))
            if sentiment is None:
                raise record.error("'sentiment' must be 1 (positive) or 0 (negative)")
            return replace(_sentence(record, problems), id=f"{id}/{sentiment}/{record.index}")

        return _photo(image, id, problems, sentence)

    return join_rows(read_object(path).each("images", problems, photo), path)


def _photo(image: Record, id: str, problems: Problems, sentence: Callable[[Record], Sentence]) -> CaptionedPhoto:
    sentences = image.each("sentences", problems, sentence, f"image {id}, sentences")
    folder, name = image.text_or_none("filepath"), image.text_or_none("filename")
    file = f"{folder}/{name}" if folder is not None and name is not None else name
    return CaptionedPhoto(id, tuple(sentences), file, image.text_or_none("split"))


def _sentence(record: Record, problems: Problems) -> Sentence:
    """`tokens`, `raw` (the joined tokens where a file leaves it out) and `sentid`."""
    tokens = record.texts("tokens")
    text = record.text("raw") if record.has("raw") else " ".join(tokens)
    id = record.identity("sentid") if record.has("sentid") else None
    return Sentence(check_caption(text, record, problems), tokens, id=id)


def write_karpathy(path: Path, captions: CaptionSet) -> int:
    """Write photos so that `read_karpathy` gives the same ids, files, splits, texts and tokens.

    The id becomes `cocoid`, `imgid` counts. Sentences without tokens get Karpathy's: lower case, no punctuation.
    """
    numbers = sentence_numbers(captions)
    images = []
    for position, photo in enumerate(each_with_caption(captions)):
        sentences = [
            {
                "tokens": sentence.tokens or split_plain(sentence.text),
                "raw": sentence.text,
                "imgid": position,
                "sentid": next(numbers),
            }
            for sentence in photo.sentences
        ]
        image: dict[str, Any] = {"imgid": position, "cocoid": json_id(photo.id), "sentences": sentences}
        image["sentids"] = [sentence["sentid"] for sentence in sentences]
        if photo.file is not None:
            folder, slash, image["filename"] = photo.file.rpartition("/")
            image |= {"filepath": folder} if slash else {}
        if photo.split is not None:
            image["split"] = photo.split
        if photo.size is not None:
            image["width"], image["height"] = photo.size
        images.append(image)
    write_json(path, {"images": images, "dataset": "sightline"})
    return len(images)


def sentiment_of(sentence: Sentence) -> str:
    """`positive` or `negative`, for a sentence that `read_senticap` gave."""
    return (sentence.id or "").split("/")[1]


def sentiment_words(path: Path) -> dict[str, frozenset[str]]:
    """The words that make sentences `positive` or `negative`.

    SentiCap marks pairs of adjective and noun. A word makes a sentence positive if, of all times that it occurs in
    positive ones, it is more often than not the marked adjective.
    """
    marked: dict[str, Counter[str]] = {name: Counter() for name in SENTIMENTS.values()}
    counted: dict[str, Counter[str]] = {name: Counter() for name in SENTIMENTS.values()}

    def add(sentence: Record) -> None:
        tokens, marks = sentence.texts("tokens"), [*sentence.items("word_sentiment"), 0]
        sentiment = SENTIMENTS.get(sentence.integer("sentiment"), "negative")
        pairs = zip(tokens, pairwise(marks), strict=False)
        marked[sentiment].update(token for token, (mark, following) in pairs if mark and following)
        counted[sentiment].update(tokens)

    read_object(path).each("images", STRICT, lambda image: image.each("sentences", STRICT, add, image.where))
    return {
        name: frozenset(word for word, count in words.items() if 2 * count > counted[name][word])
        for name, words in marked.items()
    }


def _count_sentiments(captions: CaptionSet) -> Summary:
    counts, notes = count_captions(captions)
    sentiments = Counter(map(sentiment_of, captions.sentences()))
    return counts | {f"{name} captions": number for name, number in sentiments.items()}, notes


KARPATHY = caption_format(
    "karpathy",
    "Karpathy's split of COCO or Flickr: captions, tokens and splits (dataset_*.json)",
    lambda probe: (
        probe.json_start == "{" and probe.has_any_key("sentences", "sentids") and not probe.has_key("word_sentiment")
    ),
    read_karpathy,
    write_karpathy,
)
SENTICAP = caption_format(
    "senticap",
    "SentiCap: COCO captions with a positive or negative sentiment",
    lambda probe: probe.json_start == "{" and probe.has_key("sentences", "word_sentiment"),
    read_senticap,
    count=_count_sentiments,
)


def read_blip(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """`[{"image", "caption": text or list, "image_id"}, …]`; the id is `image` where there is no `image_id`.

    Photos come in order of first appearance, and may have several rows.
    """
    files: dict[str, str] = {}

    def photo(record: Record) -> CaptionedPhoto:
        file, texts = record.text("image"), record.one_or_many("caption")
        id = record.identity("image_id") if record.has("image_id") else file
        if files.setdefault(id, file) != file:
            raise DuplicateRecordError(f"image {id} is {files[id]} and {file}", where=record.where)
        return photo_of(id, texts, record, problems, file)

    return join_rows(read_each(path, problems, photo), path)


def read_neuraltalk(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """`[{"file_path", "captions": [...], "id"}, …]`; the id is `file_path` where there is no `id`."""

    def photo(record: Record) -> CaptionedPhoto:
        file, texts = record.text("file_path"), record.texts("captions")
        return photo_of(record.identity("id") if record.has("id") else file, texts, record, problems, file)

    return caption_set(read_each(path, problems, photo), path, problems)


def read_clipscore(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """`{"stem": "caption"}` (candidates) or `{"stem": ["caption", …]}` (references): the stem of the file is the id."""
    record = read_object(path)
    report_repeated_keys(path, problems)
    photos = []
    for id in record.value:
        with problems:
            photos.append(photo_of(id, record.one_or_many(id), f"{path}, {id!r}", problems))
    return caption_set(photos, path, problems)


_TEXT = r'"(?:[^"\\]|\\.)*"'
_PAIR = re.compile(rf"\s*[{{,]\s*({_TEXT})\s*:\s*(?:\[\s*)?({_TEXT})((?:\s*,\s*{_TEXT})*\s*\])?")
_OTHER = re.compile(rf"\s*,\s*{_TEXT}\s*:\s*(?:\{{|\[\s*[^\s\"\]])")
# First keys of JSON objects that also open with text or a list of texts.
_FOREIGN = {*SPLITS, "dataset", "info", "vocab", "type", "version", "name", "images", "annotations"}


def _is_clipscore(probe: Probe) -> bool:
    """A `.json` object that opens with ids and sentences, text or lists of texts."""
    if not probe.name.endswith(".json"):
        return False
    pairs: list[tuple[str, str]] = []
    at, text = 0, (probe.text or "").lstrip()
    while len(pairs) < 20 and (pair := _PAIR.match(text, at)):
        pairs.append((pair[1][1:-1], pair[2]))
        at = pair.end()
    sentences = sum(" " in sentence.strip('" ') for _, sentence in pairs)
    if not pairs or not text.startswith("{") or _OTHER.match(text, at):
        return False
    return pairs[0][0] not in _FOREIGN and 2 * sentences >= len(pairs)


BLIP = caption_format(
    "blip-json",
    "LAVIS / BLIP annotations: a JSON list of images with captions (coco_karpathy_*.json)",
    lambda probe: probe.json_start == "[" and probe.has_key("image", "caption"),
    read_blip,
)
NEURALTALK = caption_format(
    "neuraltalk-raw",
    "Raw input of neuraltalk2 and AdaptiveAttention: a JSON list of file paths with captions",
    lambda probe: probe.json_start == "[" and probe.has_key("file_path", "captions"),
    read_neuraltalk,
)
CLIPSCORE = caption_format(
    "clipscore-json",
    "Captions by photo in one JSON object, {id: caption or list of captions}, as CLIPScore takes them",
    _is_clipscore,
    read_clipscore,
)
