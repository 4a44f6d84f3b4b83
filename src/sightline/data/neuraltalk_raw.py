"""The raw input of neuraltalk2 and AdaptiveAttention: a list of `{"file_path", "captions": [...], "id"}`."""

from __future__ import annotations

from pathlib import Path

from sightline.data.caption_format import caption_set, checked, report_captions
from sightline.data.format import Format, Probe
from sightline.data.json_records import Record, parse_each, read_list
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption_count


def matches(probe: Probe) -> bool:
    """A JSON list whose records have `file_path` and `captions`."""
    return probe.json_start == "[" and probe.has_key("file_path", "captions")


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """Photos with captions. The id is `id`, or `file_path` where a record has none."""
    met = Problems() if problems is None else problems
    return caption_set(parse_each(read_list(path), path, "", met, lambda r: _photo(r, met)), path, met)


def _photo(record: Record, problems: Problems) -> CaptionedPhoto:
    file, texts = record.text("file_path"), record.texts("captions")
    id = record.identity("id") if record.has("id") else file
    check_caption_count(id, len(texts), str(record.path), problems)
    return CaptionedPhoto(id, tuple(Sentence(checked(text, record, problems)) for text in texts), file)


FORMAT: Format = Format(
    "neuraltalk-raw",
    "Raw input of neuraltalk2 and AdaptiveAttention: a JSON list of file paths with captions",
    matches,
    inspect=lambda path: report_captions(path, FORMAT, read),
    captions=read,
)
