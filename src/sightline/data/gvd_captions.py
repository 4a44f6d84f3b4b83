"""GVD's `cap_flickr30k.json`: for each image of `dic_flickr30k.json`, its captions with object words."""

from __future__ import annotations

from pathlib import Path

from sightline.data.caption_format import collect
from sightline.data.cocotalk import read_talk
from sightline.data.format import Format, Probe, Report
from sightline.data.grounding_records import GroundedPhoto
from sightline.data.gvd_reference import counts_of, parse_captions, plain_photo
from sightline.data.json_records import read_list, told
from sightline.data.records import CaptionSet, Problems
from sightline.errors import CountError, DataError, MissingRecordError


def matches(probe: Probe) -> bool:
    """A JSON list whose captions have `clss` and `idx`."""
    return probe.json_start == "[" and probe.has_key("caption", "clss", "idx")


def read_photos(path: Path, problems: Problems | None = None, dictionary: Path | None = None) -> list[GroundedPhoto]:
    """Photos in file order; ids and splits come from `dictionary`, by default the `dic_…` beside this `cap_…`."""
    met = Problems() if problems is None else problems
    entries = read_list(path)
    words = dictionary or path.with_name(path.name.replace("cap_", "dic_", 1))
    if words == path or not words.is_file():
        raise MissingRecordError(
            "the ids of these captions are in a dictionary that is not beside them", where=path, fix=f"add {words.name}"
        )
    images = read_talk(words).captions.photos
    if len(images) != len(entries):
        raise CountError(
            f"{len(entries)} images here, {len(images)} in {words}", where=path, fix="use files of one run"
        )
    photos = []
    for position, (image, captions) in enumerate(zip(images, entries, strict=True)):
        if not isinstance(captions, list):
            met.report(
                DataError(f"a list of captions was expected, not {told(captions)}", where=f"{path}, [{position}]")
            )
            continue
        names = ("caption", "clss", "idx", "bbox")
        found = parse_captions(captions, path, image.id, names, met, image.size)
        photos.append(GroundedPhoto(image.id, found, image.size, image.split))
    return photos


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """The captions as tokens."""
    return CaptionSet(tuple(map(plain_photo, read_photos(path, problems))), str(path))


def inspect(path: Path) -> Report:
    """Counts of photos, captions and object words."""
    photos, problems = collect(path, read_photos)
    return Report.of(path, FORMAT, counts_of(photos or ()), problems)


FORMAT = Format(
    "gvd-captions",
    "GVD captions with object words (cap_flickr30k.json, beside dic_flickr30k.json)",
    matches,
    inspect,
    captions=read,
)
