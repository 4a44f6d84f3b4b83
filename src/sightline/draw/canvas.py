"""What pictures are made of, by Pillow alone: the palette, photos that fit, words in lines, sheets, PNG files."""

import io
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from PIL import Image, ImageDraw, ImageFont, ImageOps

from sightline.errors import ConfigError
from sightline.files import PathLike, atomic_write
from sightline.vision.images import open_image

Colour = tuple[int, int, int]
Photo = Image.Image | PathLike
Rectangle = tuple[int, int, int, int]
Font = ImageFont.FreeTypeFont
Line = Literal["", "under", "dashed", "through"]  # where a word has a line; a dashed one is below it

# Those of the HTML pages (`web_page`) in their light form.
PAPER: Colour = (255, 255, 255)
INK: Colour = (29, 36, 48)
SOFT: Colour = (91, 102, 117)
LINE: Colour = (217, 222, 230)
GOOD: Colour = (0, 128, 94)
BAD: Colour = (204, 63, 12)
# After Okabe and Ito, whose colours readers with any colour vision tell apart: three darkened so that white letters
# read well on them, their yellow left out as too pale for outlines, and a grey at the end.
COLOURS: tuple[Colour, ...] = (
    (0, 114, 178),
    (189, 74, 0),
    (0, 122, 90),
    (168, 72, 128),
    (230, 159, 0),
    (86, 180, 233),
    (84, 92, 104),
)
GAP, MARGIN = 16, 24
BESIDE = 320  # the least width of a picture that has something beside or below a photo
SMALL, BODY = 14, 18  # of letters, in pixels

# Pillow's own font writes English; for a word that needs more, the first installed one of these that can write it.
_SYSTEM_FONTS = ("DejaVuSans", "LiberationSans-Regular", "NotoSans-Regular", "Arial", "arial", "Arial Unicode")
_ABSENT = "\U0010fffd"  # private use: no font draws it, so its shape is that of a missing character
_UNSEEN = ("Cc", "Cf", "Cs")  # controls, joiners, halves of surrogate pairs
_CHIP = 5  # a coloured chip reaches this far beside its word
_LEAD = 4  # between lines


def contrast(one: Colour, other: Colour) -> float:
    """The contrast of two colours as WCAG counts it, from 1 to 21."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Colour) -> float:
    red, green, blue = (math.pow(channel / 255, 2.2) for channel in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ink_on(fill: Colour) -> Colour:
    """White or ink, whichever reads better on `fill`."""
    return max((PAPER, INK), key=lambda ink: contrast(ink, fill))


def fit_photo(photo: Photo, width: int) -> Image.Image:
    """`photo` scaled into a square of `width`. Slivers are widened so that they can be seen."""
    image = open_image(photo)
    scale = width / max(image.size)
    wide, high = (min(width, max(24, round(side * scale))) for side in image.size)
    return image.resize((wide, high), Image.Resampling.LANCZOS, reducing_gap=3.0)


def checked_width(width: int, least: int = 160) -> int:
    """`width` of a picture's inside, refused where nothing could be read in it."""
    if not least <= width <= 8000:
        raise ConfigError(f"a picture {width} pixels wide cannot be drawn", fix=f"choose a width from {least} to 8000")
    return width


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def save_png(image: Image.Image, path: PathLike) -> None:
    with atomic_write(path) as file:
        file.write(png(image))


@dataclass(frozen=True)
class Span:
    """A word and how it looks."""

    text: str
    fill: Colour | None = None  # of a chip that it stands on; the ink is then white or dark, whichever reads better
    ink: Colour = INK
    line: Line = ""

    def width(self, size: int) -> int:
        shown, face = writable(self.text, size)
        return math.ceil(face.getlength(shown)) + (2 * _CHIP if self.fill else 0)


@cache
def font(size: int) -> Font:
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
def writable(text: str, size: int) -> tuple[str, Font]:
    """`text` in characters that can be drawn, and the font for it.

    Accented letters that no installed font has lose their accents; what is left without a shape is drawn as a box.
    """
    shown = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c) not in _UNSEEN)
    composed = unicodedata.normalize("NFC", shown.replace("\ufe0f", ""))  # that one asks for a coloured emoji
    plain = "".join(c for c in unicodedata.normalize("NFKD", composed) if unicodedata.category(c) != "Mn")
    for candidate in (composed, plain):
        for name in ("", *_SYSTEM_FONTS):
            face = _face(name, size)
            if face is not None and all(c == " " or _draws(name, c) for c in candidate):
                return candidate, face
    return plain, font(size)


