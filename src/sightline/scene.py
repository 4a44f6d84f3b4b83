"""`Scene`: what vision saw in one photo. The currency between files, vision and models. numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.errors import BoxError, CountError, DataError, MissingPartError, NonFiniteError, about

Array = npt.NDArray[np.floating[Any]]
Box = tuple[float, float, float, float]

ARRAYS = {"boxes": 2, "scores": 1, "regions": 2, "grid": 2, "vector": 1}  # parts that are arrays, and their dimensions
# What supplies each part; errors about a missing part quote it.
SUPPLIERS = {
    "boxes": "features stored together with their boxes (bottom-up tsv, npz with `boxes`, cocobu_box)",
    "scores": "a detector's confidences (npz with `cls_prob`, or the default vision model)",
    "regions": "region features (bottom-up tsv, npz, hdf5, precomp files, or the default vision model)",
    "grid": "grid features (the default vision model; region files do not hold them)",
    "vector": "a global vector (cocobu_fc folders, or the default vision model)",
    "concepts": "concept names (R2M concept files, or the default vision model)",
    "size": "the image size in pixels (bottom-up tsv, COCO json, Entities xml, or the photo itself)",
}


@dataclass(frozen=True)
class Concept:
    """A named thing in the picture; `box` is normalised xyxy, or None where only the name is known."""

    name: str
    score: float = 1.0
    box: Box | None = None


@dataclass(frozen=True, eq=False)
class Scene:
    """What vision saw. Any part may be absent; a model says with `require` which parts it needs.

    Regions keep their stored order everywhere. Where scores exist, that order is descending score.

    Attributes:
        id: the image id or file name, as text.
        boxes: (n, 4) normalised x1 y1 x2 y2 in [0, 1].
        scores: (n,) confidence of each region, descending.
        regions: (n, d) region features.
        grid: (h·w, d) grid features, row by row; `grid_shape` is (h, w).
        vector: (d,) one vector for the whole picture.
        concepts: names with scores.
        size: (width, height) in pixels of the image the boxes refer to.
        fingerprint: which vision model and box rule made this; "" if unknown.
    """

    id: str
    boxes: Array | None = None
    scores: Array | None = None
    regions: Array | None = None
    grid: Array | None = None
    grid_shape: tuple[int, int] | None = None
    vector: Array | None = None
    concepts: tuple[Concept, ...] = ()
    size: tuple[int, int] | None = None
    fingerprint: str = ""
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        with about(self.where):
            for name, ndim in ARRAYS.items():
                part = getattr(self, name)
                if part is not None and part.ndim != ndim:
                    raise DataError(f"`{name}` has shape {part.shape}, {ndim} dimensions were expected")
            counts = {n: len(getattr(self, n)) for n in ("boxes", "scores", "regions") if getattr(self, n) is not None}
            if len(set(counts.values())) > 1:
                sizes = ", ".join(f"{count} {name}" for name, count in counts.items())
                raise CountError(f"parts disagree: {sizes}", fix="extract the features and boxes together")
            if (self.grid is None) != (self.grid_shape is None):
                raise DataError("`grid` and `grid_shape` go together")
            if self.grid is not None and self.grid_shape is not None:
                height, width = self.grid_shape
                if height * width != len(self.grid):
                    raise CountError(f"a {height}×{width} grid with {len(self.grid)} cells")
            for name in ARRAYS:
                _check_finite(name, getattr(self, name))
            if self.boxes is not None:
                check_boxes(self.boxes)
            if self.scores is not None and np.any(np.diff(self.scores.astype(np.float64)) > 0):
                raise DataError("region scores are not in descending order", fix="sort regions by score")

    @property
    def where(self) -> str:
        """File and record this scene came from, for messages."""
        return f"{self.source}, image {self.id}" if self.source else f"image {self.id}"

    def __len__(self) -> int:
        for part in (self.regions, self.boxes, self.scores):
            if part is not None:
                return len(part)
        return 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scene):
            return NotImplemented
        plain = ("id", "grid_shape", "concepts", "size", "fingerprint")
        return all(getattr(self, name) == getattr(other, name) for name in plain) and all(
            _same(getattr(self, name), getattr(other, name)) for name in ARRAYS
        )

    __hash__ = None  # type: ignore[assignment]

    def parts(self) -> tuple[str, ...]:
        """The names of the parts this scene has."""
        present = [n for n in SUPPLIERS if n != "concepts" and getattr(self, n) is not None]
        return (*present, "concepts") if self.concepts else tuple(present)

    def require(self, *needed: str, by: str = "this model") -> Scene:
        """Return the scene if it has every part named, else raise a MissingPartError that says what would supply it."""
        parts = self.parts()
        for name in needed:
            if name not in parts:
                what = f"{by} needs `{name}`, and the scene has only {', '.join(parts) or 'its id'}"
                raise MissingPartError(what, where=self.where, fix=f"supply {SUPPLIERS[name]}")
        return self

    def pixel_boxes(self) -> Array:
        """(n, 4) boxes in pixels of `size`."""
        self.require("boxes", "size", by="pixel_boxes")
        assert self.boxes is not None
        assert self.size is not None
        return self.boxes * np.array([*self.size, *self.size], dtype=self.boxes.dtype)


def _check_finite(name: str, part: Array | None) -> None:
    if part is None:
        return
    if part.dtype == np.float16 and part.flags.c_contiguous:  # by the exponent bits: five times as fast as isfinite
        finite = ((part.view(np.uint16) & 0x7C00) != 0x7C00).all()
    else:
        finite = np.isfinite(part).all()
    if not finite:
        what = f"`{name}` holds NaN or infinity at {np.argwhere(~np.isfinite(part))[0].tolist()}"
        raise NonFiniteError(what, fix="extract this image's features again; Sightline never replaces them silently")


def normalise_boxes(boxes: Array, size: tuple[int, int], where: str = "") -> Array:
    """Pixel xyxy boxes to [0, 1], refusing boxes in another order or of another image size.

    Detectors clip to width - 1 or to width; up to one pixel beyond the border is taken as the border.
    """
    width, height = size
    pixels = np.asarray(boxes, dtype=np.float32)
    limit = np.array([width, height, width, height], dtype=np.float32)
    with about(where):
        if width <= 0 or height <= 0:
            raise BoxError(f"the image size is {width}×{height}", fix="store the real size in pixels")
        check_order(pixels)
        if pixels.size and pixels.max() <= 1 and (pixels % 1).any() and min(size) > 16:
            fix = "store boxes in pixels of the image size"
            raise BoxError("the boxes lie in [0, 1], and pixels were expected", fix=fix)
        outside = (pixels < -1) | (pixels > limit + 1)
        if outside.any():
            row = int(np.argmax(outside.any(axis=1)))
            fix = "boxes must be x1 y1 x2 y2 in pixels of the stored image size; rescale them if the photo was resized"
            raise BoxError(f"box {row} is {_box_text(pixels[row])}, outside the {width}×{height} image", fix=fix)
    normalised: Array = np.clip(pixels / limit, 0.0, 1.0).astype(np.float32)
    return normalised


def check_order(boxes: Array, where: str = "") -> None:
    """Refuse boxes that are not (n, 4) with x1 <= x2 and y1 <= y2."""
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise BoxError(f"boxes have shape {boxes.shape}, (n, 4) was expected", where=where)
    wrong = (boxes[:, 2] < boxes[:, 0]) | (boxes[:, 3] < boxes[:, 1])
    if wrong.any():
        row = int(np.argmax(wrong))
        what = f"box {row} is {_box_text(boxes[row])}: its right or lower edge comes before its left or upper edge"
        fix = "boxes must be x1 y1 x2 y2; if yours are x y width height, add x to width and y to height"
        raise BoxError(what, where=where, fix=fix)


def check_boxes(boxes: Array, where: str = "") -> None:
    """Refuse boxes that are not normalised xyxy."""
    check_order(boxes, where)
    if boxes.size and (boxes.min() < 0 or boxes.max() > 1):
        row = int(np.argmax(((boxes < 0) | (boxes > 1)).any(axis=1)))
        fix = "divide pixel boxes by the image size (scene.normalise_boxes)"
        raise BoxError(f"box {row} is {_box_text(boxes[row])}, outside [0, 1]", where=where, fix=fix)


def box_iou(boxes: Array, others: Array, border: float = 0) -> Array:
    """(n, m) intersection over union of each of `boxes` (n, 4) with each of `others` (m, 4); 0 of two without area.

    With `border` 1, boxes are in pixels and hold their last row and column, as in Flickr30k Entities' evaluation.
    """
    a, b = np.asarray(boxes)[:, None], np.asarray(others)[None]
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]) + border
    intersection = np.clip(sides, 0, None).prod(-1)
    area_a = (a[..., 2:] - a[..., :2] + border).prod(-1)
    area_b = (b[..., 2:] - b[..., :2] + border).prod(-1)
    union = area_a + area_b - intersection
    iou: Array = intersection / np.where(union > 0, union, 1)
    return iou


def as_box(row: Array) -> Box:
    """A row of boxes (n, 4) as plain numbers."""
    x1, y1, x2, y2 = map(float, row)
    return x1, y1, x2, y2


def _box_text(box: Sequence[float] | Array) -> str:
    return "[" + ", ".join(f"{float(v):.4g}" for v in box) + "]"


def _same(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and np.array_equal(one, other)
