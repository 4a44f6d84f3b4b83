"""Words on paper: which font can write them, where each one stands, and how wide lines wrap."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from PIL import Image, ImageDraw, ImageFont

from sightline.draw.canvas import INK, Align, Colour, blank, ink_on, rounded, rows_of

Font = ImageFont.FreeTypeFont

TINY, SMALL, BODY, TITLE = 11, 14, 18, 22

# Pillow's own font writes English; for a word that needs more, the first installed one of these that can write it.
_SYSTEM_FONTS = ("DejaVuSans", "LiberationSans-Regular", "NotoSans-Regular", "Arial", "arial", "Arial Unicode")
_ABSENT = "\U0010fffd"  # private use: no font draws it, so its shape is that of a missing character
_UNSEEN = ("Cc", "Cf", "Cs")  # controls, joiners, halves of surrogate pairs
_CHIP = 5
_LEAD = 4


@dataclass(frozen=True)
class Span:
    """A word or phrase and how it looks; `fill` makes it a coloured chip, `line` is drawn in `line_ink` or `ink`."""

    text: str
    ink: Colour = INK
    fill: Colour | None = None
    bold: bool = False
    line: Literal["", "under", "dashed", "through"] = ""
    line_ink: Colour | None = None

    @classmethod
    def chip(cls, text: str, fill: Colour) -> Span:
        """White or dark letters on a coloured chip."""
        return cls(text, ink_on(fill), fill)


@dataclass(frozen=True)
class Placed:
    """A span, or a piece of a long one, at its place in pixels; its line goes on for `reach` to the next word."""

    span: Span
    left: int
    top: int
    width: int
    reach: int = 0


@dataclass(frozen=True)
class Layout:
    """Placed spans and the size of the block they fill."""

    placed: tuple[Placed, ...]
    width: int
    height: int


@cache
def font(size: int) -> Font:
    """Pillow's built-in font."""
    built_in = ImageFont.load_default(size)
    assert isinstance(built_in, Font)
    return built_in


@cache
def _face(name: str, size: int) -> Font | None:
    try:
        return font(size) if name == "" else ImageFont.truetype(name, size)
    except OSError:
        return None


@cache
def _draws(name: str, character: str) -> bool:
    face = _face(name, 16)
    return face is not None and bytes(face.getmask(character)) != bytes(face.getmask(_ABSENT))


@cache
def written(text: str, size: int) -> tuple[str, Font]:
    """`text` in characters that can be drawn, and the font for it.

    Accented letters that no installed font has lose their accents; what is left without a shape is drawn as a box.
    """
    shown = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c) not in _UNSEEN)
    whole = unicodedata.normalize("NFC", shown.replace("\ufe0f", ""))  # that one asks for a coloured emoji
    plain = "".join(c for c in unicodedata.normalize("NFKD", whole) if unicodedata.category(c) != "Mn")
    for candidate in (whole, plain):
        for name in ("", *_SYSTEM_FONTS):
            face = _face(name, size)
            if face is not None and all(c == " " or _draws(name, c) for c in candidate):
                return candidate, face
    return plain, font(size)


def text_width(text: str, size: int, bold: bool = False) -> int:
    """How many pixels `text` takes in one line."""
    shown, face = written(text, size)
    return math.ceil(face.getlength(shown)) + (1 if bold else 0)


def line_height(size: int) -> int:
    """From one line to the next."""
    return round(size * 1.5)


def lay_out(spans: Sequence[Span], width: int, size: int = BODY, align: Align = "start") -> Layout:
    """Set spans into lines of at most `width` pixels; a span too long for a line is broken into pieces."""
    pieces = [piece for span in spans for piece in _pieces(span, width, size)]
    widths = [_span_width(piece, size) for piece in pieces]
    space, height = max(3, round(size * 0.3)), line_height(size)
    placed, broadest = [], 0
    rows = rows_of(widths, width, space)
    for number, items in enumerate(rows):
        used = sum(widths[i] for i in items) + space * (len(items) - 1)
        left = {"start": 0, "centre": (width - used) // 2, "end": width - used}[align]
        broadest = max(broadest, left + used)
        for i in items:
            joined = i != items[-1] and pieces[i].line != "" and pieces[i].line == pieces[i + 1].line
            placed.append(Placed(pieces[i], left, number * (height + _LEAD), widths[i], space if joined else 0))
            left += widths[i] + space
    return Layout(tuple(placed), broadest, max(0, len(rows) * (height + _LEAD) - _LEAD))


def _span_width(span: Span, size: int) -> int:
    return text_width(span.text, size, span.bold) + (2 * _CHIP if span.fill else 0)


def _pieces(span: Span, width: int, size: int) -> list[Span]:
    if _span_width(span, size) <= width or len(span.text) < 2:
        return [span]
    fits = 1
    while fits < len(span.text) - 1 and _span_width(replace(span, text=span.text[: fits + 1]), size) <= width:
        fits += 1
    return [replace(span, text=span.text[:fits]), *_pieces(replace(span, text=span.text[fits:]), width, size)]


def letter(image: Image.Image, left: int, top: int, span: Span, size: int = BODY, reach: int = 0) -> None:
    """Write one span on `image`; `top` is that of its line, and a rule goes on for `reach` pixels after the word."""
    shown, face = written(span.text, size)
    width, height = _span_width(span, size), line_height(size)
    if span.fill:
        rounded(image, (left, top, left + width, top + height), span.fill)
        left, width = left + _CHIP, width - 2 * _CHIP
    draw = ImageDraw.Draw(image)
    baseline = top + round(height * 0.71)
    draw.text((left, baseline), shown, fill=span.ink, font=face, anchor="ls", stroke_width=0.35 if span.bold else 0)
    if span.line:
        _rule(draw, span, left, left + width + reach, baseline, size)


def _rule(draw: ImageDraw.ImageDraw, span: Span, left: int, right: int, baseline: int, size: int) -> None:
    y = baseline - round(size * 0.28) if span.line == "through" else baseline + max(3, size // 6)
    dash, step = (4, 6) if span.line == "dashed" else (right - left, right - left)
    for start in range(left, right, max(1, step)):
        draw.line((start, y, min(start + dash, right) - 1, y), span.line_ink or span.ink, 2)


def text_block(spans: Sequence[Span], width: int, size: int = BODY, align: Align = "start") -> Image.Image:
    """Spans as a block of lines; exactly `width` wide unless aligned at the start, where it is as wide as its words."""
    layout = lay_out(spans, width, size, align)
    block = blank(layout.width if align == "start" else width, layout.height)
    for placed in layout.placed:
        letter(block, placed.left, placed.top, placed.span, size, placed.reach)
    return block


def words_of(text: str, ink: Colour = INK, bold: bool = False) -> list[Span]:
    """Plain words of a sentence as spans."""
    return [Span(word, ink, bold=bold) for word in text.split()]
