"""COCO captions `captions_*.json`, and reference files in its layout such as `caption_flickr30k.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sightline.data.caption_format import caption_set, checked, each_captioned, report_captions, sentence_numbers
from sightline.data.format import Format, Probe
from sightline.data.json_records import Record, first_key, json_id, parse_each, read_object
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption_count
from sightline.errors import DuplicateRecordError, MissingRecordError
from sightline.files import write_json

# Keys of other layouts that also have `images` or `annotations`.
_FOREIGN = ("sentences", "sentids", "file_path", "ix_to_word", "process_idx", "process_clss", "lemma2w")


def is_coco(probe: Probe) -> bool:
    """Whether this is a COCO annotation file of any kind."""
    layout = probe.has_key("images") or probe.has_key("annotations")
    return probe.json_start == "{" and layout and not any(map(probe.has_key, _FOREIGN))


def holds_boxes(probe: Probe) -> bool:
    """Whether a COCO file annotates boxes: by its name, else by the first annotation, which may be megabytes away."""
    if probe.name.startswith(("captions_", "caption_")):
        return False
    if probe.name.startswith(("instances_", "person_keypoints_")):
        return True
    return first_key(probe.path, "caption", "bbox", "segmentation", "categories") not in ("caption", None)


def matches(probe: Probe) -> bool:
    """A COCO file that does not annotate boxes."""
    return is_coco(probe) and not holds_boxes(probe)


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """Photos in the order of `images`, their captions in the order of `annotations`."""
    met = Problems() if problems is None else problems
    whole = read_object(path)
    photos = list(parse_each(whole.items("images"), path, "images", met, _photo))
    sentences: dict[str, list[Sentence]] = {photo.id: [] for photo in photos}
    seen: set[str] = set()

    def add(note: Record) -> None:
        id, image = note.identity("id"), note.identity("image_id")
        if image not in sentences:
            raise MissingRecordError(f"`images` holds no image {image}", where=note.where, fix="add it, or remove this")
        if id in seen:
            raise DuplicateRecordError(f"annotation id {id} appears twice", where=note.where, fix="number them anew")
        seen.add(id)
        sentences[image].append(Sentence(checked(note.text("caption"), note, met), id=id))

    for _ in parse_each(whole.items("annotations"), path, "annotations", met, add):
        pass
    for image, found in sentences.items():
        check_caption_count(image, len(found), str(path), met)
    filled = (CaptionedPhoto(p.id, tuple(sentences[p.id]), p.file, p.split, p.size) for p in photos)
    return caption_set(filled, path, met)


def write(path: Path, captions: CaptionSet) -> int:
    """Write photos so that `read` gives the same ids, files, sizes and texts. Tokens and splits have no place here."""
    numbers = sentence_numbers(captions)
    images: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for photo in each_captioned(captions):
        image: dict[str, Any] = {"id": json_id(photo.id)}
        if photo.file is not None:
            image["file_name"] = photo.file
        if photo.size is not None:
            image["width"], image["height"] = photo.size
        images.append(image)
        notes += [{"image_id": image["id"], "id": next(numbers), "caption": s.text} for s in photo.sentences]
    write_json(path, {"info": {}, "licenses": [], "type": "captions", "images": images, "annotations": notes})
    return len(images)


def _photo(image: Record) -> CaptionedPhoto:
    file = image.text("file_name") if image.has("file_name") else None
    return CaptionedPhoto(image.identity("id"), (), file, None, image.size())


FORMAT: Format = Format(
    "coco-captions",
    "COCO captions (captions_*.json) and references in the same layout",
    matches,
    inspect=lambda path: report_captions(path, FORMAT, read),
    captions=read,
    write_captions=write,
)
