"""Figures by matplotlib (extra `draw`), rendered to a `PIL.Image`: in the house's colours, without pyplot's state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageChops, ImageOps

from sightline.draw.canvas import INK, MARGIN, PAPER, SOFT, Colour
from sightline.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 100
TEXT, NOTE = 13, 10  # of letters, in points


def paint(colour: Colour) -> tuple[float, float, float]:
    red, green, blue = (channel / 255 for channel in colour)
    return red, green, blue


def new_figure(width: int, height: int) -> Figure:
    """Paper of so many pixels."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError.of("matplotlib", "draw", "a chart") from None
    figure = Figure((width / DPI, height / DPI), dpi=DPI, layout="constrained")
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
