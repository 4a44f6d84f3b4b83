"""Ground-truth boxes of photos and their names: from files of boxes to tensors by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.data import boxes_jsonl, coco, entities
from sightline.data.boxes_jsonl import COCO_80, MachineBoxes
from sightline.data.coco import InstancePhoto
from sightline.data.entities import EntitiesPhoto, PixelBox
from sightline.data.formats import identify
from sightline.errors import ConfigError
from sightline.vision.concept_names import concept_names, name_of

NAMES = 3  # of a box, the most frequent ones
MOST = 40  # boxes of a photo

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int16]


class PhotoBoxes(NamedTuple):
    """The boxes of one photo: (n, 4) normalised, (n, 3) ids of their names (-1: no more), (n,) their weights."""

    boxes: Floats
    names: Ids
    weights: Floats


NO_BOXES = PhotoBoxes(np.zeros((0, 4), np.float32), np.zeros((0, NAMES), np.int16), np.zeros(0, np.float32))


@dataclass(frozen=True, eq=False)
class BoxFile:
    """A file of boxes: the ids of its photos, and the boxes of each."""

    ids: tuple[str, ...]
    of: Callable[[str], PhotoBoxes]


def read_boxes(path: Path) -> BoxFile:
    """The boxes of Flickr30k Entities, of COCO's `instances_*.json`, or of a machine (`boxes-jsonl`).

    People's boxes weigh 1, a machine's its score. Names are places in `concept_names()`.
    """
    index = {name: id for id, name in enumerate(concept_names())}
    kind = identify(path)
    if kind is entities.FORMAT:
        annotated = entities.read_photos(path)
        return BoxFile(tuple(annotated), lambda id: of_entities(annotated[id], index))
    if kind is coco.INSTANCES:
        drawn = coco.read_instances(path)
        return BoxFile(tuple(drawn), lambda id: of_instances(drawn[id], index))
    if kind is boxes_jsonl.FORMAT:
        machine = boxes_jsonl.read(path)
        classes = np.array([index.get(name, -1) for name in COCO_80], np.int16)
        return BoxFile(tuple(machine.ids()), lambda id: of_machine(machine, id, classes))
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
        real = [_with_area(photo) for photo in photos]
        kept = [_heaviest(photo, most) for photo in real]
        counts = [len(photo.boxes) for photo in kept]
        cut = sum(len(photo.boxes) for photo in real) - sum(counts)
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


def _with_area(photo: PhotoBoxes) -> PhotoBoxes:
    real = (photo.boxes[:, 2:] > photo.boxes[:, :2]).all(1)
    return PhotoBoxes(photo.boxes[real], photo.names[real], photo.weights[real])


def _heaviest(photo: PhotoBoxes, most: int) -> PhotoBoxes:
    """At most so many boxes, in their order."""
    areas = (photo.boxes[:, 2:] - photo.boxes[:, :2]).prod(1)
    order = np.sort(np.lexsort((-areas, -photo.weights))[:most])
    return PhotoBoxes(photo.boxes[order], photo.names[order], photo.weights[order])
