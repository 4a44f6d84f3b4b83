"""Where words looked: attention over regions or over the grid, one panel a word, and the gates that go with it."""

from typing import Literal

import numpy as np
from PIL import Image

from sightline.caption import Caption, WordTrace
from sightline.draw.canvas import COLOURS, GAP, SMALL, SOFT, Photo, Sheet, Span, checked_width, fit_photo, spans
from sightline.draw.photo_boxes import outline, pixels
from sightline.errors import ConfigError, CountError, DataError, MissingPartError, NonFiniteError
from sightline.scene import Array, Scene, as_box

Over = Literal["regions", "grid"]

# From purple over red to yellow: lightness grows with the weight.
_HEAT = np.array([(110, 30, 130), (196, 52, 104), (236, 104, 56), (250, 164, 40), (255, 226, 96)], dtype=np.float64)


def attention_panels(
    photo: Photo,
    caption: Caption,
    scene: Scene,
    over: Over = "regions",
    width: int = 960,
    columns: int = 4,
    one_scale: bool = False,
    above: Image.Image | None = None,
) -> Image.Image:
    """One panel a word: what it attended to glows, and over regions the most attended one is outlined.

    Each panel is scaled to its own maximum, as in the papers' figures, and the largest weight stands under the word;
    with `one_scale` all panels share one, so that faint attention looks faint. A word without attention, or with none
    above zero, gets the dimmed photo. A picture may stand `above` the panels.
    """
    if not 1 <= columns <= checked_width(width) // 64:
        raise ConfigError(f"{columns} panels do not fit side by side into {width} pixels", fix="choose fewer columns")
    room = (width - GAP * (columns - 1)) // columns
    fit = fit_photo(photo, room)
    traces = zip(caption.words, caption.trace, strict=bool(caption.trace))
    weights = [(word, attention_of(word, trace, scene, over)) for word, trace in traces]
    if all(row is None for _, row in weights):
        what, fix = f"no word of this caption has attention over {over}", f"draw that of a model that attends to {over}"
        raise MissingPartError(what, where=caption.text, fix=f"{fix}, with its trace")
    maps = [_map(row, scene, over, fit.size) for _, row in weights]
    most = max(float(glow.max()) for glow in maps) if one_scale else None
    page = Sheet()
    top = bottom = 0 if above is None else page.photo(above, 0, 0) + GAP
    for n, ((word, row), glow) in enumerate(zip(weights, maps, strict=True)):
        panel, note = overlay(fit, glow, most), "no attention"
        if row is not None and row.any():
            note = f"at most {row.max():.2f}"
            if over == "regions" and scene.boxes is not None:
                best = int(row.argmax())
                outline(panel, pixels(as_box(scene.boxes[best]), panel.size), COLOURS[0], 2)
                note = f"region {best}: {row[best]:.2f}"
        top = bottom if n % columns == 0 else top
        left = n % columns * (room + GAP)
        below = page.photo(panel, left, page.words([Span(word)], left, top, room))
        bottom = max(bottom, page.words(spans(note, SOFT), left, below, room, SMALL) + GAP)
    return page.image()


def _map(weights: Array | None, scene: Scene, over: Over, size: tuple[int, int]) -> Array:
    if weights is None:
        return np.zeros((size[1], size[0]))
    if over == "grid":
        return grid_map(weights, grid_shape(scene, len(weights)), size)
    assert scene.boxes is not None
    return region_map(scene.boxes, weights, size)


def attention_of(word: str, trace: WordTrace, scene: Scene, over: Over) -> Array | None:
    """A word's attention, checked against the scene: one finite weight of zero or more for each region or cell."""
    weights: Array | None = getattr(trace, over)
    if weights is None:
        return None
    if over == "regions":
        scene.require("boxes", by="a picture of region attention")
    expected = len(scene) if over == "regions" else int(np.prod(grid_shape(scene, len(weights))))
    attention = check_weights(weights, (expected,), f"the attention of “{word}” in {scene.where}")
    if (attention < 0).any():
        what = f"attention of “{word}” has negative weights"
        raise DataError(what, where=scene.where, fix="give weights after the softmax")
    return attention


