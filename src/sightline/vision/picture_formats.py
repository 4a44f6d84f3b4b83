"""Which kind of picture a file is, by its first bytes and never by its name; and from every mode of picture to RGB.

Deep pictures are scaled, transparent ones laid on white.
"""

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image, features

from sightline.errors import ImageError, about, library

Array = npt.NDArray[Any]
PAPER = (255, 255, 255)  # what is seen through transparent places
ARRAY = "the array given"
HEAD = 512  # bytes that are enough to tell
Opener = Callable[[IO[bytes], str], Image.Image]


@dataclass(frozen=True)
class Kind:
    """A kind of picture that is read."""

    name: str  # as people call it
    format: str  # Pillow's name of it
    plugin: str  # the module that teaches Pillow to open it
    feature: str | None = None  # the part of Pillow (`PIL.features`) without which it cannot be decoded

    def opener(self, where: str) -> Opener:
        """What opens such a file; a MissingExtraError where that is an extra that is not installed."""
        if self.format == "HEIF":  # whose plugin teaches Pillow nothing by itself
            with about(where):
                return library(self.plugin, "heic", "reading HEIC photos").HeifImageFile  # type: ignore[no-any-return]
        importlib.import_module(self.plugin)
        return Image.OPEN[self.format][0]

    def unreadable(self, where: str, error: Exception) -> ImageError:
        """The error for a picture of this kind that could not be decoded because of `error`."""
        if self.feature is not None and not features.check(self.feature):
            what = f"the Pillow that is installed ({PIL.__version__}) cannot read {self.name} pictures"
            return ImageError(what, where=where, fix="pip install --upgrade pillow, or save the picture as JPEG or PNG")
        fix = "copy or download it again, or leave it out"
        return ImageError(f"this {self.name} picture is damaged or cut short ({reason(error)})", where=where, fix=fix)


_KINDS = (
    (rb"\xff\xd8\xff", Kind("JPEG", "JPEG", "PIL.JpegImagePlugin", "jpg")),
    (rb"\x89PNG\r\n\x1a\n", Kind("PNG", "PNG", "PIL.PngImagePlugin", "zlib")),
    (rb"RIFF....WEBP", Kind("WebP", "WEBP", "PIL.WebPImagePlugin", "webp")),
    (rb"GIF8[79]a", Kind("GIF", "GIF", "PIL.GifImagePlugin")),
    (rb"II[*+]\0|MM\0[*+]", Kind("TIFF", "TIFF", "PIL.TiffImagePlugin")),
    (
        rb"....ftyp(?:avi[fs]|(?:mif1|msf1).{4}(?:.{4}){0,30}?avi[fs])",
        Kind("AVIF", "AVIF", "PIL.AvifImagePlugin", "avif"),
    ),
    (rb"....ftyp(?:hei[cxms]|hev[cxms]|mif1|msf1)", Kind("HEIC", "HEIF", "pillow_heif")),
    (rb"BM", Kind("BMP", "BMP", "PIL.BmpImagePlugin")),
)
KINDS = tuple((re.compile(pattern, re.DOTALL), kind) for pattern, kind in _KINDS)

_SAVE = "save it as JPEG or PNG"
_AGAIN = "download the picture itself again"
_OTHERS = (  # what is often found under a picture's name, and what to do about it
    (rb"(?:\xef\xbb\xbf)?\s*(?:<!--.*?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", "this is a web page", _AGAIN),
    (rb"\s*(?:<\?xml.*?)?(?:<!--.*?-->\s*)?(?:<!DOCTYPE\s+svg.*?)?<svg\b", "this is an SVG drawing", _SAVE),
    (rb"version https://git-lfs", "this is a Git LFS pointer, the picture is not in it", "run `git lfs pull`"),
    (rb"%PDF-", "this is a PDF document", "save its pages as JPEG or PNG"),
    (rb"PK\x03\x04", "this is a zip archive", "unpack it, and give the pictures that are in it"),
    (rb"8BPS", "this is a Photoshop document", _SAVE),
    (rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51", "this is a JPEG 2000 picture, which is not read", _SAVE),
    (rb"\xff\x0a|\0\0\0\x0cJXL ", "this is a JPEG XL picture, which is not read", _SAVE),
    (rb"....ftyp|\x1a\x45\xdf\xa3|RIFF....AVI ", "this is a video", "save a frame of it as JPEG or PNG"),
)
OTHERS = tuple((re.compile(pattern, re.DOTALL | re.IGNORECASE), what, fix) for pattern, what, fix in _OTHERS)


def kind_of(head: bytes) -> Kind | None:
    """The kind of picture that begins with these bytes (at least 16, HEAD to be sure), or None."""
    return next((kind for pattern, kind in KINDS if pattern.match(head)), None)


def not_a_picture(head: bytes, where: str) -> ImageError:
    """The error for a file that begins like no picture: it tells what the file is instead, where that can be seen."""
    if not head:
        return ImageError("the file is empty", where=where, fix="copy or download it again, or leave it out")
    for pattern, what, fix in OTHERS:
        if pattern.match(head):
            return ImageError(what, where=where, fix=fix)
    what = "this is text, not a picture" if _is_text(head) else "this begins like no picture that can be read"
    return ImageError(what, where=where, fix="give the picture itself, or leave it out")


def reason(error: Exception) -> str:
    """What a decoder complained about, in one short line."""
    lines = str(error).split("\n")
    return lines[0][:120].rstrip(". ") or type(error).__name__


def _is_text(head: bytes) -> bool:
    try:
        text = head[: HEAD - 4].decode("utf-8")  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return all(letter.isprintable() or letter.isspace() for letter in text)


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
        layer = image.convert("RGBA")
        paper = Image.new("RGB", layer.size, PAPER)
        paper.paste(layer.convert("RGB"), mask=layer.getchannel("A"))
        return paper
    return image if image.mode == "RGB" else image.convert("RGB")


def image_of(array: Array) -> Image.Image:
    """A picture of an array: height × width, or height × width × 1, 3 or 4; uint8, uint16, bool, or float in 0…1."""
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)) or 0 in array.shape:
        channels_first = array.ndim == 3 and array.shape[0] in (1, 3, 4)
        fix = "array.transpose(1, 2, 0) puts the channels last" if channels_first else "give height × width × 3"
        raise ImageError(f"an array of shape {array.shape} is no picture", where=ARRAY, fix=fix)
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
        fix = "array.astype(np.uint8), with values in 0…255"
        raise ImageError(f"an array of {array.dtype} is no picture", where=ARRAY, fix=fix)
    lowest, highest = float(array.min()), float(array.max())
    if not (lowest >= 0 and highest <= 1):  # NaN is refused as well
        fix = "divide by the highest value a pixel can have, for example array / 255"
        raise ImageError(f"floats must be in 0…1, and these are in {lowest:g}…{highest:g}", where=ARRAY, fix=fix)
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
    stretched: npt.NDArray[np.uint8] = np.rint(scaled * 255).astype(np.uint8)
    return stretched
