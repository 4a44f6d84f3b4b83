"""COCO object boxes `instances_*.json`: what is where in each photo, as people drew it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from sightline.data.caption_format import collect
from sightline.data.coco_captions import holds_boxes, is_coco
from sightline.data.format import Format, Probe, Report
from sightline.data.json_records import Record, parse_each, read_object
from sightline.data.records import Problems
from sightline.errors import BoxError, DuplicateRecordError, MissingRecordError
from sightline.scene import Box


@dataclass(frozen=True)
class Instance:
    """One thing in a photo. `box` is normalised xyxy; a crowd's box covers many of the kind."""

    name: str
    box: Box
    crowd: bool = False


@dataclass(frozen=True)
class InstancePhoto:
    """One photo of an instances file; `size` is (width, height) in pixels."""

    id: str
    size: tuple[int, int]
    instances: tuple[Instance, ...]
    file: str | None = None


def matches(probe: Probe) -> bool:
    """A COCO file that annotates boxes."""
    return is_coco(probe) and holds_boxes(probe)


def read_instances(path: Path, problems: Problems | None = None) -> dict[str, InstancePhoto]:
    """Photos by id, in file order; COCO's x y width height becomes normalised x1 y1 x2 y2."""
    met = Problems() if problems is None else problems
    whole = read_object(path)
    names = dict(parse_each(whole.items("categories"), path, "categories", met, _category))
    photos: dict[str, tuple[tuple[int, int], str | None, list[Instance]]] = {}

    def add_photo(image: Record) -> None:
        id, size = image.identity("id"), image.size()
        if size is None:
            raise image.error("the image has no 'width' and 'height'", fix="add them: boxes are in pixels")
        if id in photos:
            raise DuplicateRecordError(f"image {id} appears twice", where=image.where, fix="merge the two entries")
        photos[id] = size, image.text("file_name") if image.has("file_name") else None, []

    def add_instance(note: Record) -> None:
        image, category = note.identity("image_id"), note.identity("category_id")
        if image not in photos:
            raise MissingRecordError(f"`images` holds no image {image}", where=note.where, fix="add it, or remove this")
        if category not in names:
            raise MissingRecordError(f"`categories` holds no id {category}", where=note.where, fix="add it there")
        crowd = bool(note.integer("iscrowd")) if note.has("iscrowd") else False
        photos[image][2].append(Instance(names[category], _box(note, photos[image][0]), crowd))

    for key, add in (("images", add_photo), ("annotations", add_instance)):
        for _ in parse_each(whole.items(key), path, key, met, add):
            pass
    return {id: InstancePhoto(id, size, tuple(found), file) for id, (size, file, found) in photos.items()}


def inspect(path: Path) -> Report:
    """Counts of photos, boxes and categories."""
    photos, problems = collect(path, read_instances)
    found = [instance for photo in (photos or {}).values() for instance in photo.instances]
    counts: dict[str, int | str] = {
        "photos": len(photos or {}),
        "boxes": len(found),
        "crowds": sum(instance.crowd for instance in found),
        "categories": len(Counter(instance.name for instance in found)),
    }
    return Report.of(path, FORMAT, counts, problems)


def _category(record: Record) -> tuple[str, str]:
    return record.identity("id"), record.text("name")


def _box(note: Record, size: tuple[int, int]) -> Box:
    x, y, box_width, box_height = note.box("bbox")
    width, height = size
    if min(box_width, box_height) < 0 or min(x, y) < -1:
        raise BoxError(
            f"the box is {note.value['bbox']}, and no part of x y width height may be negative", where=note.where
        )
    if x + box_width > width + 1 or y + box_height > height + 1:
        raise BoxError(
            f"the box {note.value['bbox']}, read as x y width height, leaves the {width}×{height} image",
            where=note.where,
            fix="if your boxes are x1 y1 x2 y2, subtract x1 from x2 and y1 from y2",
        )
    x1, y1 = max(x, 0.0) / width, max(y, 0.0) / height
    return x1, y1, min((x + box_width) / width, 1.0), min((y + box_height) / height, 1.0)


FORMAT = Format(
    "coco-instances",
    "COCO object boxes drawn by people (instances_*.json)",
    matches,
    inspect,
)
