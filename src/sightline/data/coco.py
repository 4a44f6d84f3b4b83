"""COCO's four JSON layouts: captions, generated captions ("results"), their scores, and object boxes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sightline.data.caption_format import (
    caption_format,
    caption_set,
    check_any,
    each_with_caption,
    photo_of,
    record_format,
    sentence_numbers,
)
from sightline.data.format import Probe, Summary
from sightline.data.json_records import Record, check_numbers, first_key, json_id, parse_each, read_each, read_object
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption
from sightline.errors import BoxError, CountError, DuplicateRecordError, MissingRecordError
from sightline.files import write_json
from sightline.scene import Box

# Keys of other layouts that also have `images` or `annotations`.
_FOREIGN = ("sentences", "sentids", "file_path", "ix_to_word", "process_idx", "process_clss", "lemma2w")


def _is_coco(probe: Probe) -> bool:
    return probe.json_start == "{" and probe.has_any_key("images", "annotations") and not probe.has_any_key(*_FOREIGN)


def _holds_boxes(probe: Probe) -> bool:
    """Whether a COCO file annotates boxes: by its name, else by the first annotation, which may be megabytes away."""
    if probe.name.startswith(("captions_", "caption_")):
        return False
    if probe.name.startswith(("instances_", "person_keypoints_")):
        return True
    return first_key(probe.path, "caption", "bbox", "segmentation", "categories") not in ("caption", None)


def read_captions(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """Photos in the order of `images`, their captions in the order of `annotations`."""
    record = read_object(path)
    photos = record.each("images", problems, _photo)
    sentences: dict[str, list[Sentence]] = {photo.id: [] for photo in photos}
    ids: set[str] = set()

    def add(annotation: Record) -> None:
        id, image = annotation.identity("id"), annotation.identity("image_id")
        _check_image(image, sentences, annotation)
        if id in ids:
            fix = "number them anew"
            raise DuplicateRecordError(f"annotation id {id} appears twice", where=annotation.where, fix=fix)
        ids.add(id)
        sentences[image].append(Sentence(check_caption(annotation.text("caption"), annotation, problems), id=id))

    record.each("annotations", problems, add)
    for image, captions in sentences.items():
        check_any(image, captions, path, problems)
    return caption_set((replace(photo, sentences=tuple(sentences[photo.id])) for photo in photos), path, problems)


def write_captions(path: Path, captions: CaptionSet) -> int:
    """Write photos so that reading gives the same ids, files, sizes and texts. Tokens and splits have no place here."""
    numbers = sentence_numbers(captions)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for photo in each_with_caption(captions):
        image: dict[str, Any] = {"id": json_id(photo.id)}
        if photo.file is not None:
            image["file_name"] = photo.file
        if photo.size is not None:
            image["width"], image["height"] = photo.size
        images.append(image)
        annotations += [{"image_id": image["id"], "id": next(numbers), "caption": s.text} for s in photo.sentences]
    write_json(path, {"info": {}, "licenses": [], "type": "captions", "images": images, "annotations": annotations})
    return len(images)


def _photo(image: Record) -> CaptionedPhoto:
    return CaptionedPhoto(image.identity("id"), (), image.text_or_none("file_name"), None, image.size())


def _check_image(image: str, images: Mapping[str, object], annotation: Record) -> None:
    if image not in images:
        fix = "add it, or remove this"
        raise MissingRecordError(f"`images` holds no image {image}", where=annotation.where, fix=fix)


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
            what = f"image {photo.id} has {len(photo.sentences)} captions, results hold one per image"
            fix = "choose one caption per image, or write another format"
            raise CountError(what, where=captions.source or None, fix=fix)
        results[photo.id] = photo.sentences[0].text
    return write_results(path, results)


RESULTS = caption_format(
    "coco-results",
    "COCO results: a JSON list with one generated caption per image",
    lambda probe: probe.json_start == "[" and probe.has_key("image_id", "caption") and not probe.has_key("image"),
    read_results,
    _write_results,
)


def read_evaluation(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """The captions in a dump of scores, `{"overall": {metric: …}, "imgToEval": {id: {metric: …, "caption": …}}}`."""

    def photo(record: Record) -> CaptionedPhoto:
        return photo_of(str(record.index), (record.text("caption"),), record, problems)

    images = read_object(path).mapping("imgToEval")
    return CaptionSet(tuple(parse_each(images, path, "imgToEval", problems, photo)), str(path))


EVALUATION = caption_format(
    "coco-evaluation",
    "A dump of coco-caption scores with the captions they belong to",
    lambda probe: probe.json_start == "{" and (probe.has_key("imgToEval") or probe.has_key("overall", "CIDEr")),
    read_evaluation,
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
    record = read_object(path)
    names = dict(record.each("categories", problems, lambda category: (category.identity("id"), category.text("name"))))
    photos: dict[str, InstancePhoto] = {}
    instances: dict[str, list[Instance]] = {}

    def add_photo(image: Record) -> None:
        id, size = image.identity("id"), image.size()
        if size is None:
            raise image.error("the image has no 'width' and 'height'", fix="add them: boxes are in pixels")
        if id in photos:
            raise DuplicateRecordError(f"image {id} appears twice", where=image.where, fix="merge the two entries")
        photos[id], instances[id] = InstancePhoto(id, size, (), image.text_or_none("file_name")), []

    def add_instance(annotation: Record) -> None:
        image, category = annotation.identity("image_id"), annotation.identity("category_id")
        _check_image(image, photos, annotation)
        if category not in names:
            fix = "add it there"
            raise MissingRecordError(f"`categories` holds no id {category}", where=annotation.where, fix=fix)
        crowd = annotation.has("iscrowd") and annotation.integer("iscrowd") != 0
        instances[image].append(Instance(names[category], _box(annotation, photos[image].size), crowd))

    record.each("images", problems, add_photo)
    record.each("annotations", problems, add_instance)
    return {id: replace(photo, instances=tuple(instances[id])) for id, photo in photos.items()}


def _box(annotation: Record, size: tuple[int, int]) -> Box:
    stored, (width, height) = annotation.value.get("bbox"), size
    x, y, box_width, box_height = check_numbers(stored, ("x", "y", "width", "height"), "'bbox'", annotation.where)
    if min(box_width, box_height) < 0 or min(x, y) < -1:
        what = f"the box is {stored}, and no part of x y width height may be negative"
        raise BoxError(what, where=annotation.where)
    if x + box_width > width + 1 or y + box_height > height + 1:
        what = f"the box {stored}, read as x y width height, leaves the {width}×{height} image"
        fix = "if your boxes are x1 y1 x2 y2, subtract x1 from x2 and y1 from y2"
        raise BoxError(what, where=annotation.where, fix=fix)
    x1, y1 = max(x, 0.0) / width, max(y, 0.0) / height
    return x1, y1, min((x + box_width) / width, 1.0), min((y + box_height) / height, 1.0)


def _count_instances(photos: dict[str, InstancePhoto]) -> Summary:
    instances = [instance for photo in photos.values() for instance in photo.instances]
    crowds, names = sum(instance.crowd for instance in instances), {instance.name for instance in instances}
    return {"photos": len(photos), "boxes": len(instances), "crowds": crowds, "categories": len(names)}, ()


INSTANCES = record_format(
    "coco-instances",
    "COCO object boxes drawn by people (instances_*.json)",
    lambda probe: _is_coco(probe) and _holds_boxes(probe),
    read_instances,
    _count_instances,
)
