"""`Photo`, the one record of a photo that was read, and `PhotoEmbedding`, what a model makes of one. numpy only."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sightline.caption import PhotoCaption
from sightline.files import PathLike
from sightline.scene import Array

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo that was read."""

    id: str  # its name in results
    path: PathLike  # or an address such as s3://bucket/cat.jpg; "" where it came as bytes or pixels
    pixels: Pixels  # (side, side, 3), upright and squashed to the square that the model looks at
    size: tuple[int, int]  # width and height before it was squashed, upright


@dataclass(frozen=True, eq=False)
class PhotoEmbedding:
    """A photo, the vector that finds it, and its caption."""

    path: str  # "" where it came as pixels
    size: tuple[int, int]  # width and height of the photo in pixels, upright
    vector: Array  # (d,) of length 1: its product with the vector of a sentence tells how well they fit
    caption: PhotoCaption | None = None  # None where none was asked for
