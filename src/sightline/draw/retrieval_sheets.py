"""Retrieval sheets (VSRN, Fig. 3 and 4): the captions a photo finds, the photos a sentence finds, right ones marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from PIL import Image

from sightline.draw.canvas import (
    BAD,
    BESIDE,
    GAP,
    GOOD,
    SOFT,
    Photo,
    badge,
    blank,
    checked_width,
    column,
    fitted,
    framed,
    row,
    sheet,
)
from sightline.draw.text_layout import BODY, SMALL, Span, line_height, text_block, words_of
from sightline.errors import ConfigError
from sightline.vision.images import open_image

_FRAME = 6


@dataclass(frozen=True)
class FoundCaption:
    """A caption that was found: is it one of the photo's own, or does it mean nearly the same (a grey line below)?"""

    text: str
    correct: bool
    similar: bool = False


@dataclass(frozen=True)
class FoundPhoto:
    """A photo that was found, and whether it is the right one; `attention`, where given, is shown below it."""

    photo: Photo
    correct: bool
    attention: Photo | None = None


def captions_found(
    photo: Photo, found: Sequence[FoundCaption], attention: Photo | None = None, width: int = 960
) -> Image.Image:
    """A photo as query, its attention where given, and the captions it found, best first; right ones have a tick."""
    _refuse_nothing(found)
    picture = checked_width(width, BESIDE) * 3 // 8
    shown = [fitted(open_image(p), picture) for p in (photo, attention) if p is not None]
    room = width - max(image.width for image in shown) - 24
    lines = [_caption(number, caption, room) for number, caption in enumerate(found, 1)]
    return sheet(row([column(shown, 8), column(lines, 20)], 24))


def photos_found(query: str, found: Sequence[FoundPhoto], width: int = 960) -> Image.Image:
    """A sentence as query and the photos it found, best first: green frames are right, red ones wrong."""
    return sheet(text_block(words_of(query), checked_width(width)), photo_row(found, width))


def photo_row(found: Sequence[FoundPhoto], width: int) -> Image.Image:
    """Found photos beside each other, framed green or red, with a tick or a cross."""
    _refuse_nothing(found)
    room = (width - GAP * (len(found) - 1)) // len(found) - 2 * _FRAME
    if room < 24:
        raise ConfigError(
            f"{len(found)} photos do not fit into {width} pixels", fix="show fewer, or choose a wider picture"
        )
    return row([_photo(number, item, room) for number, item in enumerate(found, 1)], GAP, "end")


def _refuse_nothing(found: Sequence[FoundCaption] | Sequence[FoundPhoto]) -> None:
    if not found:
        raise ConfigError("nothing was found", fix="give at least one caption or photo that was found")


def _caption(number: int, caption: FoundCaption, width: int) -> Image.Image:
    mark = badge(True, line_height(BODY)) if caption.correct else blank(line_height(BODY), line_height(BODY))
    place = text_block([Span(f"{number}", SOFT)], 20, BODY, "end")
    words = words_of(caption.text)
    if caption.similar and not caption.correct:
        words = [replace(word, line="under", line_ink=(150, 158, 170)) for word in words]
    return row([place, mark, text_block(words, width - 20 - mark.width - 20)], 10)


def _photo(number: int, found: FoundPhoto, room: int) -> Image.Image:
    framing = framed(fitted(open_image(found.photo), room), GOOD if found.correct else BAD, _FRAME)
    below = [] if found.attention is None else [fitted(open_image(found.attention), room + 2 * _FRAME)]
    told = row([badge(found.correct, 22), text_block([Span(str(number), SOFT)], 40, SMALL)], 8, "centre")
    return column([framing, *below, told], 8)
