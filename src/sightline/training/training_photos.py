"""Which photos, and whose boxes, a recipe's vision model is trained on: never those it is chosen or measured by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sightline.data.image_list import photo_number, read_names
from sightline.data.photo_folder import photo_files
from sightline.data.records import CaptionedPhoto
from sightline.errors import ConfigError, CountError, MissingRecordError
from sightline.files import existing_path
from sightline.training.data_config import BoxedPhotos, DataConfig
from sightline.training.features import match, match_all
from sightline.training.recipe_photos import plural, read_photos
from sightline.training.true_boxes import PhotoBoxes, read_boxes

BOXED = "boxed"
TRAINED = ("train", BOXED)  # the pools whose boxes are read


@dataclass(frozen=True, eq=False)
class PoolFiles:
    """The photos of a pool, and where they are."""

    photos: tuple[CaptionedPhoto, ...]
    paths: tuple[Path, ...]


class TrainingPhoto(NamedTuple):
    """A photo that is trained on: its pool, id, file, and how many boxes are known of it."""

    pool: str
    id: str
    file: Path
    boxes: int


def training_photos(config: DataConfig, base: Path = Path()) -> list[TrainingPhoto]:
    """Every photo that a model that sees is trained on by this recipe; no picture is opened."""
    found = files_of_pools(config, base, read_photos(config, base, []), [])
    drawn = boxes_of_pools(config, base, found, [])
    listed = []
    for pool in TRAINED:
        if pool in found:
            own = drawn.get(pool) or [None] * len(found[pool].photos)
            for photo, path, boxes in zip(found[pool].photos, found[pool].paths, own, strict=True):
                listed.append(TrainingPhoto(pool, photo.id, path, 0 if boxes is None else len(boxes.boxes)))
    return listed


def files_of_pools(
    config: DataConfig, base: Path, photos: Mapping[str, Sequence[CaptionedPhoto]], notes: list[str]
) -> dict[str, PoolFiles]:
    """The files of the photos of each split, and those of `data.boxed`."""
    if config.images is None:
        raise ConfigError("a model that sees photos at every step needs them", fix="give data.images")
    folder = existing_path(config.path(config.images, base))
    listed = [photo for part in photos.values() for photo in part]
    fix = "check that captions and photos are named alike, or say --allow-missing"
    file_of, missing = match_all(config, listed, photo_files(folder), folder, "are not there", fix)
    if missing:
        notes.append(f"In {folder}, {missing}. They are left out.")
    found = {}
    for role, part in photos.items():
        kept = tuple(photo for photo in part if photo.id in file_of)[: config.max_photos or None]
        if kept:
            found[role] = PoolFiles(kept, tuple(folder / file_of[photo.id] for photo in kept))
    if config.boxed is not None:
        spared = {photo_number(p.file or p.id) for role, part in photos.items() if role != "train" for p in part}
        found[BOXED] = _find_boxed(config, config.boxed, base, spared, notes)
    return found


def _find_boxed(config: DataConfig, boxed: BoxedPhotos, base: Path, spared: set[str], notes: list[str]) -> PoolFiles:
    """The photos with boxes and without captions; `spared` are the numbers of those that nothing may be trained on."""
    folder = existing_path(config.path(boxed.images, base))
    files = photo_files(folder)
    if boxed.photos is not None:
        path = config.path(boxed.photos, base)
        listed = [CaptionedPhoto(name, (), name) for name in read_names(path)]
        fix = "correct data.boxed.photos or data.boxed.images, or say --allow-missing"
        file_of, _ = match_all(config, listed, files, folder, f"of {path} are not there", fix)
        files = [file_of[photo.id] for photo in listed if photo.id in file_of]
    kept = [file for file in files if photo_number(file) not in spared]
    if len(kept) < len(files):
        notes.append(f"{plural(len(files) - len(kept), 'photo')} of data.boxed left out: in val or test.")
    kept = kept[: config.max_photos or None]
    if not kept:
        raise CountError("no photo of data.boxed is left to train on", where=folder, fix="correct data.boxed")
    return PoolFiles(tuple(CaptionedPhoto(file, (), file) for file in kept), tuple(folder / file for file in kept))


def boxes_of_pools(
    config: DataConfig, base: Path, found: Mapping[str, PoolFiles], notes: list[str]
) -> dict[str, list[PhotoBoxes | None]]:
    """The boxes of the photos of `train` and `boxed`, None where a photo has none. Other photos' boxes are not read."""
    sources = {"train": config.boxes, BOXED: None if config.boxed is None else config.boxed.boxes}
    drawn: dict[str, list[PhotoBoxes | None]] = {}
    for pool, given in sources.items():
        if given is None or pool not in found:
            continue
        path, photos = config.path(given, base), found[pool].photos
        boxes = read_boxes(path)
        id_of = match(photos, boxes.ids, path)
        if not id_of:
            raise MissingRecordError(
                f"none of {plural(len(photos), 'photo')}, such as {photos[0].id}, is among its {len(boxes.ids):,}",
                where=path,
                fix="photos and boxes must be named alike",
            )
        drawn[pool] = [boxes.of(id_of[photo.id]) if photo.id in id_of else None for photo in photos]
        known = [one for one in drawn[pool] if one is not None]
        named = sum(int((one.names[:, 0] >= 0).sum()) for one in known)
        total = sum(len(one.boxes) for one in known)
        notes.append(
            f"{len(known):,} of {plural(len(photos), 'photo')} of {pool} are in {path}: "
            f"{total:,} boxes, {named:,} of them with a name."
        )
    return drawn
