"""Where each word looked: attention over regions or over the grid, one panel a word."""

from __future__ import annotations

from typing import Literal

import numpy as np
from PIL import Image

from sightline.caption import Caption, WordTrace
from sightline.draw.canvas import (
    COLOURS,
    GAP,
    SOFT,
    Photo,
    checked_width,
    column,
    fitted,
    heat,
    sheet,
    wrapped,
)
from sightline.draw.photo_boxes import outline, pixels
from sightline.draw.text_layout import BODY, SMALL, Span, text_block, words_of
from sightline.errors import ConfigError, CountError, DataError, MissingPartError, NonFiniteError
from sightline.scene import Array, Box, Scene
from sightline.vision.images import open_image

Over = Literal["regions", "grid"]


def attention_panels(
    photo: Photo,
    caption: Caption,
    scene: Scene,
    over: Over = "regions",
    width: int = 960,
    columns: int = 4,
    one_scale: bool = False,
) -> Image.Image:
    """One panel a word: what it attended to glows, and over regions the most attended one is outlined.

    Each panel is scaled to its own maximum, as in the papers' figures, and the largest weight stands under the word;
    with `one_scale` all panels share one, so that faint attention looks faint. A word without attention, or with none
    above zero, gets the dimmed photo.
    """
    return sheet(panels(photo, caption, scene, over, checked_width(width), columns, one_scale))


def panels(
    photo: Photo, caption: Caption, scene: Scene, over: Over, width: int, columns: int, one_scale: bool = False
) -> Image.Image:
    """The panels alone, without a margin."""
    if not 1 <= columns <= width // 64:
        raise ConfigError(f"{columns} panels do not fit side by side into {width} pixels", fix="choose fewer columns")
    traces = zip(caption.words, caption.trace, strict=bool(caption.trace))
    attended = [(word, attention_of(word, trace, scene, over)) for word, trace in traces]
    if all(weights is None for _, weights in attended):
        raise MissingPartError(
            f"no word of this caption has attention over {over}",
            where=caption.text,
            fix=f"draw the caption of a model that attends to {over}, with its trace",
        )
    room = (width - GAP * (columns - 1)) // columns
    small = fitted(open_image(photo), room)
    maps = [_map(weights, scene, over, small.size) for _, weights in attended]
    top = max(float(glow.max()) for glow in maps) if one_scale else None
    cells = [
        _panel(overlay(small, glow, top), word, weights, scene.boxes if over == "regions" else None, room)
        for (word, weights), glow in zip(attended, maps, strict=True)
    ]
    return wrapped(cells, width)


def _map(weights: Array | None, scene: Scene, over: Over, size: tuple[int, int]) -> Array:
    if weights is None:
        return np.zeros((size[1], size[0]))
    if over == "grid":
        return grid_map(weights, grid_shape(scene, len(weights)), size)
    assert scene.boxes is not None
    return region_map(scene.boxes, weights, size)


def _panel(shown: Image.Image, word: str, weights: Array | None, boxes: Array | None, room: int) -> Image.Image:
    if weights is None or not weights.any():
        told = "no attention"
    elif boxes is None:
        told = f"at most {weights.max():.2f}"
    else:
        best = int(weights.argmax())
        outline(shown, pixels(as_box(boxes[best]), shown.size), COLOURS[0], 2)
        told = f"region {best}: {weights[best]:.2f}"
    head = text_block([Span(word, bold=True)], room, BODY, "centre")
    return column([shown, column([head, text_block(words_of(told, SOFT), room, SMALL, "centre")], 0)], 8, "centre")


def attention_of(word: str, trace: WordTrace, scene: Scene, over: Over) -> Array | None:
    """A word's attention, checked against the scene: one finite weight of zero or more for each region or cell."""
    weights: Array | None = getattr(trace, over)
    if weights is None:
        return None
    if over == "regions":
        scene.require("boxes", by="a picture of region attention")
    expected = len(scene) if over == "regions" else int(np.prod(grid_shape(scene, len(weights))))
    checked = check_weights(weights, expected, f"the attention of “{word}” in {scene.where}")
    if (checked < 0).any():
        raise DataError(
            f"attention of “{word}” has negative weights", where=scene.where, fix="give weights after the softmax"
        )
    return checked


def check_weights(weights: Array, expected: int, where: str) -> Array:
    """`weights` as float64, refused unless there are `expected` of them and all are finite."""
    if np.shape(weights) != (expected,):
        raise CountError(
            f"{expected} weights were expected, and the array has shape {np.shape(weights)}",
            where=where,
            fix="draw with the scene that the caption was made from",
        )
    checked = np.asarray(weights, dtype=np.float64)
    if not np.isfinite(checked).all():
        raise NonFiniteError("the weights hold NaN or infinity", where=where, fix="check the model that made them")
    return checked


def grid_shape(scene: Scene, cells: int) -> tuple[int, int]:
    """Rows and columns of the grid: the scene's, or a square where the scene does not hold its grid."""
    if scene.grid_shape is not None:
        return scene.grid_shape
    side = round(cells**0.5)
    if side * side != cells:
        raise MissingPartError(
            f"{cells} grid weights make no square, and the scene does not say its grid's shape",
            where=scene.where,
            fix="give the scene with its `grid` and `grid_shape`",
        )
    return side, side


def region_map(boxes: Array, weights: Array, size: tuple[int, int]) -> Array:
    """(height, width): at each pixel the sum of the weights of all regions it lies in.

    Args:
        boxes: (n, 4) normalised x1 y1 x2 y2.
        weights: (n,).
        size: width and height of the picture.
    """
    width, height = size
    steps = np.zeros((height + 1, width + 1))  # a box adds at its upper left, takes back at its other corners
    for box, weight in zip(boxes, weights, strict=True):
        left, top, right, bottom = pixels(as_box(box), size)
        steps[[top, bottom], [left, right]] += weight
        steps[[top, bottom], [right, left]] -= weight
    summed: Array = steps.cumsum(0).cumsum(1)[:height, :width]
    return np.maximum(summed, 0.0)


def grid_map(weights: Array, shape: tuple[int, int], size: tuple[int, int]) -> Array:
    """(height, width): grid weights, row by row, smoothly enlarged to the picture."""
    cells = Image.fromarray(np.asarray(weights, dtype=np.float32).reshape(shape))
    return np.maximum(np.asarray(cells.resize(size, Image.Resampling.BICUBIC), dtype=np.float64), 0.0)


def overlay(photo: Image.Image, weights: Array, top: float | None = None) -> Image.Image:
    """`photo` dimmed, glowing where `weights` (height, width) are large; `top` glows most (default: their maximum)."""
    most = (weights.max() if top is None else top) or 1.0
    scaled = np.clip(weights / most, 0, 1).astype(np.float32)[..., None]
    colour = np.asarray(photo, dtype=np.float32)
    grey = (colour @ np.array([0.299, 0.587, 0.114], dtype=np.float32))[..., None]
    lit = (0.6 + 0.4 * scaled) * (0.35 * colour + 0.65 * grey)
    blended = lit * (1 - 0.62 * scaled) + heat(scaled[..., 0]) * 0.62 * scaled
    return Image.fromarray(blended.round().astype(np.uint8))


def as_box(box: Array) -> Box:
    """A row of an array of boxes as a plain box."""
    x1, y1, x2, y2 = (float(value) for value in box)
    return x1, y1, x2, y2
