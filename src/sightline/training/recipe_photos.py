"""The photos of a recipe with their captions, by what they are for: train, val, test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path, PurePosixPath

from sightline.data.convert import any_captions
from sightline.data.image_list import with_splits
from sightline.data.photo_folder import photo_files
from sightline.data.records import CaptionedPhoto, CaptionSet
from sightline.errors import ConfigError, DataError, MissingRecordError
from sightline.files import existing_path
from sightline.metrics.novel import novel_objects
from sightline.training.data_config import DataConfig

ROLES = ("train", "val", "test")


def read_photos(config: DataConfig, base: Path, notes: list[str]) -> dict[str, tuple[CaptionedPhoto, ...]]:
    """The photos of each role that has some. Without captions they are the photos of the folder."""
    images = None if config.images is None else existing_path(config.path(config.images, base))
    if config.caption_files:
        files = [read_captions(config.path(path, base), images) for path in config.caption_files]
        source = ", ".join(file.source for file in files)
        captions = CaptionSet(tuple(photo for file in files for photo in file), source)
    elif images is not None:
        captions = CaptionSet(tuple(CaptionedPhoto(file, (), file) for file in photo_files(images)), str(images))
    elif config.corpus is not None:
        return {}  # sentences alone
    else:
        raise ConfigError("there is nothing to train on", fix="give data.captions, data.images or data.corpus")
    sentences = sum(len(photo.sentences) for photo in captions)
    described = f" with {plural(sentences, 'caption')}" if sentences else ""
    notes.append(f"{captions.source} names {plural(len(captions), 'photo')}{described}.")
    if config.splits:
        captions = with_splits(captions, {name: config.path(path, base) for name, path in config.splits.items()})
    elif config.shares:
        captions = _shared(captions, config.shares)
    photos = _by_role(config, captions, notes)
    return _without_novel(photos, notes) if config.novel else photos


def read_captions(path: Path, images: Path | None = None) -> CaptionSet:
    """Captions to learn from, in any format; the photos of a table are in `images`, where that is given."""
    captions = any_captions(path, images=images)
    for photo in captions:
        for sentence in photo.sentences:
            if not sentence.text.strip():
                raise DataError(f"a caption of photo {photo.id} is empty", where=path, fix="write one, or remove it")
    return captions


def _shared(captions: CaptionSet, shares: dict[str, float]) -> CaptionSet:
    """Splits by a hash of the photos' names: a photo keeps its split when others are added.

    A split that would be empty gets the photo whose hash is nearest below its range.
    """
    if any(share <= 0 for share in shares.values()) or sum(shares.values()) > 1 + 1e-6:
        raise ConfigError(f"data.shares is {shares}", fix="give shares above 0 that sum to 1, such as {train: 0.9, …}")
    if len(captions) < len(shares):
        what = f"{plural(len(captions), 'photo')} cannot be shared by {len(shares)} splits"
        raise ConfigError(what, where=captions.source, fix="give more photos")
    place = {photo.id: hash_share(PurePosixPath(photo.file or photo.id).as_posix()) for photo in captions}
    split_of: dict[str, str] = {}
    start = 0.0
    for name, share in shares.items():
        split_of |= {id: name for id, value in place.items() if start <= value < start + share}
        start += share
    sizes = Counter(split_of.values())
    for name in shares:
        if not sizes[name]:
            largest = sizes.most_common(1)[0][0]
            split_of[max((id for id, split in split_of.items() if split == largest), key=place.__getitem__)] = name
            sizes = Counter(split_of.values())
    return CaptionSet(tuple(replace(p, split=split_of.get(p.id)) for p in captions), captions.source)


def hash_share(text: str) -> float:
    """A number from 0 to below 1 that depends on `text` alone."""
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") / (1 << 48)


def _by_role(config: DataConfig, captions: CaptionSet, notes: list[str]) -> dict[str, tuple[CaptionedPhoto, ...]]:
    splits = captions.splits()
    if not splits:
        fix = "give data.splits (a list of photos each), or data.shares such as {train: 0.9, val: 0.05, test: 0.05}"
        raise ConfigError("no photo has a split", where=captions.source, fix=fix)
    role_of = {name: role for role in ROLES for name in getattr(config, role)}
    by_role: dict[str, list[CaptionedPhoto]] = {}
    for photo in captions:
        if photo.split in role_of:
            by_role.setdefault(role_of[photo.split], []).append(photo)
    wanted = config.train or config.val or config.test  # photos are trained on, or only measured by
    if not any(name in wanted for name in splits):
        fix = f"there are the splits {', '.join(splits)}"
        raise ConfigError(f"no photo is in {' or '.join(wanted)}", where=captions.source, fix=fix)
    used = [photo for part in by_role.values() for photo in part]
    bare = [photo.id for photo in used if not photo.sentences]
    if bare and len(bare) < len(used):  # either all photos have captions or none has
        what = f"{plural(len(bare), 'photo')} without a caption: {some(bare)}"
        raise MissingRecordError(what, where=captions.source, fix="caption them, or leave them out of the file")
    counts = ", ".join(f"{len(by_role[role]):,} {role}" for role in ROLES if role in by_role)
    unused = len(captions) - len(used)
    left = f"; {plural(unused, 'photo')} in no split that is used" if unused else ""
    notes.append(f"Splits: {counts}{left}.")
    return {role: tuple(by_role[role]) for role in ROLES if role in by_role}


def _without_novel(
    photos: dict[str, tuple[CaptionedPhoto, ...]], notes: list[str]
) -> dict[str, tuple[CaptionedPhoto, ...]]:
    """All photos but those of train that a caption describes with a novel object."""
    train = photos.get("train", ())
    kept = tuple(photo for photo in train if not any(novel_objects(caption.text) for caption in photo.sentences))
    if train and not kept:
        raise ConfigError("data.novel leaves no photo to train on", fix="give more captions, or remove it")
    notes.append(f"{plural(len(train) - len(kept), 'photo')} of train left out: a caption names a novel object.")
    return photos | ({"train": kept} if kept else {})


def plural(count: int, noun: str) -> str:
    """`1 photo`, `2 photos`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def some(names: Sequence[str]) -> str:
    """The first five of them."""
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