def check_weights(weights: Array, expected: tuple[int, ...], where: str) -> Array:
    """`weights` as float64, refused unless they have the `expected` shape and all are finite."""
    if np.shape(weights) != expected:
        what = f"{' × '.join(map(str, expected))} weights were expected, and the array has shape {np.shape(weights)}"
        raise CountError(what, where=where, fix="draw with the scene that the caption was made from")
    checked = np.asarray(weights, dtype=np.float64)
    if not np.isfinite(checked).all():
        raise NonFiniteError("the weights hold NaN or infinity", where=where, fix="check the model that made them")
    return checked


def grid_shape(scene: Scene, cells: int) -> tuple[int, int]:
    """Rows and columns of the grid: the scene's, or a square where the scene does not hold its grid."""
    if scene.grid_shape is not None:
        return scene.grid_shape
    side = round(cells**0.5)
    if side * side != cells:
        what = f"{cells} grid weights make no square, and the scene does not say its grid's shape"
        raise MissingPartError(what, where=scene.where, fix="give the scene with its `grid` and `grid_shape`")
    return side, side


def region_map(boxes: Array, weights: Array, size: tuple[int, int]) -> Array:
    """(height, width): at each pixel the sum of the weights (n,) of all regions it lies in, normalised boxes (n, 4)."""
    total = np.zeros((size[1], size[0]))
    for box, weight in zip(boxes, weights, strict=True):
        left, top, right, bottom = pixels(as_box(box), size)
        total[top:bottom, left:right] += weight
    return total


def grid_map(weights: Array, shape: tuple[int, int], size: tuple[int, int]) -> Array:
    """(height, width): grid weights, row by row, smoothly enlarged to the picture."""
    cells = Image.fromarray(np.asarray(weights, dtype=np.float32).reshape(shape))
    return np.maximum(np.asarray(cells.resize(size, Image.Resampling.BICUBIC), dtype=np.float64), 0.0)


def overlay(photo: Image.Image, weights: Array, top: float | None = None) -> Image.Image:
    """`photo` dimmed, glowing where `weights` (height, width) are large; `top` glows most (default: their maximum)."""
    most = (weights.max() if top is None else top) or 1.0
    scaled = np.clip(weights / most, 0, 1)
    heat = np.stack([np.interp(scaled, np.linspace(0, 1, len(_HEAT)), channel) for channel in _HEAT.T], axis=-1)
    scaled = scaled[..., None]
    colour = np.asarray(photo, dtype=np.float64)
    grey = (colour @ np.array([0.299, 0.587, 0.114]))[..., None]
    lit = (0.6 + 0.4 * scaled) * (0.35 * colour + 0.65 * grey)
    return Image.fromarray((lit * (1 - 0.62 * scaled) + heat * 0.62 * scaled).round().astype(np.uint8))


def rank_scores(correlations: Array) -> Array:
    """(n,) scores of VSRN (section 4.5): regions ranked by correlation (0 is best) score 50 (n - rank)²."""
    rank = np.argsort(np.argsort(-np.asarray(correlations, dtype=np.float64), kind="stable"))
    scores: Array = 50.0 * (len(rank) - rank.astype(np.float64)) ** 2
    return scores


def representation_attention(photo: Photo, scene: Scene, correlations: Array, width: int = 720) -> Image.Image:
    """The photo, glowing where the regions lie that correlate most with the image's vector; without a margin.

    `correlations` (n,) is the inner product of each region with the image's vector.
    """
    scene.require("boxes", by="the attention of a representation")
    assert scene.boxes is not None
    checked = check_weights(correlations, (len(scene),), f"correlations of {scene.where}")
    fit = fit_photo(photo, checked_width(width))
    return overlay(fit, region_map(scene.boxes, rank_scores(checked), fit.size))
