"""COCO's four JSON layouts: captions, generated captions ("results"), their scores, and object boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sightline.data.caption_format import (
    caption_format,
    caption_set,
    check_any,
    count_captions,
    each_with_caption,
    photo_of,
    record_format,
    sentence_numbers,
)
from sightline.data.format import Probe, Summary
from sightline.data.json_records import (
    Record,
    first_key,
    four_numbers,
    is_number,
    json_id,
    parse_each,
    read_each,
    read_object,
)
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption
from sightline.errors import BoxError, CountError, DuplicateRecordError, MissingRecordError
from sightline.files import write_json
from sightline.scene import Box

# Keys of other layouts that also have `images` or `annotations`.
_FOREIGN = ("sentences", "sentids", "file_path", "ix_to_word", "process_idx", "process_clss", "lemma2w")


def _is_coco(probe: Probe) -> bool:
    layout = probe.has_key("images") or probe.has_key("annotations")
    return probe.json_start == "{" and layout and not any(map(probe.has_key, _FOREIGN))


def _holds_boxes(probe: Probe) -> bool:
    """Whether a COCO file annotates boxes: by its name, else by the first annotation, which may be megabytes away."""
    if probe.name.startswith(("captions_", "caption_")):
        return False
    if probe.name.startswith(("instances_", "person_keypoints_")):
        return True
    return first_key(probe.path, "caption", "bbox", "segmentation", "categories") not in ("caption", None)


def read_captions(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """Photos in the order of `images`, their captions in the order of `annotations`."""
    whole = read_object(path)
    photos = whole.each("images", problems, _photo)
    sentences: dict[str, list[Sentence]] = {photo.id: [] for photo in photos}
    known: set[str] = set()

    def add(note: Record) -> None:
        id, image = note.identity("id"), note.identity("image_id")
        _check_image(image, sentences, note)
        if id in known:
            raise DuplicateRecordError(f"annotation id {id} appears twice", where=note.where, fix="number them anew")
        known.add(id)
        sentences[image].append(Sentence(check_caption(note.text("caption"), note, problems), id=id))

    whole.each("annotations", problems, add)
    for image, captions in sentences.items():
        check_any(image, captions, path, problems)
    return caption_set((replace(photo, sentences=tuple(sentences[photo.id])) for photo in photos), path, problems)


def write_captions(path: Path, captions: CaptionSet) -> int:
    """Write photos so that reading gives the same ids, files, sizes and texts. Tokens and splits have no place here."""
    numbers = sentence_numbers(captions)
    images: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for photo in each_with_caption(captions):
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
    return CaptionedPhoto(image.identity("id"), (), image.text_or_none("file_name"), None, image.size())


def _check_image(image: str, known: Mapping[str, object], note: Record) -> None:
    if image not in known:
        raise MissingRecordError(f"`images` holds no image {image}", where=note.where, fix="add it, or remove this")


CAPTIONS = caption_format(
    "coco-captions",
    "COCO captions (captions_*.json) and references in the same layout",
    lambda probe: _is_coco(probe) and not _holds_boxes(probe),
    read_captions,
    write_captions,
)


def read_results(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """One photo per entry of `[{"image_id", "caption"}, ...]`, with its one generated caption."""

    def photo(record: Record) -> CaptionedPhoto:
        return photo_of(record.identity("image_id"), (record.text("caption"),), record, problems)

    return caption_set(read_each(path, problems, photo), path, problems)


def write_results(path: Path, results: Mapping[str, str]) -> int:
    """Write image id to caption; ids that are plain numbers become numbers, as evaluation servers want."""
    write_json(path, [{"image_id": json_id(id), "caption": caption} for id, caption in results.items()])
    return len(results)


def _write_results(path: Path, captions: CaptionSet) -> int:
    results: dict[str, str] = {}
    for photo in each_with_caption(captions):
        if len(photo.sentences) != 1:
            raise CountError(
                f"image {photo.id} has {len(photo.sentences)} captions, results hold one per image",
                where=captions.source or None,
                fix="choose one caption per image, or write another format",
            )
        results[photo.id] = photo.sentences[0].text
    return write_results(path, results)


RESULTS = caption_format(
    "coco-results",
    "COCO results: a JSON list with one generated caption per image",
    lambda probe: probe.json_start == "[" and probe.has_key("image_id", "caption") and not probe.has_key("image"),
    read_results,
    _write_results,
)


@dataclass(frozen=True)
class Evaluation:
    """Scores of a whole set, and of each image; values are numbers, SPICE's per image an object of them."""

    overall: dict[str, float]
    images: dict[str, dict[str, Any]]
    captions: CaptionSet


