"""Captions in the JSON of three tools: LAVIS and BLIP, neuraltalk2, CLIPScore."""

from __future__ import annotations

import re
from pathlib import Path

from sightline.data.caption_format import caption_format, caption_set, join_rows, photo_of
from sightline.data.format import Probe
from sightline.data.gvd import SPLITS
from sightline.data.json_records import Record, read_each, read_object, report_repeated_keys
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems
from sightline.errors import DuplicateRecordError


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
