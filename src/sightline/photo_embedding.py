"""`PhotoEmbedding`: what a model makes of one photo at a single look. numpy only."""

from __future__ import annotations

from dataclasses import dataclass

from sightline.caption import PhotoCaption
from sightline.scene import Array


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
