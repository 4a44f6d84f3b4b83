"""Words on boxes: a photo whose boxes carry the words that point at them, and the caption in the same colours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from sightline.caption import Caption
from sightline.draw import canvas
from sightline.draw.canvas import COLOURS, GAP, PAPER, SMALL, Colour, Photo, Rectangle, Sheet, Span
from sightline.scene import Box, check_boxes


@dataclass(frozen=True)
class Mark:
    """A box to draw (normalised xyxy), its word and its colour."""

    box: Box
    label: str
    colour: Colour


def words_on_boxes(photo: Photo, caption: Caption, width: int = 720) -> Image.Image:
    """The photo with a coloured box for each word that points somewhere, and the caption below in those colours.

    Words point where `WordTrace.boxes` says; `Caption.with_boxes` fills it from region attention. Of the boxes of
    a plural, the first has its label, and all have its colour.
    """
    fit = canvas.fit_photo(photo, canvas.checked_width(width))
    colours = word_colours(caption)
    marks = [
        Mark(box, "" if n else word, colours[i])
        for i, (word, trace) in enumerate(zip(caption.words, caption.trace, strict=bool(caption.trace)))
        for n, box in enumerate(trace.boxes)
    ]
    page = Sheet()
    bottom = page.photo(draw_boxes(fit, marks), 0, 0)
    page.words([Span(word, colours.get(i)) for i, word in enumerate(caption.words)], 0, bottom + GAP, width)
    return page.image()


def word_colours(caption: Caption) -> dict[int, Colour]:
    """Word index to colour, for the words that have a box; the colours come round again after the seventh."""
    with_box = [i for i, trace in enumerate(caption.trace) if trace.box is not None]
    return {i: COLOURS[n % len(COLOURS)] for n, i in enumerate(with_box)}


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


def draw_boxes(photo: Image.Image, marks: Sequence[Mark], thickness: int = 3) -> Image.Image:
    """A copy of `photo` with every mark's box and, where it has one, its label on a chip that covers no other label."""
    if marks:
        check_boxes(np.array([mark.box for mark in marks], dtype=np.float64), where="the boxes to draw")
    image = photo.copy()
    boxes = [pixels(mark.box, photo.size) for mark in marks]
    for mark, box in zip(marks, boxes, strict=True):
        outline(image, box, mark.colour, thickness)
    labels: list[Rectangle] = []
    for mark, box in zip(marks, boxes, strict=True):
        if mark.label:
            pieces, area = canvas.lay_out([Span(mark.label, mark.colour)], photo.width, SMALL)
            labels.append(_free_place(box, area, photo.size, labels))
            for piece, left, top in pieces:
                canvas.letter(image, labels[-1][0] + left, labels[-1][1] + top, piece, SMALL)
    return image


def _free_place(box: Rectangle, size: tuple[int, int], photo: tuple[int, int], labels: list[Rectangle]) -> Rectangle:
    """The first place around the box's upper left corner, then further down, where no label is yet."""
    places = list(_places(box, size, photo))
    return next((p for p in places if not any(_overlap(p, other) for other in labels)), places[0])


def _places(box: Rectangle, size: tuple[int, int], photo: tuple[int, int]) -> Iterator[Rectangle]:
    left, top, right, bottom = box
    width, height = size
    corners = [(left, top - height), (left, top), (right - width, top), (left, bottom - height), (left, bottom)]
    below = [(left, top + height * n) for n in range(1, 8)]
    for x, y in (*corners, *below):
        x, y = max(0, min(x, photo[0] - width)), max(0, min(y, photo[1] - height))
        yield x, y, x + width, y + height


def _overlap(one: Rectangle, other: Rectangle) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
