"""What every picture is made of: the palette, photos of any kind, blocks set beside and below each other, PNG files."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageOps

from sightline.errors import ConfigError
from sightline.files import PathLike, atomic_write
from sightline.scene import Array

Colour = tuple[int, int, int]
Photo = Image.Image | PathLike
Rectangle = tuple[int, int, int, int]

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
GAP = 16
MARGIN = 24
BESIDE = 320  # the least width of a picture that has text beside a photo

_HEAT = np.array([(110, 30, 130), (196, 52, 104), (236, 104, 56), (250, 164, 40), (255, 226, 96)], dtype=np.float64)
_SHADE = np.array([(246, 248, 251), (190, 215, 236), (94, 158, 208), (30, 100, 170), (8, 42, 98)], dtype=np.float64)


def _interpolated(values: Array, anchors: Array) -> npt.NDArray[np.uint8]:
    places = np.linspace(0, 1, len(anchors))
    channels = [np.interp(np.clip(values, 0, 1), places, anchors[:, c]) for c in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


_HEAT_TABLE = _interpolated(np.linspace(0, 1, 1024), _HEAT)  # large photos need no interpolation at each pixel


def heat(values: Array) -> npt.NDArray[np.uint8]:
    """Weights in [0, 1] as colours that glow on a dimmed photo, (...) to (..., 3); lightness grows with the weight."""
    return _HEAT_TABLE[(np.clip(values, 0, 1) * (len(_HEAT_TABLE) - 1)).astype(np.intp)]


def shade(value: float) -> Colour:
    """A weight in [0, 1] as the colour of a cell on paper: darker is more."""
    red, green, blue = _interpolated(np.array(value, dtype=np.float64), _SHADE)
    return int(red), int(green), int(blue)


def ink_on(fill: Colour) -> Colour:
    """White or ink, whichever reads better on `fill`."""
    return max((PAPER, INK), key=lambda ink: contrast(ink, fill))


def contrast(one: Colour, other: Colour) -> float:
    """The contrast of two colours as WCAG counts it, from 1 to 21."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Colour) -> float:
    red, green, blue = (math.pow(channel / 255, 2.2) for channel in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def fitted(photo: Image.Image, width: int, height: int | None = None) -> Image.Image:
    """`photo` scaled into width × height (default: as high as wide). Slivers are widened so that they can be seen."""
    limit = height or width
    scale = min(width / photo.width, limit / photo.height)
    size = (min(width, max(24, round(photo.width * scale))), min(limit, max(24, round(photo.height * scale))))
    return photo.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)


def stamp(image: Image.Image, box: Rectangle, colour: Colour, paint: Callable[[ImageDraw.ImageDraw], object]) -> None:
    """Paint a shape without jagged edges: `paint` draws white into a mask four times as large as `box`."""
    left, top, right, bottom = box
    if right <= left or bottom <= top:
        return
    mask = Image.new("L", (4 * (right - left), 4 * (bottom - top)))
    paint(ImageDraw.Draw(mask))
    image.paste(colour, box, mask.reduce(4))


def rounded(image: Image.Image, box: Rectangle, colour: Colour, radius: int = 5) -> None:
    """A filled rectangle with round corners; right and bottom are exclusive."""
    width, height = 4 * (box[2] - box[0]) - 1, 4 * (box[3] - box[1]) - 1
    stamp(image, box, colour, lambda mask: mask.rounded_rectangle((0, 0, width, height), 4 * radius, fill=255))


def badge(correct: bool, size: int = 26) -> Image.Image:
    """A tick on green or a cross on red: shape says it too, for those who do not see the colour."""
    image = Image.new("RGB", (size, size), PAPER)
    box, s = (0, 0, size, size), 4 * size
    stamp(image, box, GOOD if correct else BAD, lambda mask: mask.ellipse((0, 0, s - 1, s - 1), fill=255))
    tick = [(0.28, 0.52), (0.44, 0.68), (0.73, 0.34)]
    cross = [(0.32, 0.32), (0.68, 0.68), (0.5, 0.5), (0.68, 0.32), (0.32, 0.68)]
    points = [(x * s, y * s) for x, y in (tick if correct else cross)]
    stamp(image, box, PAPER, lambda mask: mask.line(points, fill=255, width=round(s * 0.1), joint="curve"))
    return image


def framed(photo: Image.Image, colour: Colour, thickness: int = 6) -> Image.Image:
    """`photo` with a frame around it."""
    return ImageOps.expand(photo, thickness, fill=colour)


Align = Literal["start", "centre", "end"]


def column(blocks: Iterable[Image.Image], gap: int = GAP, align: Align = "start") -> Image.Image:
    """Blocks below each other on paper."""
    return _set([block for block in blocks if block.height], gap, align, down=True)


def row(blocks: Iterable[Image.Image], gap: int = GAP, align: Align = "start") -> Image.Image:
    """Blocks beside each other on paper."""
    return _set([block for block in blocks if block.width], gap, align, down=False)


def _set(blocks: Sequence[Image.Image], gap: int, align: Align, down: bool) -> Image.Image:
    along = [block.height if down else block.width for block in blocks]
    across = [block.width if down else block.height for block in blocks]
    length, breadth = sum(along) + gap * max(0, len(blocks) - 1), max(across, default=0)
    page = blank(breadth, length) if down else blank(length, breadth)
    at = 0
    for block, size, room in zip(blocks, along, across, strict=True):
        side = {"start": 0, "centre": (breadth - room) // 2, "end": breadth - room}[align]
        page.paste(block, (side, at) if down else (at, side))
        at += size + gap
    return page


def rows_of(widths: Sequence[int], limit: int, gap: int) -> list[list[int]]:
    """Which items stand in which row when they are set one after another into `limit` pixels; none is left out."""
    rows: list[list[int]] = []
    used = 0
    for i, width in enumerate(widths):
        if rows and used + gap + width <= limit:
            rows[-1].append(i)
            used += gap + width
        else:
            rows.append([i])
            used = width
    return rows


def wrapped(
    blocks: Sequence[Image.Image], width: int, gap: int = GAP, row_gap: int = GAP, align: Align = "start"
) -> Image.Image:
    """Blocks beside each other, in as many rows as `width` asks for."""
    rows = rows_of([block.width for block in blocks], width, gap)
    return column((row([blocks[i] for i in items], gap, align) for items in rows), row_gap)


def blank(width: int, height: int) -> Image.Image:
    """Empty paper."""
    return Image.new("RGB", (width, height), PAPER)


def sheet(*blocks: Image.Image, gap: int = GAP) -> Image.Image:
    """The finished picture: blocks below each other with a margin around."""
    return ImageOps.expand(column(blocks, gap), MARGIN, fill=PAPER)


def checked_width(width: int, least: int = 160) -> int:
    """`width` of a picture's inside, refused where nothing could be read in it."""
    if not least <= width <= 8000:
        raise ConfigError(f"a picture {width} pixels wide cannot be drawn", fix=f"choose a width from {least} to 8000")
    return width


def png(image: Image.Image) -> bytes:
    """The bytes of a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def save_png(image: Image.Image, path: PathLike) -> None:
    """Write `image` as PNG, atomically."""
    with atomic_write(path) as file:
        file.write(png(image))
