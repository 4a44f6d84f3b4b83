"""CLIPScore's files: `{"stem": "caption"}` for candidates, `{"stem": ["caption", …]}` for references."""

from __future__ import annotations

import re
from pathlib import Path

from sightline.data.caption_format import caption_set, checked, report_captions
from sightline.data.format import Format, Probe
from sightline.data.gvd_split import SPLITS
from sightline.data.json_records import Record, read_object, report_repeated_keys
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption_count
from sightline.errors import DataError

_TEXT = r'"(?:[^"\\]|\\.)*"'
_PAIR = re.compile(rf"\s*[{{,]\s*({_TEXT})\s*:\s*(?:\[\s*)?({_TEXT})((?:\s*,\s*{_TEXT})*\s*\])?")
_OTHER = re.compile(rf"\s*,\s*{_TEXT}\s*:\s*(?:\{{|\[\s*[^\s\"\]])")
# First keys of JSON objects that also open with text or a list of texts.
_FOREIGN = {*SPLITS, "dataset", "info", "vocab", "type", "version", "name", "images", "annotations"}


def matches(probe: Probe) -> bool:
    """A `.json` object that opens with ids and sentences, text or lists of texts."""
    if not probe.name.endswith(".json"):
        return False
    pairs: list[tuple[str, str]] = []
    at, text = 0, (probe.text or "").lstrip()
    while len(pairs) < 20 and (found := _PAIR.match(text, at)):
        pairs.append((found[1][1:-1], found[2]))
        at = found.end()
    sentences = sum(" " in sentence.strip('" ') for _, sentence in pairs)
    if not pairs or not text.startswith("{") or _OTHER.match(text, at):
        return False
    return pairs[0][0] not in _FOREIGN and 2 * sentences >= len(pairs)


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """Photos by id (the picture's file name without its suffix), in file order."""
    met = Problems() if problems is None else problems
    whole = read_object(path)
    report_repeated_keys(path, met)
    return caption_set(_photos(whole, met), path, met)


def _photos(whole: Record, problems: Problems) -> list[CaptionedPhoto]:
    photos = []
    for id in whole.value:
        try:
            texts = whole.one_or_many(id)
        except DataError as error:
            problems.report(error)
            continue
        where = f"{whole.path}, {id!r}"
        check_caption_count(id, len(texts), where, problems)
        photos.append(CaptionedPhoto(id, tuple(Sentence(checked(text, where, problems)) for text in texts)))
    return photos


FORMAT: Format = Format(
    "clipscore-json",
    "Captions by photo in one JSON object, {id: caption or list of captions}, as CLIPScore takes them",
    matches,
    inspect=lambda path: report_captions(path, FORMAT, read),
    captions=read,
)
