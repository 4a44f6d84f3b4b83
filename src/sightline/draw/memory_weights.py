"""R²M's memory at work (Fig. 5): the weights of the fusion memory and of the relational memory under each word."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageDraw

from sightline.caption import Caption
from sightline.draw.canvas import (
    BESIDE,
    INK,
    SOFT,
    Photo,
    blank,
    checked_width,
    column,
    fitted,
    ink_on,
    row,
    rows_of,
    shade,
    sheet,
)
from sightline.draw.gates import gate_values
from sightline.draw.text_layout import BODY, SMALL, TINY, Span, font, line_height, text_block, text_width
from sightline.errors import DataError
from sightline.scene import Array
from sightline.vision.images import open_image

_SOURCES = {"fusion": ("v", "w"), "memory": ("M", "f")}
_CELL, _KEY, _GAP = 34, 64, 14


def memory_weights(caption: Caption, photo: Photo | None = None, width: int = 960) -> Image.Image:
    """Per word the 2 × 2 weights of the fusion memory and the H × 2 weights of the relational memory; darker is more.

    `gates["fusion"]` is [[v from v, v from w], [w from v, w from w]] with v the concepts and w the previous word;
    `gates["memory"]` has a row a head: [memory from memory, memory from f]. Of a model without one of the two memories,
    the other is shown.
    """
    held = [name for name in _SOURCES if any(name in trace.gates for trace in caption.trace)] or list(_SOURCES)
    weights = {name: _matrices(caption, name) for name in held}
    steps = [_step(word, {name: weights[name][t] for name in held}) for t, word in enumerate(caption.words)]
    key = _key({name: len(weights[name][0]) for name in held})
    rows = rows_of([step.width for step in steps], checked_width(width, BESIDE) - key.width - _GAP, _GAP)
    table = column((row([key, *(steps[i] for i in items)], _GAP) for items in rows), 28)
    return sheet(table) if photo is None else sheet(fitted(open_image(photo), width // 3), table)


def _matrices(caption: Caption, name: str) -> list[Array]:
    values = gate_values(caption, name)
    rows = 2 if name == "fusion" else len(np.atleast_1d(values[0]))
    for value in values:
        if value.shape != (rows, 2):
            raise DataError(
                f"the gate `{name}` has shape {value.shape}, ({rows}, 2) was expected",
                where=caption.text,
                fix="keep the last two dimensions of the model's weights",
            )
    return values


def heat_cells(weights: Array, cell: int = _CELL) -> Image.Image:
    """A matrix as a block of cells with their values, one pixel apart."""
    rows, columns = weights.shape
    block = blank(columns * cell + columns - 1, rows * cell + rows - 1)
    draw = ImageDraw.Draw(block)
    for (r, c), weight in np.ndenumerate(weights):
        left, top, fill = c * (cell + 1), r * (cell + 1), shade(float(weight))
        draw.rectangle((left, top, left + cell - 1, top + cell - 1), fill=fill)
        middle = (left + cell / 2, top + cell / 2)
        draw.text(middle, f"{weight:.2f}"[-4:], ink_on(fill), font(TINY), anchor="mm")
    return block


def _step(word: str, weights: Mapping[str, Array]) -> Image.Image:
    cells = 2 * _CELL + 1
    head = text_block([Span(word, bold=True)], max(cells, min(160, text_width(word, BODY, bold=True))), BODY, "centre")
    parts = [head]
    for name, matrix in weights.items():
        sources = row([text_block([Span(source, SOFT)], _CELL, SMALL, "centre") for source in _SOURCES[name]], 1)
        parts.append(column([sources, heat_cells(matrix)], 2))
    return column(parts, 8, "centre")


def _key(heights: Mapping[str, int]) -> Image.Image:
    """What the rows mean, set as high as the rows of `_step`."""
    parts = [blank(1, line_height(BODY))]
    for name, height in heights.items():
        told = ["v from", "w from"] if name == "fusion" else [f"head {n + 1}" for n in range(height)]
        title = text_block([Span(name, INK, bold=True)], _KEY, SMALL, "end")
        parts.append(column([title, column([_beside_cell(text) for text in told], 1)], 2))
    return column(parts, 8, "end")


def _beside_cell(name: str) -> Image.Image:
    cell = blank(_KEY, _CELL)
    cell.paste(text_block([Span(name, SOFT)], _KEY, SMALL, "end"), (0, (_CELL - line_height(SMALL)) // 2))
    return cell
