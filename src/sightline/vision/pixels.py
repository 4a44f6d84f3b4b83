"""From pictures to pixels: upright, RGB, squashed to a square."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from sightline.vision.find_photos import photos_in
from sightline.vision.images import Source, decoded

__all__ = ["Pixels", "photos_in", "read_pixels"]

Pixels = npt.NDArray[np.uint8]
SPARE = 2  # a JPEG is decoded at no less than so many times the square; with 1, pixels change by up to 4 levels


def read_pixels(source: Source, size: int, *, max_pixels: int | None = None) -> tuple[Pixels, tuple[int, int]]:
    """(size, size, 3) pixels of a picture, and its width and height before it was squashed, upright.

    `source` and `max_pixels` are those of `sightline.vision.images.open_image`, and so are the errors. Large JPEGs are
    decoded at a half, a quarter or an eighth of their size, which changes pixels by less than a level on average.
    """
    with decoded(source, least=SPARE * size, max_pixels=max_pixels) as found:
        squashed = found.image.resize((size, size), Image.Resampling.BICUBIC, reducing_gap=3.0)
    upright = squashed if found.turn is None else squashed.transpose(found.turn)
    return np.array(upright), found.size
