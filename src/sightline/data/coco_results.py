"""COCO results `[{"image_id", "caption"}, ...]`: one generated caption per image, what evaluation servers take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sightline.data.caption_format import caption_set, checked, each_captioned, report_captions
from sightline.data.format import Format, Probe
from sightline.data.json_records import Record, json_id, parse_each, read_list
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence
from sightline.errors import CountError
from sightline.files import write_json


def matches(probe: Probe) -> bool:
    """A JSON list of records with `image_id` and `caption`, without a picture."""
    return probe.json_start == "[" and probe.has_key("image_id", "caption") and not probe.has_key("image")


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """One photo per result, with its one caption."""
    met = Problems() if problems is None else problems
    return caption_set(parse_each(read_list(path), path, "", met, lambda r: _photo(r, met)), path, met)


def read_results(path: Path, problems: Problems | None = None) -> dict[str, str]:
    """Image id to caption; an id that appears twice is a DuplicateRecordError."""
    return {photo.id: photo.sentences[0].text for photo in read(path, problems)}


def write_results(path: Path, results: Mapping[str, str]) -> int:
    """Write image id to caption; ids that are plain numbers become numbers, as evaluation servers want."""
    write_json(path, [{"image_id": json_id(id), "caption": caption} for id, caption in results.items()])
    return len(results)


def write(path: Path, captions: CaptionSet) -> int:
    """Write photos with exactly one caption each."""
    results: dict[str, str] = {}
    for photo in each_captioned(captions):
        if len(photo.sentences) != 1:
            raise CountError(
                f"image {photo.id} has {len(photo.sentences)} captions, results hold one per image",
                where=captions.source or None,
                fix="choose one caption per image, or write another format",
            )
        results[photo.id] = photo.sentences[0].text
    return write_results(path, results)


def _photo(record: Record, problems: Problems) -> CaptionedPhoto:
    caption = checked(record.text("caption"), record, problems)
    return CaptionedPhoto(record.identity("image_id"), (Sentence(caption),))


FORMAT: Format = Format(
    "coco-results",
    "COCO results: a JSON list with one generated caption per image",
    matches,
    inspect=lambda path: report_captions(path, FORMAT, read),
    captions=read,
    write_captions=write,
)
