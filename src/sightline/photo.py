"""`Photo`, the one record of a photo that was read, and `PhotoEmbedding`, what a model makes of one. numpy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sightline.caption import PhotoCaption
from sightline.files import PathLike
from sightline.scene import Array

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo that was read.

    Attributes:
        id: its name in results.
        path: a path, or an address such as s3://bucket/cat.jpg; "" where it came as bytes or pixels.
        pixels: (side, side, 3), upright and squashed to the square that the model looks at.
        size: width and height before it was squashed, upright.
    """

    id: str
    path: PathLike
    pixels: Pixels
    size: tuple[int, int]


@dataclass(frozen=True, eq=False)
class PhotoEmbedding:
    """A photo, the vector that finds it, and its caption.

    Attributes:
        path: of the photo; "" where it came as pixels.
        size: width and height of the photo in pixels, upright.
        vector: (d,) of length 1: its product with the vector of a sentence tells how well they fit.
        caption: None where none was asked for.
    """

    path: str
    size: tuple[int, int]
    vector: Array
    caption: PhotoCaption | None = None
