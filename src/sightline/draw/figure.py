"""Figures by matplotlib (extra `draw`), rendered to a `PIL.Image`: in the house's colours, without pyplot's state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from PIL import Image, ImageChops, ImageOps

from sightline.draw.canvas import INK, MARGIN, PAPER, SOFT, Colour
from sightline.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 100
NAME, TEXT, NOTE = 14, 13, 10  # of letters, in points
_POINT = DPI / 72  # in pixels


def paint(colour: Colour) -> tuple[float, float, float]:
    red, green, blue = (channel / 255 for channel in colour)
    return red, green, blue


def new_figure(width: int, height: int, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """Paper of so many pixels; without a layout, everything stands where it is put."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError.of("matplotlib", "draw", "a chart") from None
    figure = Figure((width / DPI, height / DPI), dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def render(figure: Figure) -> Image.Image:
    """The picture: what is drawn, with a margin around."""
    canvas: Any = figure.canvas
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    inked = ImageChops.difference(image, Image.new("RGB", image.size, PAPER)).getbbox()
    return ImageOps.expand(image.crop(inked), MARGIN, fill=PAPER)


def literal(text: str) -> str:
    """Text that matplotlib takes as it stands: a dollar would begin a formula."""
    return text.replace("$", r"\$")


def show(axes: Axes, photo: Image.Image, title: str = "", note: str = "") -> None:
    """A photo without axes, its title above and a note below."""
    axes.imshow(np.asarray(photo))
    axes.set_axis_off()
    axes.set_title(literal(title), fontsize=TEXT, fontweight="bold", color=paint(INK))
    axes.text(0.5, -0.02, note, transform=axes.transAxes, ha="center", va="top", fontsize=NOTE, color=paint(SOFT))


class Letters(NamedTuple):
    """A word and how it looks; `fill` puts it on a coloured chip."""

    text: str
    ink: Colour = INK
    line: Literal["", "under", "dashed", "through"] = ""
    fill: Colour | None = None
    bold: bool = False


class Sheet:
    """Paper on which photos and words are set by pixels from the top left; it ends below the last of them."""

    def __init__(self, width: int, height: int = 4000) -> None:
        self.figure = new_figure(width, height, None)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(height, 0), autoscale_on=False)
        self.axes.set_axis_off()

    def photo(self, photo: Image.Image, left: float, top: float, frame: Colour | None = None) -> float:
        """Set a photo, framed where a colour is given; where it ends."""
        right, bottom = left + photo.width, top + photo.height
        self.axes.imshow(np.asarray(photo), extent=(left, right, bottom, top), aspect="auto")
        if frame is not None:
            self.bar(left, top, photo.width, photo.height, frame, filled=False)
        return bottom

    def bar(self, left: float, top: float, width: float, height: float, colour: Colour, filled: bool = True) -> None:
        """Set a rectangle, or its outline."""
        from matplotlib.patches import Rectangle

        shape = Rectangle((left, top), width, height, fill=filled, color=paint(colour), lw=0 if filled else 5)
        self.axes.add_patch(shape)

    def words(self, words: Sequence[Letters], left: float, top: float, width: float, size: int = TEXT) -> float:
        """Set words in lines of at most `width` pixels; where they end."""
        height, space, at = size * _POINT * 1.5, size * _POINT * 0.3, left
        for word in words:
            chip = {"boxstyle": "round,pad=0.15", "facecolor": paint(word.fill), "lw": 0} if word.fill else None
            text = self.axes.text(
                at, top + height / 2, literal(word.text), fontsize=size, va="center_baseline", color=paint(word.ink)
            )
            text.set(fontweight="bold" if word.bold else "normal", bbox=chip)
            long = text.get_window_extent().width
            if at > left and at + long > left + width:
                at, top = left, top + height + 4
                text.set_position((at, top + height / 2))
            if word.line:
                y = top + height * (0.55 if word.line == "through" else 0.92)
                style = (0, (2, 1)) if word.line == "dashed" else "solid"
                self.axes.plot([at, at + long], [y, y], color=paint(word.ink), lw=1.5, linestyle=style)
            at += long + space + (6 if word.fill else 0)
        return top + height if words else top

    def image(self) -> Image.Image:
        return render(self.figure)


def plain(text: str, ink: Colour = INK, bold: bool = False) -> list[Letters]:
    return [Letters(word, ink, bold=bold) for word in text.split()]
