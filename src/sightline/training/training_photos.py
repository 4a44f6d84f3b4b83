"""Photos as pixels, for a vision model that learns: which ones, with whose boxes; never those it is measured by.

They are cropped, mirrored and recoloured at random. True boxes come from files of boxes, and are tensors by row, with
names that people use.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.batch import SceneBatch
from sightline.data import boxes_jsonl, coco, entities
from sightline.data.boxes_jsonl import COCO_80, MachineBoxes
from sightline.data.coco import InstancePhoto
from sightline.data.entities import EntitiesPhoto, PixelBox
from sightline.data.formats import identify
from sightline.data.image_list import photo_number, read_names
from sightline.data.photo_folder import photo_files
from sightline.data.records import CaptionedPhoto
from sightline.errors import ConfigError, CountError, ImageError, SightlineError, plural
from sightline.files import PathLike, existing_path
from sightline.photo import Pixels
from sightline.training.data_config import BoxedPhotos, DataConfig
from sightline.training.features import match_all, match_some
from sightline.training.tensor_tables import Pool
from sightline.vision.concept_names import concept_names, name_of
from sightline.vision.grid_encoder import cell_parts
from sightline.vision.images import read_pixels
from sightline.vision.photo_reader import Progress, left_out, progress_bar
from sightline.vision.photo_reader import read_photos as read_pictures

BOXED = "boxed"  # the pool of photos with boxes and without captions
READERS = 16  # photos that are decoded at the same time
GREY = 128  # the pixels of a photo that cannot be read
NAMES = 3  # of a box, the most frequent ones
MOST = 40  # boxes of a photo

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int16]
PhotoFiles = list[tuple[CaptionedPhoto, Path]]  # the photos of a pool, and where each is


def files_of_pools(
    config: DataConfig, photos: Mapping[str, Sequence[CaptionedPhoto]], notes: list[str]
) -> dict[str, PhotoFiles]:
    """The files of the photos of each split, and those of `data.boxed`."""
    if config.images is None:
        raise ConfigError("a model that sees photos at every step needs them", fix="give data.images")
    folder = existing_path(config.path(config.images))
    listed = [photo for part in photos.values() for photo in part]
    fix = "check that captions and photos are named alike, or say --allow-missing"
    file_of, missing = match_all(config, listed, photo_files(folder), folder, "are not there", fix)
    if missing:
        notes.append(f"In {folder}, {missing}. They are left out.")
    pools: dict[str, PhotoFiles] = {}
    for role, part in photos.items():
        files = [(photo, folder / file_of[photo.id]) for photo in part if photo.id in file_of]
        if files:
            pools[role] = files[: config.max_photos or None]
    if config.boxed is not None:
        held_out = {photo_number(p.file or p.id) for role, part in photos.items() if role != "train" for p in part}
        pools[BOXED] = _find_boxed(config, config.boxed, held_out, notes)
    return pools


def _find_boxed(config: DataConfig, boxed: BoxedPhotos, held_out: set[str], notes: list[str]) -> PhotoFiles:
    """The photos with boxes and without captions; `held_out` are the numbers of those nothing may be trained on."""
    folder = existing_path(config.path(boxed.images))
    files = photo_files(folder)
    if boxed.photos is not None:
        path = config.path(boxed.photos)
        listed = [CaptionedPhoto(name, (), name) for name in read_names(path)]
        fix = "correct data.boxed.photos or data.boxed.images, or say --allow-missing"
        file_of, _ = match_all(config, listed, files, folder, f"of {path} are not there", fix)
        files = [file_of[photo.id] for photo in listed if photo.id in file_of]
    allowed = [file for file in files if photo_number(file) not in held_out]
    if len(allowed) < len(files):
        notes.append(f"{plural(len(files) - len(allowed), 'photo')} of data.boxed left out: in val or test.")
    if not allowed:
        raise CountError("no photo of data.boxed is left to train on", where=folder, fix="correct data.boxed")
    return [(CaptionedPhoto(file, (), file), folder / file) for file in allowed[: config.max_photos or None]]


def boxes_of_pools(
    config: DataConfig, pools: Mapping[str, PhotoFiles], notes: list[str]
) -> dict[str, list[PhotoBoxes]]:
    """The boxes of the photos of `train` and `boxed`; those of other photos are not read."""
    sources = {"train": config.boxes, BOXED: None if config.boxed is None else config.boxed.boxes}
    boxes_of: dict[str, list[PhotoBoxes]] = {}
    for pool, source in sources.items():
        if source is None or pool not in pools:
            continue
        path, photos = config.path(source), [photo for photo, _ in pools[pool]]
        ids, boxes = read_boxes(path)
        id_of = match_some(photos, ids, path, fix="photos and boxes must be named alike")
        boxes_of[pool] = [boxes(id_of[photo.id]) if photo.id in id_of else NO_BOXES for photo in photos]
        named = sum(int((photo.names[:, 0] >= 0).sum()) for photo in boxes_of[pool])
        total = sum(len(photo.boxes) for photo in boxes_of[pool])
        notes.append(
            f"{len(id_of):,} of {plural(len(photos), 'photo')} of {pool} are in {path}: "
            f"{total:,} boxes, {named:,} of them with a name."
        )
    return boxes_of


class PixelTable:
    """Scenes that hold pixels, of photos squashed to squares of `size`.

    A photo that turns out to be unreadable becomes grey and has no boxes; training goes on, with a warning.
    `keep` keeps pixels in memory once they were read (size² · 3 bytes a photo); `true_boxes` are those that
    people or a machine drew; `cells` gives also the boxes of the cells that a grid backbone will make of them.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        ids: Sequence[str],
        size: int,
        *,
        keep: bool = False,
        true_boxes: BoxTable | None = None,
        cells: bool = True,
    ) -> None:
        self.paths, self.ids, self.size, self.true_boxes, self.cells = tuple(paths), tuple(ids), size, true_boxes, cells
        self.readable = np.arange(len(ids))  # the photos that rows count
        self._sizes = np.zeros((len(ids), 2), np.int64)
        self._bad: set[int] = set()
        self._cache: Pixels | None = np.empty((len(ids), size, size, 3), np.uint8) if keep else None
        self._cached: npt.NDArray[np.bool_] = np.zeros(len(ids), np.bool_)
        self._readers = ThreadPoolExecutor(READERS)

    def __len__(self) -> int:
        return len(self.readable)

    def read_all(self, bad: Callable[[SightlineError], None], progress: Progress = iter) -> None:
        """Read all photos into memory at once; those that cannot be read are left out, and `bad` gets their errors."""
        assert self._cache is not None
        row_of: dict[PathLike, int] = {path: row for row, path in enumerate(self.paths)}
        for photo in read_pictures(self.paths, self.size, bad=bad, progress=progress):
            row = row_of[photo.path]
            self._cache[row], self._sizes[row], self._cached[row] = photo.pixels, photo.size, True
        self.readable = np.flatnonzero(self._cached)

    def batch(self, rows: Tensor) -> SceneBatch:
        """The photos of `rows`: pixels (B, 3, size, size), uint8, channels last in memory; boxes where known."""
        chosen = self.readable[rows.numpy()]
        pixels = self._pixels(chosen).permute(0, 3, 1, 2)
        parts: dict[str, Any] = {} if self.true_boxes is None else dict(self.true_boxes.batch(torch.from_numpy(chosen)))
        if parts and self._bad:
            parts["true_box_mask"][[row in self._bad for row in chosen.tolist()]] = False
        if self.cells:
            parts |= cell_parts(pixels)
        ids, sizes = tuple(self.ids[row] for row in chosen), torch.from_numpy(self._sizes[chosen])
        return SceneBatch(ids=ids, pixels=pixels, sizes=sizes, **parts)

    def _pixels(self, rows: npt.NDArray[np.int64]) -> Tensor:
        """(B, size, size, 3), in memory that a GPU fetches by itself while it computes."""
        batch = torch.empty(len(rows), self.size, self.size, 3, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
        if self._cache is None:
            np.stack(list(self._readers.map(self._read, rows.tolist())), out=batch.numpy())
            return batch
        missing = np.unique(rows[~self._cached[rows]])
        for row, pixels in zip(missing, self._readers.map(self._read, missing.tolist()), strict=True):
            self._cache[row], self._cached[row] = pixels, True
        self._cache.take(rows, axis=0, out=batch.numpy(), mode="clip")  # `raise` would go through memory of its own
        return batch

    def _read(self, row: int) -> Pixels:
        try:
            pixels, self._sizes[row] = read_pixels(self.paths[row], self.size)
        except SightlineError as error:
            if row not in self._bad:
                self._bad.add(row)
                warnings.warn(f"{error} A grey picture takes its place.", stacklevel=2)
            return np.full((self.size, self.size, 3), GREY, np.uint8)
        return pixels


def pixel_pools(
    config: DataConfig,
    photos: Mapping[str, Sequence[CaptionedPhoto]],
    size: int,
    notes: list[str],
    *,
    cells: bool = True,
) -> dict[str, Pool]:
    """The photos of each split, and of `data.boxed`, as pixels; with their boxes where they are trained on.

    Photos that are not in `data.images` are an error, unless allowed. Where `data.cache` is `memory` all are read now,
    and those that cannot be read are left out; where it is `auto`, they are kept once they were read, if they fit.
    """
    files = files_of_pools(config, photos, notes)
    gigabytes = sum(map(len, files.values())) * 3 * size**2 / (1 << 30)
    keep = config.cache == "memory" or (config.cache == "auto" and gigabytes <= config.budget)
    where = f", and kept in memory: {gigabytes:.2f} GiB." if keep else ", from disk as they are needed."
    notes.append(f"Photos are read at {size} × {size} pixels{where}")
    tables = {role: BoxTable.build(boxes) for role, boxes in boxes_of_pools(config, files, notes).items()}
    for role, boxes in tables.items():
        if boxes.cut:
            notes.append(f"Of {role}, boxes beyond {MOST} of a photo are left out: {boxes.cut:,}.")
    pools = {}
    for role, part in files.items():
        ids = [photo.id for photo, _ in part]
        table = PixelTable([path for _, path in part], ids, size, keep=keep, true_boxes=tables.get(role), cells=cells)
        if config.cache == "memory":
            _read_now(table, role, notes)
        pools[role] = Pool(tuple(ids[row] for row in table.readable), table)
    return pools


def _read_now(table: PixelTable, role: str, notes: list[str]) -> None:
    bad: list[SightlineError] = []
    start = time.monotonic()
    table.read_all(bad.append, progress_bar(f"Reading photos of {role}"))
    if not len(table):
        raise ImageError(f"no photo of {role} can be read", where=bad[0].where, fix=bad[0].fix)
    notes.append(f"{plural(len(table), 'photo')} of {role} read in {time.monotonic() - start:.0f} s.")
    if bad:
        notes.append(f"Of {role}, {left_out(bad)}")


def random_windows(least: Tensor) -> Tensor:
    """(B, 4) random crops; each side is a random share of the photo's, `least` (B,) or more."""
    sides = least[:, None] + (1 - least[:, None]) * torch.rand(len(least), 2, device=least.device)
    corner = torch.rand(len(least), 2, device=least.device) * (1 - sides)
    return torch.cat([corner, corner + sides], 1)


def cut_windows(windows: Tensor, flipped: Tensor, pixels: Tensor, size: int) -> Tensor:
    """The windows (B, 4) of photos (B, 3, H, W) as squares (B, 3, size, size), mirrored where `flipped`."""
    steps = (torch.arange(size, device=pixels.device) + 0.5) / size
    x1, y1, x2, y2 = windows.unbind(1)
    across = torch.where(flipped[:, None], 1 - steps, steps)
    x = x1[:, None] + across * (x2 - x1)[:, None]  # (B, size)
    y = y1[:, None] + steps * (y2 - y1)[:, None]
    grid = torch.stack([x[:, None].expand(-1, size, -1), y[:, :, None].expand(-1, -1, size)], -1)
    photos = pixels.float().contiguous(memory_format=torch.channels_last)
    return F.grid_sample(photos, 2 * grid - 1, padding_mode="border", align_corners=False)


def recolour(pixels: Tensor, most: float) -> Tensor:
    """Photos (B, 3, H, W) of 0 to 255 whose brightness, contrast and saturation are multiplied by 1 ± `most`."""
    light, contrast, colour = (1 + most * (2 * torch.rand(3, len(pixels), 1, 1, 1, device=pixels.device) - 1)).unbind()
    grey = pixels.mean(1, keepdim=True)
    pixels = grey + colour * (pixels - grey)
    middle = grey.mean((2, 3), keepdim=True)
    return (light * (middle + contrast * (pixels - middle))).clamp(0, 255)


class PhotoBoxes(NamedTuple):
    """The boxes of one photo: (n, 4) normalised, (n, 3) ids of their names (-1: no more), (n,) their weights."""

    boxes: Floats
    names: Ids
    weights: Floats


NO_BOXES = PhotoBoxes(np.zeros((0, 4), np.float32), np.zeros((0, NAMES), np.int16), np.zeros(0, np.float32))


def read_boxes(path: Path) -> tuple[tuple[str, ...], Callable[[str], PhotoBoxes]]:
    """The photos of Flickr30k Entities, COCO's `instances_*.json` or a machine's `boxes-jsonl`; what gives their boxes.

    People's boxes weigh 1, a machine's its score. Names are places in `concept_names()`.
    """
    index = {name: id for id, name in enumerate(concept_names())}
    kind = identify(path)
    if kind is entities.FORMAT:
        annotated = entities.read_photos(path)
        return tuple(annotated), lambda id: of_entities(annotated[id], index)
    if kind is coco.INSTANCES:
        drawn = coco.read_instances(path)
        return tuple(drawn), lambda id: of_instances(drawn[id], index)
    if kind is boxes_jsonl.FORMAT:
        machine = boxes_jsonl.read(path)
        classes = np.array([index.get(name, -1) for name in COCO_80], np.int16)
        return tuple(machine.ids()), lambda id: of_machine(machine, id, classes)
    fix = "give Flickr30k Entities, COCO's instances_*.json, or machine-made boxes (`sightline data formats`)"
    raise ConfigError(f"{kind.name} holds no boxes with names", where=path, fix=fix)


def of_entities(photo: EntitiesPhoto, index: Mapping[str, int]) -> PhotoBoxes:
    """The boxes of all chains, named by the phrases of the five captions, the most frequent names first.

    A box whose phrases end in no known name is a box without one. Pixels are those of the original size.
    """
    names_of: dict[str, Counter[int]] = {}
    for sentence in photo.sentences:
        for phrase in sentence.phrases:
            name = name_of(phrase.words, index) if phrase.chain in photo.boxes else None
            if name is not None:
                names_of.setdefault(phrase.chain, Counter())[index[name]] += 1
    of_box: dict[PixelBox, Counter[int]] = {}  # one box may belong to two chains
    for chain, boxes in photo.boxes.items():
        for box in boxes:
            of_box.setdefault(box, Counter()).update(names_of.get(chain, Counter()))
    width, height = photo.size
    corners: Floats = np.array(list(of_box), np.float32).reshape(-1, 4)
    corners[:, 2:] += 1  # the last pixel is inside
    ids = [[id for id, _ in counts.most_common(NAMES)] for counts in of_box.values()]
    corners /= np.array([width, height, width, height], np.float32)
    return _photo_boxes(corners, ids, np.ones(len(ids), np.float32))


def of_instances(photo: InstancePhoto, index: Mapping[str, int]) -> PhotoBoxes:
    """The boxes that people drew; those around crowds are left out."""
    single = [instance for instance in photo.instances if not instance.crowd]
    boxes = np.array([instance.box for instance in single], np.float32).reshape(-1, 4)
    ids = [[index[instance.name]] if instance.name in index else [] for instance in single]
    return _photo_boxes(boxes, ids, np.ones(len(single), np.float32))


def of_machine(machine: MachineBoxes, id: str, classes: Ids) -> PhotoBoxes:
    """A machine's boxes; `classes` are the ids of COCO's 80 classes."""
    rows = machine.rows(id)
    return _photo_boxes(rows[:, 2:] / np.float32(1000), classes[rows[:, 0].astype(np.int64), None], rows[:, 1])


def _photo_boxes(boxes: Floats, ids: Sequence[Sequence[int]] | Ids, weights: Floats) -> PhotoBoxes:
    names = np.full((len(boxes), NAMES), -1, np.int16)
    for row, ids_of_box in zip(names, ids, strict=True):
        row[: len(ids_of_box)] = ids_of_box
    return PhotoBoxes(boxes, names, weights)


@dataclass(frozen=True, eq=False)
class BoxTable:
    """The boxes of all photos of a split, padded."""

    boxes: Tensor  # (P, m, 4) normalised
    names: Tensor  # (P, m, 3) ids, -1 where there are no more
    weights: Tensor  # (P, m), 0 in padding
    counts: Tensor  # (P,) boxes of each photo
    cut: int = 0  # boxes that were left out, of photos with more than the most

    @classmethod
    def build(cls, photos: Sequence[PhotoBoxes], most: int = MOST) -> BoxTable:
        """Stack and pad; at most `most` boxes of a photo, the heaviest, then the largest; none without area."""
        kept, cut = list[PhotoBoxes](), 0
        for photo in photos:
            sides = photo.boxes[:, 2:] - photo.boxes[:, :2]
            real = np.flatnonzero((sides > 0).all(1))
            order = np.sort(real[np.lexsort((-sides[real].prod(1), -photo.weights[real]))[:most]])
            kept.append(PhotoBoxes(photo.boxes[order], photo.names[order], photo.weights[order]))
            cut += len(real) - len(order)
        counts = [len(photo.boxes) for photo in kept]
        longest = max([1, *counts])
        boxes = np.zeros((len(kept), longest, 4), np.float32)
        names = np.full((len(kept), longest, NAMES), -1, np.int16)
        weights = np.zeros((len(kept), longest), np.float32)
        for row, photo in enumerate(kept):
            boxes[row, : counts[row]] = photo.boxes
            names[row, : counts[row]] = photo.names
            weights[row, : counts[row]] = photo.weights
        lengths = torch.tensor(counts, dtype=torch.long)
        return cls(torch.from_numpy(boxes), torch.from_numpy(names), torch.from_numpy(weights), lengths, cut)

    def __len__(self) -> int:
        return len(self.counts)

    def batch(self, rows: Tensor) -> dict[str, Tensor]:
        """The parts of a SceneBatch that detectors learn from, as wide as the photo with most boxes needs."""
        counts = self.counts[rows]
        longest = max(1, int(counts.max()))
        return {
            "true_boxes": self.boxes[rows, :longest],
            "true_box_mask": torch.arange(longest) < counts[:, None],
            "true_box_names": self.names[rows, :longest].long(),
            "true_box_weights": self.weights[rows, :longest],
        }
