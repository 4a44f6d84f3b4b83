"""Gates, one bar a word: AdaptiveAttention's sentinel and JRAN's relationship gate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from sightline.caption import Caption
from sightline.draw.attention_maps import Over, panels
from sightline.draw.canvas import (
    BESIDE,
    COLOURS,
    LINE,
    SOFT,
    Colour,
    Photo,
    blank,
    checked_width,
    column,
    fitted,
    row,
    sheet,
    wrapped,
)
from sightline.draw.text_layout import BODY, SMALL, Span, text_block, text_width, words_of
from sightline.errors import DataError, MissingPartError
from sightline.scene import Array, Scene
from sightline.vision.images import open_image

VISUAL: Colour = (126, 87, 194)
VISUAL_SEMANTIC: Colour = (0, 158, 115)

_BAR_WIDTH, _BAR_HEIGHT = 32, 88


def gate_values(caption: Caption, name: str) -> list[Array]:
    """The gate `name` of every word, as arrays, refused where one is missing or outside [0, 1]."""
    if len(caption.trace) == 0 or any(name not in trace.gates for trace in caption.trace):
        has = sorted({gate for trace in caption.trace for gate in trace.gates})
        raise MissingPartError(
            f"not every word has the gate `{name}`; the caption has {', '.join(has) or 'no gates'}",
            where=caption.text,
            fix="draw the caption of a model that has this gate, with its trace",
        )
    values: list[Array] = [np.asarray(trace.gates[name], dtype=np.float64) for trace in caption.trace]
    for word, value in zip(caption.words, values, strict=True):
        if not np.isfinite(value).all() or value.min() < -1e-3 or value.max() > 1 + 1e-3:
            raise DataError(f"the gate `{name}` of “{word}” is not in [0, 1]", where=caption.text)
    return values


def sentinel_panels(
    photo: Photo, caption: Caption, scene: Scene, over: Over = "grid", width: int = 960, columns: int = 4
) -> Image.Image:
    """AdaptiveAttention: under each word a bar of 1 - β, how much it was seen rather than known; then where it looked.

    β is the weight of the sentinel, `gates["sentinel"]`.
    """
    seen = [[(1 - number(value, "sentinel", caption), COLOURS[0])] for value in gate_values(caption, "sentinel")]
    key = legend([("seen in the photo (one minus the sentinel's weight)", COLOURS[0])], checked_width(width))
    return sheet(key, _bars(caption.words, seen, width), panels(photo, caption, scene, over, width, columns), gap=20)


def relationship_gate(photo: Photo, caption: Caption, width: int = 960) -> Image.Image:
    """JRAN (Fig. 8): per word the weight of the visual relationship and, stacked on it, of the visual-semantic one.

    The visual weight is `gates["relationship"]`, the other one minus it.
    """
    fit = fitted(open_image(photo), checked_width(width, BESIDE) // 3)
    room = width - fit.width - 24
    gates = [number(value, "relationship", caption) for value in gate_values(caption, "relationship")]
    key = legend([("visual relationship", VISUAL), ("visual-semantic relationship", VISUAL_SEMANTIC)], room)
    bars = _bars(caption.words, [[(gate, VISUAL), (1 - gate, VISUAL_SEMANTIC)] for gate in gates], room)
    return sheet(row([fit, column([key, bars], 20)], 24))


def legend(entries: Sequence[tuple[str, Colour]], width: int) -> Image.Image:
    """Colours and what they mean."""
    blocks = []
    for text, colour in entries:
        swatch = blank(14, 21)
        ImageDraw.Draw(swatch).rectangle((0, 4, 13, 17), fill=colour)
        blocks.append(row([swatch, text_block(words_of(text, SOFT), width - 24, SMALL)], 8))
    return wrapped(blocks, width, 20, 4)


def number(value: Array, name: str, caption: Caption) -> float:
    """A gate that is one number, as a float in [0, 1]."""
    if value.size != 1:
        raise DataError(
            f"the gate `{name}` has shape {value.shape}, one number a word was expected", where=caption.text
        )
    return min(1.0, max(0.0, float(value.reshape(-1)[0])))


def _bars(words: Sequence[str], stacks: Sequence[Sequence[tuple[float, Colour]]], width: int) -> Image.Image:
    return wrapped([_bar(word, stack, width) for word, stack in zip(words, stacks, strict=True)], width, 10, 20)


def _bar(word: str, stack: Sequence[tuple[float, Colour]], width: int) -> Image.Image:
    room = min(160, width, max(_BAR_WIDTH + 4, text_width(word, BODY)))
    bar = Image.new("RGB", (_BAR_WIDTH, _BAR_HEIGHT), LINE)
    draw = ImageDraw.Draw(bar)
    below = 0.0
    for value, colour in stack:  # from the bottom up
        top, bottom = (round(_BAR_HEIGHT * (1 - level)) for level in (below + value, below))
        if bottom > top:
            draw.rectangle((0, top, _BAR_WIDTH - 1, bottom - 1), fill=colour)
        below += value
    head = text_block([Span(word)], room, BODY, "centre")
    told = text_block([Span(f"{stack[0][0]:.2f}", SOFT)], room, SMALL, "centre")
    return column([head, bar, told], 4, "centre")
