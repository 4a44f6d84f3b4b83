"""Several models on one photo (POS-SCAN, Fig. 1 and 4): the boxes their nouns attend to, and how the weights spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image, ImageDraw

from sightline.caption import Caption
from sightline.draw.attention_maps import as_box, attention_of
from sightline.draw.canvas import (
    COLOURS,
    GAP,
    Colour,
    Photo,
    blank,
    checked_width,
    column,
    fitted,
    shade,
    sheet,
    wrapped,
)
from sightline.draw.photo_boxes import Mark, draw_boxes
from sightline.draw.text_layout import BODY, Span, text_block, words_of
from sightline.errors import ConfigError, DataError
from sightline.scene import Array, Scene
from sightline.vision.images import open_image

_STRIP = 9


def side_by_side(
    photo: Photo,
    scene: Scene,
    captions: Mapping[str, Caption],
    nouns: Mapping[str, Sequence[int]],
    most: int = 8,
    width: int = 1080,
) -> Image.Image:
    """One card a model: the photo with the box each noun attends to most, and the caption with a strip over each noun.

    A strip shows the weights of the `most` regions that the card's nouns attend to, in the scene's order; darker is
    more. A noun has the same colour in every card.

    Args:
        photo: the photo.
        scene: its boxes.
        captions: model name to caption, with attention over the scene's regions.
        nouns: model name to the places (from 0) of the words to show.
        most: how many regions a strip shows.
        width: of the picture's inside, in pixels.
    """
    if not captions:
        raise ConfigError("there is no model to draw", fix="give at least one caption")
    colours = _noun_colours(captions, nouns)
    room = (checked_width(width) - GAP) // 2 if len(captions) > 1 else width
    fit = fitted(open_image(photo), room)
    cards = [
        _card(fit, scene, name, caption, sorted(set(nouns.get(name, ()))), colours, most, room)
        for name, caption in captions.items()
    ]
    return sheet(wrapped(cards, width, row_gap=32))


def _noun_colours(captions: Mapping[str, Caption], nouns: Mapping[str, Sequence[int]]) -> dict[str, Colour]:
    seen: dict[str, Colour] = {}
    for name, caption in captions.items():
        for i in nouns.get(name, ()):
            if not 0 <= i < len(caption.trace):
                raise DataError(
                    f"noun {i} is no word with a trace", where=f"{name}: {caption.text}", fix="count words from 0"
                )
            seen.setdefault(caption.words[i], COLOURS[len(seen) % len(COLOURS)])
    return seen


def _card(
    photo: Image.Image,
    scene: Scene,
    name: str,
    caption: Caption,
    nouns: Sequence[int],
    colours: Mapping[str, Colour],
    most: int,
    width: int,
) -> Image.Image:
    weights = {i: _attention(caption, i, scene) for i in nouns}
    peak = np.max([*weights.values(), np.zeros(len(scene))], axis=0)
    kept = np.sort(np.argsort(-peak, kind="stable")[:most])
    marks = [
        Mark(as_box(scene.boxes[w.argmax()]), caption.words[i], colours[caption.words[i]])
        for i, w in weights.items()
        if scene.boxes is not None and w.any()
    ]
    said = [
        _word(word, colours.get(word) if i in weights else None, weights[i][kept] if i in weights else None, width)
        for i, word in enumerate(caption.words)
    ]
    title = text_block(words_of(name, bold=True), width)
    return column([title, draw_boxes(photo, marks), wrapped(said, width, 6, 6)], 10)


def _attention(caption: Caption, i: int, scene: Scene) -> Array:
    weights = attention_of(caption.words[i], caption.trace[i], scene, "regions")
    if weights is None:
        raise DataError(f"“{caption.words[i]}” has no attention over regions", where=caption.text)
    return weights


def _word(word: str, colour: Colour | None, weights: Array | None, width: int) -> Image.Image:
    span = Span(word) if colour is None else Span.chip(word, colour)
    text = text_block([span], width, BODY)
    if weights is None or not len(weights):
        return column([blank(text.width, _STRIP), text], 3)
    return column([strip(weights), text], 3, "centre")


def strip(weights: Array, cell: int = 7) -> Image.Image:
    """Weights as a strip of cells; darker is more, and the darkest is a weight of one half or more."""
    line = blank(len(weights) * cell, _STRIP)
    draw = ImageDraw.Draw(line)
    for i, weight in enumerate(weights):
        draw.rectangle((i * cell, 0, i * cell + cell - 2, _STRIP - 1), fill=shade(min(1.0, 2 * float(weight))))
    return line
