"""From every mode of picture, and from arrays, to RGB: deep pictures are scaled, transparent ones laid on white."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from sightline.errors import ImageError

Array = npt.NDArray[Any]
PAPER = (255, 255, 255)  # what is seen through transparent places
ARRAY = "the array given"


def as_rgb(image: Image.Image) -> Image.Image:
    """The picture in RGB; itself if it is so already.

    Of 16 bits the upper 8 are kept, as Pillow does with colour. Integers of 32 bits and floats have no agreed range:
    their lowest value becomes black, their highest white. CMYK is turned without a colour profile; Pillow has put
    right before what Adobe stores inverted. Transparent places show white paper.
    """
    if image.mode.startswith("I;16"):
        image = Image.fromarray(_upper_byte(np.asarray(image)))
    elif image.mode in ("I", "F"):
        image = Image.fromarray(_stretched(np.asarray(image)))
    elif image.mode in ("La", "RGBa"):
        image = image.convert(image.mode.upper())
    if image.has_transparency_data:
        return _on_paper(image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")


def image_of(array: Array) -> Image.Image:
    """A picture of an array: height × width, or height × width × 1, 3 or 4; uint8, uint16, bool, or float in 0…1."""
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)) or 0 in array.shape:
        channels_first = array.ndim == 3 and array.shape[0] in (1, 3, 4)
        raise ImageError(
            f"an array of shape {array.shape} is no picture",
            where=ARRAY,
            fix="array.transpose(1, 2, 0) puts the channels last" if channels_first else "give height × width × 3",
        )
    eight_bit = _eight_bit(array)
    return Image.fromarray(np.ascontiguousarray(eight_bit[..., 0] if array.shape[2:] == (1,) else eight_bit))


def _eight_bit(array: Array) -> npt.NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.uint16:
        return _upper_byte(array)
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if not np.issubdtype(array.dtype, np.floating):
        raise ImageError(
            f"an array of {array.dtype} is no picture", where=ARRAY, fix="array.astype(np.uint8), with values in 0…255"
        )
    lowest, highest = float(array.min()), float(array.max())
    if not (lowest >= 0 and highest <= 1):  # NaN is refused as well
        raise ImageError(
            f"floats must be in 0…1, and these are in {lowest:g}…{highest:g}",
            where=ARRAY,
            fix="divide by the highest value a pixel can have, for example array / 255",
        )
    rounded: npt.NDArray[np.uint8] = np.rint(array.astype(np.float32) * np.float32(255)).astype(np.uint8)
    return rounded


def _upper_byte(deep: Array) -> npt.NDArray[np.uint8]:
    upper: npt.NDArray[np.uint8] = (deep >> 8).astype(np.uint8)
    return upper


def _stretched(deep: Array) -> npt.NDArray[np.uint8]:
    """Lowest to 0, highest to 255; what is not finite counts as the lowest."""
    values = deep.astype(np.float64)
    finite = np.isfinite(values)
    lowest, highest = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    scaled = (np.where(finite, values, lowest) - lowest) / ((highest - lowest) or 1.0)
    found: npt.NDArray[np.uint8] = np.rint(scaled * 255).astype(np.uint8)
    return found


def _on_paper(layer: Image.Image) -> Image.Image:
    paper = Image.new("RGB", layer.size, PAPER)
    paper.paste(layer.convert("RGB"), mask=layer.getchannel("A"))
    return paper
