"""Charts by matplotlib (extra `draw`): training curves, gates as bars, memory and word-region weights as heat maps."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageChops, ImageOps

from sightline.caption import Caption
from sightline.draw import canvas
from sightline.draw.attention_maps import Over, attention_panels, check_weights
from sightline.draw.canvas import BESIDE, COLOURS, GAP, INK, LINE, PAPER, SOFT, Colour, Photo, Sheet
from sightline.draw.photo_boxes import Mark, draw_boxes, pixels
from sightline.errors import ConfigError, DataError, MissingExtraError, MissingPartError
from sightline.scene import Array, Box, Scene, as_box
from sightline.vision.images import open_image

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[tuple[float, float]]

VISUAL: Colour = (126, 87, 194)  # of JRAN's two relationships, this and the next
VISUAL_SEMANTIC: Colour = (0, 158, 115)
_DPI = 100  # pixels of an inch, in which matplotlib counts sizes
_TEXT, _NOTE = 13, 10  # of letters, in points
_BARS = 190  # height of a chart of bars, in pixels
_CELL = 40  # side of a cell that holds a number, in pixels
_SQUARE = 0.47 * np.array([(-1, 1, 1, -1, -1), (-1, -1, 1, 1, -1)])  # corners of a cell, once around
_SOURCES = {"fusion": ("v", "w"), "memory": ("M", "f")}


def curves(
    series: Mapping[str, Points], title: str = "", x: str = "", width: int = 720, height: int = 320
) -> Image.Image:
    """A line a series, name to (x, y) points; a point that is not finite breaks its line."""
    page = Sheet()
    page.photo(_render(_curves(series, title, x, width, height)), 0, 0)
    return page.image()


def curves_svg(series: Mapping[str, Points], title: str = "", x: str = "") -> str:
    """The same chart as an inline `<svg>` for a page; its text and axes take the page's text colour."""
    figure, out = _curves(series, title, x, 720, 320), io.StringIO()
    import matplotlib as mpl

    # Letters stay letters, and equal charts get equal names for their parts.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "".join(series) + title}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r"font: ([^;\"]*px) [^;\"]*", r"font: \1 system-ui, sans-serif", svg)
    for ink, css in ((INK, "currentColor"), (SOFT, "currentColor"), (LINE, "currentColor; stroke-opacity: 0.2")):
        svg = svg.replace(_hex(ink), css)
    name = escape(title or ", ".join(series))
    return svg.replace("<svg", f'<svg role="img" aria-label="{name}"', 1).replace(">", f"><title>{name}</title>", 1)


