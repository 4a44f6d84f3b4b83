"""Words against regions: SCAN's alignment as a heat map, words as rows and cut-out regions as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from sightline.draw.attention_maps import as_box
from sightline.draw.canvas import (
    COLOURS,
    LINE,
    SOFT,
    Photo,
    blank,
    checked_width,
    column,
    fitted,
    row,
    shade,
    sheet,
)
from sightline.draw.photo_boxes import Mark, draw_boxes, pixels
from sightline.draw.text_layout import BODY, SMALL, Span, line_height, text_block, text_width, words_of
from sightline.errors import ConfigError, CountError, DataError, NonFiniteError
from sightline.scene import Array, Scene
from sightline.vision.images import open_image


def word_region_matrix(
    photo: Photo, scene: Scene, words: Sequence[str], weights: Array, most: int = 12, width: int = 960
) -> Image.Image:
    """A row a word, a column a region; darker is more, and each word's largest weight is outlined.

    Only the `most` regions with the largest weight for any word are shown, in the scene's order, numbered as there.
    Cosines may be negative: the lightest cell is then the smallest one.

    Args:
        photo: the photo, for the cut-out regions.
        scene: its boxes.
        words: the sentence.
        weights: (words, regions) attention or similarity.
        most: how many regions to show.
        width: of the picture's inside, in pixels.
    """
    weights = _checked(scene, words, weights)
    if most < 1:
        raise ConfigError(f"`most` is {most}: no region would be shown", fix="show one or more")
    kept = np.sort(np.argsort(-weights.max(axis=0), kind="stable")[:most])
    whole = open_image(photo)
    assert scene.boxes is not None
    boxes = [as_box(scene.boxes[i]) for i in kept]
    label = min(checked_width(width) // 4, max(text_width(word, BODY) for word in words))
    cell = max(12, min(72, (width - label - 12) // len(kept) - 2))
    thumbnails = row(
        [_thumbnail(whole.crop(pixels(box, whole.size)), i, cell) for i, box in zip(kept, boxes, strict=True)], 2
    )
    low, high = min(0.0, float(weights.min())), float(weights.max())
    scaled = (weights[:, kept] - low) / ((high - low) or 1.0)
    lines = [_row(word, values, label, cell) for word, values in zip(words, scaled, strict=True)]
    marks = [Mark(box, str(i), COLOURS[n % len(COLOURS)]) for n, (i, box) in enumerate(zip(kept, boxes, strict=True))]
    note = f"{len(kept)} of {len(scene)} regions; lightest is {low:.2f}, darkest {high:.2f}"
    table = column([row([blank(label, 1), thumbnails], 12), *lines], 2)
    return sheet(draw_boxes(fitted(whole, width // 2), marks, 2), table, text_block(words_of(note, SOFT), width, SMALL))


def _checked(scene: Scene, words: Sequence[str], weights: Array) -> Array:
    scene.require("boxes", by="a picture of words and regions")
    if not words or not len(scene):
        missing = "words" if not words else "regions"
        raise DataError(f"there are no {missing} to draw a matrix of", where=scene.where, fix=f"give some {missing}")
    if np.shape(weights) != (len(words), len(scene)):
        raise CountError(
            f"{len(words)} words and {len(scene)} regions with weights of shape {np.shape(weights)}",
            where=scene.where,
            fix="give (words, regions) weights of this sentence and this scene",
        )
    checked = np.asarray(weights, dtype=np.float64)
    if not np.isfinite(checked).all():
        raise NonFiniteError(
            "the weights hold NaN or infinity", where=scene.where, fix="check the model that made them"
        )
    return checked


def _thumbnail(region: Image.Image, number: int, cell: int) -> Image.Image:
    square = Image.new("RGB", (cell, cell), LINE)
    small = region.resize(
        (max(1, round(region.width * cell / max(region.size))), max(1, round(region.height * cell / max(region.size))))
    )
    square.paste(small, ((cell - small.width) // 2, (cell - small.height) // 2))
    return column([square, text_block([Span(str(number), SOFT)], cell, SMALL, "centre")], 2)


def _row(word: str, values: Array, label: int, cell: int) -> Image.Image:
    head = text_block([Span(word)], label, BODY, "end")
    height = max(head.height, min(cell, line_height(BODY) + 8))
    cells = blank(len(values) * (cell + 2) - 2, height)
    draw = ImageDraw.Draw(cells)
    for i, value in enumerate(values):
        box = (i * (cell + 2), 0, i * (cell + 2) + cell - 1, height - 1)
        draw.rectangle(
            box, fill=shade(value), outline=COLOURS[4] if values.max() > 0 and i == values.argmax() else None, width=2
        )
    return row([head, cells], 12, "centre")