def lay_out(spans: Sequence[Span], width: int, size: int) -> tuple[list[tuple[Span, int, int]], tuple[int, int]]:
    """Words, or pieces of long ones, in lines of at most `width` pixels, each with left and top; and the whole size."""
    space, height = max(3, round(size * 0.3)), round(size * 1.5)
    places: list[tuple[Span, int, int]] = []
    left = top = broadest = 0
    for piece in [piece for span in spans for piece in _pieces(span, width, size)]:
        if left and left + piece.width(size) > width:
            left, top = 0, top + height + _LEAD
        places.append((piece, left, top))
        left += piece.width(size) + space
        broadest = max(broadest, left - space)
    return places, (broadest, top + height if places else 0)


def _pieces(span: Span, width: int, size: int) -> list[Span]:
    if span.width(size) <= width or len(span.text) < 2:
        return [span]
    fits = 1
    while fits < len(span.text) - 1 and replace(span, text=span.text[: fits + 1]).width(size) <= width:
        fits += 1
    return [replace(span, text=span.text[:fits]), *_pieces(replace(span, text=span.text[fits:]), width, size)]


def letter(image: Image.Image, left: int, top: int, span: Span, size: int) -> None:
    """Write one word on `image`; `top` is that of its line."""
    shown, face = writable(span.text, size)
    height, ink = round(size * 1.5), span.ink
    draw = ImageDraw.Draw(image)
    if span.fill:
        chip = Image.new("L", (4 * span.width(size), 4 * height))  # four times as large, for smooth corners
        ImageDraw.Draw(chip).rounded_rectangle((0, 0, chip.width - 1, chip.height - 1), 20, fill=255)
        image.paste(span.fill, (left, top, left + span.width(size), top + height), chip.reduce(4))
        left, ink = left + _CHIP, ink_on(span.fill)
    draw.text((left, top + round(height * 0.71)), shown, fill=ink, font=face, anchor="ls")
    if span.line:
        y = top + round(height * (0.55 if span.line == "through" else 0.9))
        right = left + span.width(size)
        dash, step = (5, 8) if span.line == "dashed" else (right - left, right - left)
        for start in range(left, right, max(1, step)):
            draw.line((start, y, min(right, start + dash), y), fill=ink, width=2)


def spans(text: str, ink: Colour = INK, line: Line = "") -> list[Span]:
    """The words of a text, all alike."""
    return [Span(word, ink=ink, line=line) for word in text.split()]


class Sheet:
    """Paper that grows with the photos and words that are set on it, by pixels from the top left."""

    def __init__(self) -> None:
        self._paper = Image.new("RGB", (1, 1), PAPER)

    def photo(self, photo: Image.Image, left: int, top: int, frame: Colour | None = None) -> int:
        """Set a photo, framed where a colour is given; where it ends."""
        right, bottom = left + photo.width, top + photo.height
        self._grow(right, bottom)
        self._paper.paste(photo, (left, top))
        if frame is not None:
            ImageDraw.Draw(self._paper).rectangle((left, top, right - 1, bottom - 1), outline=frame, width=4)
        return bottom

    def bar(self, left: int, top: int, width: int, height: int, colour: Colour) -> None:
        self._grow(left + width, top + height)
        self._paper.paste(colour, (left, top, left + width, top + height))

    def mark(self, correct: bool, left: int, top: int) -> int:
        """Set a tick or a cross, as large as a word; where it ends."""
        right = left + BODY
        self._grow(right, top + round(BODY * 1.5))
        draw, colour = ImageDraw.Draw(self._paper), GOOD if correct else BAD
        x, y = left + 2, top + 8
        if correct:
            draw.line((x, y + 6, x + 4, y + 11, x + 12, y), fill=colour, width=3)
        else:
            draw.line((x, y, x + 11, y + 11), fill=colour, width=3)
            draw.line((x, y + 11, x + 11, y), fill=colour, width=3)
        return right

    def words(self, words: Sequence[Span], left: int, top: int, width: int, size: int = BODY) -> int:
        """Set words in lines of at most `width` pixels; where they end."""
        places, (broadest, height) = lay_out(words, width, size)
        self._grow(left + broadest, top + height)
        for span, x, y in places:
            letter(self._paper, left + x, top + y, span, size)
        return top + height

    def image(self) -> Image.Image:
        """The picture: what was set, with a margin around."""
        return ImageOps.expand(self._paper, MARGIN, fill=PAPER)

    def _grow(self, right: int, bottom: int) -> None:
        size = max(self._paper.width, right), max(self._paper.height, bottom)
        if size != self._paper.size:
            larger = Image.new("RGB", size, PAPER)
            larger.paste(self._paper)
            self._paper = larger