def _curves(series: Mapping[str, Points], title: str, x: str, width: int, height: int) -> Figure:
    if not any(math.isfinite(a) and math.isfinite(b) for points in series.values() for a, b in points):
        raise ConfigError("there is no finite point to draw", fix="give at least one series with a point")
    if not 120 <= height <= 4000:
        raise ConfigError(f"a chart {height} pixels high cannot be drawn", fix="choose a height from 120 to 4000")
    columns = max(1, canvas.checked_width(width) // (60 + 8 * max(map(len, series))))
    rows = -(-len(series) // columns)
    figure = _new_figure(width, height + 22 * rows)
    axes = figure.subplots()
    for n, (name, points) in enumerate(series.items()):
        places = np.array([point if all(map(math.isfinite, point)) else (math.nan, math.nan) for point in points])
        drawn = np.pad(np.isfinite(places[:, 0]), 1)
        ends = np.flatnonzero(drawn[1:-1] & ~(drawn[:-2] & drawn[2:])).tolist()  # of each part: a lone point is one
        turn, colour = divmod(n, len(COLOURS))  # when the colours come round again, the marks are others
        (line,) = axes.plot(*places.T, color=_hex(COLOURS[colour]), label=_literal(name), lw=2)
        line.set(marker="osD^v"[turn % 5], markevery=ends, markersize=4)
    axes.grid(axis="y", color=_hex(LINE), lw=0.8)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=_hex(SOFT), length=0, labelsize=_NOTE)
    axes.set_xlabel(_literal(x), loc="right", color=_hex(SOFT), fontsize=_NOTE)
    if title:
        figure.suptitle(_literal(title), x=0.01, ha="left", fontsize=_TEXT, fontweight="bold", color=_hex(INK))
    figure.legend(loc="outside lower left", ncols=columns, frameon=False, fontsize=_NOTE, labelcolor=_hex(SOFT))
    return figure


def gate_values(caption: Caption, name: str, shape: tuple[int, ...] | None = None) -> list[Array]:
    """The gate `name` of every word, as arrays; refused where one is missing, of another shape or outside [0, 1].

    Without a `shape`, a gate is one number, which may stand in an array of one.
    """
    if len(caption.trace) == 0 or any(name not in trace.gates for trace in caption.trace):
        has = sorted({gate for trace in caption.trace for gate in trace.gates})
        what = f"not every word has the gate `{name}`; the caption has {', '.join(has) or 'no gates'}"
        fix = "draw the caption of a model that has this gate, with its trace"
        raise MissingPartError(what, where=caption.text, fix=fix)
    values: list[Array] = [np.asarray(trace.gates[name], dtype=np.float64) for trace in caption.trace]
    for word, value in zip(caption.words, values, strict=True):
        if not np.isfinite(value).all() or value.min() < -1e-3 or value.max() > 1 + 1e-3:
            raise DataError(f"the gate `{name}` of “{word}” is not in [0, 1]", where=caption.text)
        if value.shape != shape if shape else value.size != 1:
            wanted = f"{shape} was" if shape else "one number a word was"
            raise DataError(f"the gate `{name}` has shape {value.shape}, {wanted} expected", where=caption.text)
    return values


def sentinel_panels(
    photo: Photo, caption: Caption, scene: Scene, over: Over = "grid", width: int = 960, columns: int = 4
) -> Image.Image:
    """AdaptiveAttention: for each word a bar of 1 - β, how much it was seen rather than known; then where it looked.

    β is the weight of the sentinel, `gates["sentinel"]`.
    """
    visual = 1 - np.array([value.item() for value in gate_values(caption, "sentinel")])
    parts = {"seen in the photo (one minus the sentinel's weight)": (visual, COLOURS[0])}
    bars = _bars(caption.words, parts, canvas.checked_width(width))
    return attention_panels(photo, caption, scene, over, width, columns, above=bars)


def relationship_gate(photo: Photo, caption: Caption, width: int = 960) -> Image.Image:
    """JRAN (Fig. 8): per word the weight of the visual relationship and, stacked on it, of the visual-semantic one.

    The visual weight is `gates["relationship"]`, the other one minus it.
    """
    visual = np.array([value.item() for value in gate_values(caption, "relationship")])
    parts = {"visual relationship": (visual, VISUAL), "visual-semantic relationship": (1 - visual, VISUAL_SEMANTIC)}
    fit = canvas.fit_photo(photo, canvas.checked_width(width, BESIDE) // 3)
    left = fit.width + GAP
    page = Sheet()
    page.photo(fit, 0, 0)
    page.photo(_bars(caption.words, parts, width - left), left, 0)
    return page.image()


def _bars(words: Sequence[str], parts: Mapping[str, tuple[Array, Colour]], width: int) -> Image.Image:
    """A bar a word, its parts from the bottom up; the first part's value stands above it."""
    figure = _new_figure(width, _BARS + 30 * (len(parts) - 1))
    axes = figure.subplots()
    places, below = np.arange(len(words)), np.zeros(len(words))
    axes.bar(places, np.ones(len(words)), 0.7, color=_hex(LINE), lw=0)
    for name, (values, colour) in parts.items():
        axes.bar(places, values, 0.7, below, color=_hex(colour), lw=0, label=name)
        below = below + values
    for place, value in zip(places.tolist(), next(iter(parts.values()))[0], strict=True):
        axes.text(place, 1.02, f"{value:.2f}", ha="center", va="bottom", fontsize=_NOTE, color=_hex(SOFT))
    labels = [_literal(word if len(word) < 20 else f"{word[:19]}…") for word in words]
    axes.set_xticks(places, labels, fontsize=_NOTE)
    crowded = (9 * max(map(len, words)) + 6) * len(words) > width  # 9 pixels a letter
    axes.tick_params(length=0, labelcolor=_hex(INK), rotation=45 if crowded else 0)
    axes.set(yticks=[], xlim=(-0.6, len(words) - 0.4), ylim=(0, 1.15))
    axes.spines[:].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize=_NOTE, ncols=1, labelcolor=_hex(SOFT))
    return _render(figure)


def memory_weights(caption: Caption, photo: Photo | None = None, width: int = 960) -> Image.Image:
    """R²M (Fig. 5): per word the 2 × 2 weights of the fusion memory and the H × 2 weights of the relational memory.

    `gates["fusion"]` is [[v from v, v from w], [w from v, w from w]] with v the concepts and w the previous word;
    `gates["memory"]` has a row a head: [memory from memory, memory from f]. Of a model without one of the two memories,
    the other is shown. Darker is more.
    """
    names = [name for name in _SOURCES if any(name in trace.gates for trace in caption.trace)] or list(_SOURCES)
    first = caption.trace[0].gates if caption.trace else {}
    heads = {name: 2 if name == "fusion" else len(np.atleast_1d(first.get(name, ()))) for name in names}
    weights = {name: gate_values(caption, name, (heads[name], 2)) for name in names}
    a_line = max(1, (canvas.checked_width(width, BESIDE) - 80) // (2 * _CELL + 24))  # words side by side
    page = Sheet()
    bottom = 0 if photo is None else page.photo(canvas.fit_photo(photo, width // 3), 0, 0) + GAP
    for start in range(0, len(caption.words), a_line):
        figure = _new_figure(width, sum(_CELL * heads[name] + 36 for name in names) + 24)
        grid = figure.subplots(len(names), a_line, squeeze=False, height_ratios=[heads[name] for name in names])
        for axes in grid.flat:
            axes.set_axis_off()
        for column, word in enumerate(caption.words[start : start + a_line]):
            grid[0, column].set_title(_literal(word), fontsize=_TEXT, fontweight="bold", color=_hex(INK))
            for axes, name in zip(grid[:, column], names, strict=True):
                _cells(axes, weights[name][start + column])
                axes.set_xticks((0, 1), _SOURCES[name], fontsize=_NOTE)
        for axes, name in zip(grid[:, 0], names, strict=True):
            rows = ["v from", "w from"] if name == "fusion" else [f"head {n + 1}" for n in range(heads[name])]
            axes.set_yticks(range(len(rows)), rows, fontsize=_NOTE)
            axes.set_ylabel(name, fontsize=_NOTE, color=_hex(INK))
        bottom = page.photo(_render(figure), 0, bottom) + GAP
    return page.image()


def _cells(axes: Axes, weights: Array, low: float = 0.0, high: float = 1.0) -> None:
    """A heat map with its numbers; darker is more. Axes have no marks until they are set."""
    axes.set_axis_on()
    axes.imshow(weights, cmap="Blues", vmin=low, vmax=high, aspect="auto")
    for (row, column), weight in np.ndenumerate(weights):
        dark = (weight - low) / ((high - low) or 1.0) > 0.55
        ink = "white" if dark else _hex(INK)
        axes.text(column, row, f"{weight:.2f}", ha="center", va="center", fontsize=8, color=ink)
    axes.set(xticks=[], yticks=[])
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False, labelcolor=_hex(SOFT))
    axes.spines[:].set_visible(False)


def word_region_matrix(
    photo: Photo, scene: Scene, words: Sequence[str], weights: Array, most: int = 12, width: int = 960
) -> Image.Image:
    """SCAN's alignment: a row a word, a column a region; darker is more, and each word's largest weight is outlined.

    `weights` is (words, regions) attention or similarity; cosines may be negative: the lightest cell is then the
    smallest one. Only the `most` regions with the largest weight for any word are shown, in the scene's order.
    """
    scene.require("boxes", by="a picture of words and regions")
    assert scene.boxes is not None
    if not words or not len(scene):
        missing = "words" if not words else "regions"
        raise DataError(f"there are no {missing} to draw a matrix of", where=scene.where, fix=f"give some {missing}")
    if most < 1:
        raise ConfigError(f"`most` is {most}: no region would be shown", fix="show one or more")
    weights = check_weights(weights, (len(words), len(scene)), scene.where)
    regions: list[int] = np.sort(np.argsort(-weights.max(axis=0), kind="stable")[:most]).tolist()
    full, boxes = open_image(photo), [as_box(scene.boxes[region]) for region in regions]
    marks = [
        Mark(box, str(region), COLOURS[n % len(COLOURS)])
        for n, (region, box) in enumerate(zip(regions, boxes, strict=True))
    ]
    fit = draw_boxes(canvas.fit_photo(full, canvas.checked_width(width) // 2), marks, 2)
    heights = (min(96, width // (len(regions) + 2)), _CELL * len(words))
    figure = _new_figure(width, sum(heights) + 70)
    squares, table = figure.subplots(2, height_ratios=heights)
    squares.imshow(_crops(full, boxes), extent=(-0.5, len(regions) - 0.5, 1, 0), aspect="auto")
    squares.set_axis_off()
    low, high = min(0.0, float(weights.min())), float(weights.max())
    _cells(table, weights[:, regions], low, high)
    table.set_xticks(range(len(regions)), [str(region) for region in regions], fontsize=_NOTE)
    table.set_yticks(range(len(words)), [_literal(word) for word in words], fontsize=_TEXT)
    table.tick_params(axis="y", labelcolor=_hex(INK))
    for row, values in enumerate(weights[:, regions]):
        if values.max() > 0:
            table.plot(values.argmax() + _SQUARE[0], row + _SQUARE[1], color=_hex(COLOURS[4]), lw=2.5)
    note = f"{len(regions)} of {len(scene)} regions; lightest is {low:.2f}, darkest {high:.2f}"
    table.set_xlabel(note, loc="left", fontsize=_NOTE, color=_hex(SOFT))
    page = Sheet()
    bottom = page.photo(fit, 0, 0)
    page.photo(_render(figure), 0, bottom + GAP)
    return page.image()


def _crops(photo: Image.Image, boxes: Sequence[Box]) -> Array:
    """(96, 102 n, 3): what is in the boxes, as squares side by side."""
    squares = [ImageOps.pad(photo.crop(pixels(box, photo.size)), (96, 96), color=LINE) for box in boxes]
    return np.concatenate([np.asarray(ImageOps.expand(square, (3, 0), PAPER)) for square in squares], axis=1)


def _new_figure(width: int, height: int) -> Figure:
    """Paper of so many pixels, without the state that pyplot keeps."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError.of("matplotlib", "draw", "a chart") from None
    figure = Figure((width / _DPI, height / _DPI), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _render(figure: Figure) -> Image.Image:
    """What is drawn, without the paper around it."""
    canvas: Any = figure.canvas
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    return image.crop(ImageChops.difference(image, Image.new("RGB", image.size, PAPER)).getbbox())


def _literal(text: str) -> str:
    """Text that matplotlib takes as it stands: a dollar would begin a formula."""
    return text.replace("$", r"\$")


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
