"""Line charts for training curves, as a picture or as SVG that sits inline in a page and follows its colours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from PIL import Image, ImageDraw

from sightline.draw.canvas import COLOURS, LINE, SOFT, Colour, blank, checked_width, rows_of, sheet, stamp
from sightline.draw.gates import legend
from sightline.draw.text_layout import SMALL, TITLE, Span, letter, text_block, text_width, words_of
from sightline.errors import ConfigError

Points = Sequence[tuple[float, float]]

_BOTTOM, _TOP = 30, 10


def curves(
    series: Mapping[str, Points], title: str = "", x: str = "", width: int = 720, height: int = 320
) -> Image.Image:
    """A line a series, name to (x, y) points; a point that is not finite breaks its line."""
    chart = _Chart.of(series, checked_width(width), _checked_height(height))
    plot = blank(width, height)
    draw = ImageDraw.Draw(plot)
    for value, label in chart.y_ticks:
        y = round(chart.y(value))
        draw.line((chart.left, y, chart.right, y), fill=LINE)
        letter(plot, chart.left - 8 - text_width(label, SMALL), y - 12, Span(label, SOFT), SMALL)
    for value, label in chart.x_ticks:
        left = round(chart.x(value) - text_width(label, SMALL) / 2)
        letter(plot, left, height - _BOTTOM + 6, Span(label, SOFT), SMALL)
    for line, colour in zip(chart.lines, _colours(len(series)), strict=True):
        for part in line:
            _draw_line(plot, part, colour)
    return sheet(*_head(series, title, width), plot, text_block(words_of(x, SOFT), width, SMALL, "end"), gap=10)


def curves_svg(series: Mapping[str, Points], title: str = "", x: str = "", width: int = 720, height: int = 320) -> str:
    """The same chart as an inline `<svg>` for a page; its text and axes take the page's text colour."""
    chart = _Chart.of(series, checked_width(width), _checked_height(height))
    named = title or ", ".join(series)
    key, bottom = _svg_legend(series, chart.left, width, height + 24)
    out = [
        f'<svg viewBox="0 0 {width} {bottom}" role="img" aria-label="{escape(named)}" '
        'font-family="system-ui, sans-serif" font-size="13" fill="currentColor">',
        f"<title>{escape(named)}</title>",
    ]
    for value, label in chart.y_ticks:
        y = chart.y(value)
        out.append(f'<path d="M{chart.left} {y:.1f}H{chart.right}" stroke="currentColor" stroke-opacity=".18"/>')
        out.append(f'<text x="{chart.left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for value, label in chart.x_ticks:
        out.append(f'<text x="{chart.x(value):.1f}" y="{height - 10}" text-anchor="middle">{label}</text>')
    out.append(f'<text x="{chart.right}" y="{height + 8}" text-anchor="end">{escape(x)}</text>')
    for name, line, (r, g, b) in zip(series, chart.lines, _colours(len(series)), strict=True):
        path = "".join("M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in part) for part in line)
        out.append(
            f'<path d="{path}" fill="none" stroke="#{r:02x}{g:02x}{b:02x}" stroke-width="2.5" '
            f'stroke-linejoin="round" stroke-linecap="round"><title>{escape(name)}</title></path>'
        )
    return "\n".join([*out, *key, "</svg>"])


@dataclass(frozen=True)
class _Chart:
    """Where everything stands, for both kinds of output."""

    left: int
    right: int
    height: int
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    points: tuple[Points, ...]

    @classmethod
    def of(cls, series: Mapping[str, Points], width: int, height: int) -> _Chart:
        finite = [point for points in series.values() for point in points if _is_finite(point)]
        if not finite:
            raise ConfigError("there is no finite point to draw", fix="give at least one series with a point")
        x_ticks = ticks(min(x for x, _ in finite), max(x for x, _ in finite), max(2, width // 110))
        y_ticks = ticks(min(y for _, y in finite), max(y for _, y in finite), max(2, height // 60))
        left = max(text_width(label, SMALL) for _, label in y_ticks) + 12
        right = width - text_width(x_ticks[-1][1], SMALL) // 2 - 4
        x_range, y_range = ((marks[0][0], marks[-1][0]) for marks in (x_ticks, y_ticks))
        return cls(left, right, height, x_range, y_range, x_ticks, y_ticks, tuple(series.values()))

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + (value - low) / (high - low) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.height - _BOTTOM - (value - low) / (high - low) * (self.height - _BOTTOM - _TOP)

    @property
    def lines(self) -> list[list[list[tuple[float, float]]]]:
        """Per series its unbroken parts, in pixels."""
        drawn = []
        for points in self.points:
            parts: list[list[tuple[float, float]]] = [[]]
            for point in points:
                if _is_finite(point):
                    parts[-1].append((self.x(point[0]), self.y(point[1])))
                else:
                    parts.append([])
            drawn.append([part for part in parts if part])
        return drawn


def ticks(low: float, high: float, about: int) -> list[tuple[float, str]]:
    """Round numbers that enclose [low, high], with their labels."""
    if high <= low:
        spread = abs(low) * 0.1 or 1.0
        low, high = low - spread, high + spread
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    decimals = max(0, -math.floor(math.log10(step)) + (1 if f"{step:e}".startswith("2.5") else 0))
    return [(n * step, _told(n * step, decimals)) for n in range(first, last + 1)]


def _told(value: float, decimals: int) -> str:
    if abs(value) >= 1e6 or decimals > 6:
        return f"{value:.3g}"
    return f"{value:,.{decimals}f}" if abs(value) >= 1e-12 else "0"


def _is_finite(point: tuple[float, float]) -> bool:
    return math.isfinite(point[0]) and math.isfinite(point[1])


def _checked_height(height: int) -> int:
    if not 120 <= height <= 4000:
        raise ConfigError(f"a chart {height} pixels high cannot be drawn", fix="choose a height from 120 to 4000")
    return height


def _colours(count: int) -> list[Colour]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _head(series: Mapping[str, Points], title: str, width: int) -> list[Image.Image]:
    named = [] if not title else [text_block(words_of(title, bold=True), width, TITLE)]
    return [*named, legend(list(zip(series, _colours(len(series)), strict=True)), width)]


def _draw_line(plot: Image.Image, points: Sequence[tuple[float, float]], colour: Colour) -> None:
    large = [(4 * x, 4 * y) for x, y in points]

    def paint(mask: ImageDraw.ImageDraw) -> None:
        if len(large) > 1:
            mask.line(large, fill=255, width=10, joint="curve")
        for x, y in (large[0], large[-1]):
            mask.ellipse((x - 12, y - 12, x + 12, y + 12), fill=255)

    stamp(plot, (0, 0, plot.width, plot.height), colour, paint)


def _svg_legend(series: Mapping[str, Points], left: int, width: int, top: int) -> tuple[list[str], int]:
    """Swatches and names in as many rows as they need, and where the rows end."""
    colours = _colours(len(series))
    names = list(series)
    widths = [18 + text_width(name, SMALL) for name in names]
    rows = rows_of(widths, width - left, 24)
    out = []
    for number, items in enumerate(rows):
        at, y = left, top + 22 * number
        for i in items:
            r, g, b = colours[i]
            out.append(f'<rect x="{at}" y="{y}" width="12" height="12" fill="#{r:02x}{g:02x}{b:02x}"/>')
            out.append(f'<text x="{at + 18}" y="{y + 11}">{escape(names[i])}</text>')
            at += widths[i] + 24
    return out, top + 22 * len(rows)
