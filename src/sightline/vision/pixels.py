"""From picture files to pixels: upright, RGB, squashed to a square."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from sightline.errors import ImageError
from sightline.files import PathLike, existing

Pixels = npt.NDArray[np.uint8]
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def read_pixels(path: PathLike, size: int) -> tuple[Pixels, tuple[int, int]]:
    """(size, size, 3) pixels of a picture, and its width and height before it was squashed."""
    target = existing(path)
    try:
        with Image.open(target) as image:
            image.draft("RGB", (size, size))
            full = image.size if image.format != "JPEG" else _full_size(target)
            upright = ImageOps.exif_transpose(image).convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ImageError(
            f"not a picture that can be read ({error})", where=target, fix="open and save it again, or leave it out"
        ) from error
    turned = (upright.width > upright.height) != (full[0] > full[1]) and upright.width != upright.height
    squashed = upright.resize((size, size), Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.array(squashed), (full[1], full[0]) if turned else full


def _full_size(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def photos_in(folder: PathLike) -> list[Path]:
    """Every picture under a folder, by name."""
    return sorted(path for path in existing(folder).rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
