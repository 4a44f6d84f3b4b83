"""Words on boxes: a photo whose boxes carry the words that point at them, and the caption in the same colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from sightline.caption import Caption
from sightline.draw.canvas import COLOURS, PAPER, Colour, Photo, Rectangle, checked_width, fitted, sheet
from sightline.draw.text_layout import BODY, SMALL, Span, lay_out, letter, text_block
from sightline.scene import Box, check_boxes
from sightline.vision.images import open_image


@dataclass(frozen=True)
class Mark:
    """A box to draw (normalised xyxy), its word and its colour."""

    box: Box
    label: str
    colour: Colour


def words_on_boxes(photo: Photo, caption: Caption, width: int = 720) -> Image.Image:
    """The photo with a coloured box for each word that points somewhere, and the caption below in those colours.

    Words point where `WordTrace.boxes` says; `Caption.grounded` fills it from region attention. Of the boxes of
    a plural, the first has its label, and all have its colour.
    """
    fit = fitted(open_image(photo), checked_width(width))
    colours = word_colours(caption)
    marks = [
        Mark(box, "" if n else word, colours[i])
        for i, (word, trace) in enumerate(zip(caption.words, caption.trace, strict=bool(caption.trace)))
        for n, box in enumerate(trace.boxes)
    ]
    return sheet(draw_boxes(fit, marks), caption_block(caption.words, colours, width))


def word_colours(caption: Caption) -> dict[int, Colour]:
    """Word index to colour, for the words that have a box; the colours come round again after the seventh."""
    pointing = [i for i, trace in enumerate(caption.trace) if trace.box is not None]
    return {i: COLOURS[n % len(COLOURS)] for n, i in enumerate(pointing)}


def caption_block(words: Sequence[str], colours: dict[int, Colour], width: int, size: int = BODY) -> Image.Image:
    """The caption, its coloured words as chips."""
    spans = [Span.chip(word, colours[i]) if i in colours else Span(word) for i, word in enumerate(words)]
    return text_block(spans, width, size)


def pixels(box: Box, size: tuple[int, int]) -> Rectangle:
    """A normalised box in pixels of a picture, right and bottom exclusive, at least one pixel large."""
    width, height = size
    left, top = min(width - 1, int(box[0] * width)), min(height - 1, int(box[1] * height))
    return left, top, max(left + 1, round(box[2] * width)), max(top + 1, round(box[3] * height))


def outline(image: Image.Image, box: Rectangle, colour: Colour, thickness: int = 3) -> None:
    """Outline `box` inside its edges, with a hair of white around it that keeps it visible on any photo."""
    left, top, right, bottom = box
    draw = ImageDraw.Draw(image)
    draw.rectangle((left - 1, top - 1, right, bottom), outline=PAPER)
    inner = thickness
    if right - left > 2 * inner + 2 and bottom - top > 2 * inner + 2:
        draw.rectangle((left + inner, top + inner, right - 1 - inner, bottom - 1 - inner), outline=PAPER)
    draw.rectangle((left, top, right - 1, bottom - 1), outline=colour, width=thickness)


def draw_boxes(photo: Image.Image, marks: Sequence[Mark], thickness: int = 3, size: int = SMALL) -> Image.Image:
    """A copy of `photo` with every mark's box and, where it has one, its label on a chip that covers no other label."""
    if marks:
        check_boxes(np.array([mark.box for mark in marks], dtype=np.float64), where="the boxes to draw")
    drawn = photo.copy()
    boxes = [pixels(mark.box, photo.size) for mark in marks]
    for mark, box in zip(marks, boxes, strict=True):
        outline(drawn, box, mark.colour, thickness)
    taken: list[Rectangle] = []
    for mark, box in zip(marks, boxes, strict=True):
        if mark.label:
            span = Span.chip(mark.label, mark.colour)
            layout = lay_out([span], photo.width, size)
            place = _free_place(box, (layout.width, layout.height), photo.size, taken)
            taken.append(place)
            for piece in layout.placed:
                letter(drawn, place[0] + piece.left, place[1] + piece.top, piece.span, size)
    return drawn


def _free_place(box: Rectangle, size: tuple[int, int], photo: tuple[int, int], taken: list[Rectangle]) -> Rectangle:
    """The first place around the box's upper left corner, then further down, where no label is yet."""
    places = list(_places(box, size, photo))
    return next((p for p in places if not any(_overlap(p, other) for other in taken)), places[0])


def _places(box: Rectangle, size: tuple[int, int], photo: tuple[int, int]) -> Iterator[Rectangle]:
    left, top, right, bottom = box
    width, height = size
    corners = [(left, top - height), (left, top), (right - width, top), (left, bottom - height), (left, bottom)]
    stacked = [(left, top + height * n) for n in range(1, 8)]
    for x, y in (*corners, *stacked):
        x, y = max(0, min(x, photo[0] - width)), max(0, min(y, photo[1] - height))
        yield x, y, x + width, y + height


def _overlap(one: Rectangle, other: Rectangle) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
