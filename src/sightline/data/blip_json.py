"""LAVIS / BLIP annotation lists: `[{"image", "caption": text or list, "image_id"}, …]`, several rows per photo too."""

from __future__ import annotations

from pathlib import Path

from sightline.data.caption_format import CaptionCollector, checked, report_captions
from sightline.data.format import Format, Probe
from sightline.data.json_records import Record, parse_each, read_list
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption_count
from sightline.errors import DuplicateRecordError


def matches(probe: Probe) -> bool:
    """A JSON list of records with `image` and `caption`."""
    return probe.json_start == "[" and probe.has_key("image", "caption")


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """Photos in order of first appearance. The id is `image_id`, or `image` where a file has none."""
    met = Problems() if problems is None else problems
    gathering = CaptionCollector()

    def add(record: Record) -> None:
        file, texts = record.text("image"), record.one_or_many("caption")
        id = record.identity("image_id") if record.has("image_id") else file
        known = gathering.get(id)
        if known is not None and known.file != file:
            raise DuplicateRecordError(f"image {id} is {known.file} and {file}", where=record.where)
        check_caption_count(id, len(texts), record.where, met)
        gathering.add(CaptionedPhoto(id, tuple(Sentence(checked(text, record, met)) for text in texts), file))

    for _ in parse_each(read_list(path), path, "", met, add):
        pass
    return CaptionSet(tuple(gathering.photos()), str(path))


FORMAT: Format = Format(
    "blip-json",
    "LAVIS / BLIP annotations: a JSON list of images with captions (coco_karpathy_*.json)",
    matches,
    inspect=lambda path: report_captions(path, FORMAT, read),
    captions=read,
)