def read_evaluation(path: Path, problems: Problems = STRICT) -> Evaluation:
    """A dump of scores, `{"overall": {metric: …}, "imgToEval": {id: {metric: …, "caption": …}}}`."""
    whole = read_object(path)
    overall = Record(whole.mapping("overall") if whole.has("overall") else {}, path)
    scores = {key: overall.number(key) for key, value in overall.value.items() if is_number(value)}
    images: dict[str, dict[str, Any]] = {}

    def photo(record: Record) -> CaptionedPhoto:
        id = str(record.index)
        images[id] = {key: value for key, value in record.value.items() if key not in ("caption", "image_id")}
        return photo_of(id, (record.text("caption"),), record, problems)

    photos = parse_each(whole.mapping("imgToEval"), path, "imgToEval", problems, photo)
    return Evaluation(scores, images, CaptionSet(tuple(photos), str(path)))


EVALUATION = record_format(
    "coco-evaluation",
    "A dump of coco-caption scores with the captions they belong to",
    lambda probe: probe.json_start == "{" and (probe.has_key("imgToEval") or probe.has_key("overall", "CIDEr")),
    read_evaluation,
    lambda found: count_captions(found.captions),
    captions=lambda path: read_evaluation(path).captions,
)


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


def read_instances(path: Path, problems: Problems = STRICT) -> dict[str, InstancePhoto]:
    """Photos by id, in file order; COCO's x y width height becomes normalised x1 y1 x2 y2."""
    whole = read_object(path)
    names = dict(whole.each("categories", problems, lambda record: (record.identity("id"), record.text("name"))))
    sizes: dict[str, tuple[tuple[int, int], str | None]] = {}
    instances: dict[str, list[Instance]] = {}

    def add_photo(image: Record) -> None:
        id, size = image.identity("id"), image.size()
        if size is None:
            raise image.error("the image has no 'width' and 'height'", fix="add them: boxes are in pixels")
        if id in sizes:
            raise DuplicateRecordError(f"image {id} appears twice", where=image.where, fix="merge the two entries")
        sizes[id], instances[id] = (size, image.text_or_none("file_name")), []

    def add_instance(note: Record) -> None:
        image, category = note.identity("image_id"), note.identity("category_id")
        _check_image(image, sizes, note)
        if category not in names:
            raise MissingRecordError(f"`categories` holds no id {category}", where=note.where, fix="add it there")
        crowd = bool(note.integer("iscrowd")) if note.has("iscrowd") else False
        instances[image].append(Instance(names[category], _box(note, sizes[image][0]), crowd))

    whole.each("images", problems, add_photo)
    whole.each("annotations", problems, add_instance)
    return {id: InstancePhoto(id, size, tuple(instances[id]), file) for id, (size, file) in sizes.items()}


def _box(note: Record, size: tuple[int, int]) -> Box:
    stored, (width, height) = note.value.get("bbox"), size
    x, y, box_width, box_height = four_numbers(stored, "'bbox'", note.where)
    if min(box_width, box_height) < 0 or min(x, y) < -1:
        what = f"the box is {stored}, and no part of x y width height may be negative"
        raise BoxError(what, where=note.where)
    if x + box_width > width + 1 or y + box_height > height + 1:
        what = f"the box {stored}, read as x y width height, leaves the {width}×{height} image"
        fix = "if your boxes are x1 y1 x2 y2, subtract x1 from x2 and y1 from y2"
        raise BoxError(what, where=note.where, fix=fix)
    x1, y1 = max(x, 0.0) / width, max(y, 0.0) / height
    return x1, y1, min((x + box_width) / width, 1.0), min((y + box_height) / height, 1.0)


def _count_instances(photos: dict[str, InstancePhoto]) -> Summary:
    things = [instance for photo in photos.values() for instance in photo.instances]
    crowds, names = sum(thing.crowd for thing in things), {thing.name for thing in things}
    return {"photos": len(photos), "boxes": len(things), "crowds": crowds, "categories": len(names)}, ()


INSTANCES = record_format(
    "coco-instances",
    "COCO object boxes drawn by people (instances_*.json)",
    lambda probe: _is_coco(probe) and _holds_boxes(probe),
    read_instances,
    _count_instances,
)
