"""The dump of an evaluation, `{"overall": {metric: …}, "imgToEval": {id: {metric: …, "caption": …}}}`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.data.caption_format import checked, report_captions
from sightline.data.format import Format, Probe
from sightline.data.json_records import Record, is_number, parse_each, read_object
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence


@dataclass(frozen=True)
class Evaluation:
    """Scores of a whole set, and of each image; values are numbers, SPICE's per image an object of them."""

    overall: dict[str, float]
    images: dict[str, dict[str, Any]]
    captions: CaptionSet


def matches(probe: Probe) -> bool:
    """A JSON object with `imgToEval`, or with `overall` scores before it."""
    return probe.json_start == "{" and (probe.has_key("imgToEval") or probe.has_key("overall", "CIDEr"))


def read_evaluation(path: Path, problems: Problems | None = None) -> Evaluation:
    """Scores and captions of an evaluation dump."""
    met = Problems() if problems is None else problems
    whole = read_object(path)
    overall = Record(whole.mapping("overall"), path) if whole.has("overall") else None
    scores = {} if overall is None else {k: overall.number(k) for k, v in overall.value.items() if is_number(v)}
    images: dict[str, dict[str, Any]] = {}

    def photo(record: Record) -> CaptionedPhoto:
        id = str(record.index)
        images[id] = {key: value for key, value in record.value.items() if key not in ("caption", "image_id")}
        return CaptionedPhoto(id, (Sentence(checked(record.text("caption"), record, met)),))

    photos = tuple(parse_each(whole.mapping("imgToEval"), path, "imgToEval", met, photo))
    return Evaluation(scores, images, CaptionSet(photos, str(path)))


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """The captions that were evaluated."""
    return read_evaluation(path, problems).captions


FORMAT: Format = Format(
    "coco-evaluation",
    "A dump of coco-caption scores with the captions they belong to",
    matches,
    inspect=lambda path: report_captions(path, FORMAT, read),
    captions=read,
)
