"""Which kind of picture a file is, by its first bytes and never by its name."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

import PIL
from PIL import Image, features

from sightline.errors import ImageError, MissingExtraError

HEAD = 512  # bytes that are enough to tell
Opener = Callable[[IO[bytes], str], Image.Image]


@dataclass(frozen=True)
class Kind:
    """A kind of picture that is read.

    Attributes:
        name: as people call it.
        format: Pillow's name of it.
        plugin: the module whose import teaches Pillow to open it.
        feature: the part of Pillow, as `PIL.features` calls it, without which it cannot be decoded.
    """

    name: str
    format: str
    plugin: str
    feature: str | None = None

    def opener(self, where: str) -> Opener:
        """What opens such a file; a MissingExtraError where that is an extra that is not installed."""
        if self.format == "HEIF":
            return _heif_opener(where)
        importlib.import_module(self.plugin)
        return Image.OPEN[self.format][0]

    def unreadable(self, where: str, error: Exception) -> ImageError:
        """The error for a picture of this kind that could not be decoded because of `error`."""
        if self.feature is not None and not features.check(self.feature):
            return ImageError(
                f"the Pillow that is installed ({PIL.__version__}) cannot read {self.name} pictures",
                where=where,
                fix="pip install --upgrade pillow, or save the picture as JPEG or PNG",
            )
        return ImageError(
            f"this {self.name} picture is damaged or cut short ({reason(error)})",
            where=where,
            fix="copy or download it again, or leave it out",
        )


JPEG = Kind("JPEG", "JPEG", "PIL.JpegImagePlugin", "jpg")
AVIF = Kind("AVIF", "AVIF", "PIL.AvifImagePlugin", "avif")
HEIC = Kind("HEIC", "HEIF", "pillow_heif")
TIFF = Kind("TIFF", "TIFF", "PIL.TiffImagePlugin")

_KINDS = (
    (rb"\xff\xd8\xff", JPEG),
    (rb"\x89PNG\r\n\x1a\n", Kind("PNG", "PNG", "PIL.PngImagePlugin", "zlib")),
    (rb"RIFF....WEBP", Kind("WebP", "WEBP", "PIL.WebPImagePlugin", "webp")),
    (rb"GIF8[79]a", Kind("GIF", "GIF", "PIL.GifImagePlugin")),
    (rb"II[*+]\0|MM\0[*+]", TIFF),
    (rb"....ftyp(?:avi[fs]|(?:mif1|msf1).{4}(?:.{4}){0,30}?avi[fs])", AVIF),
    (rb"....ftyp(?:hei[cxms]|hev[cxms]|mif1|msf1)", HEIC),
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


def _heif_opener(where: str) -> Opener:
    try:
        from pillow_heif import HeifImageFile
    except ImportError as error:
        told = MissingExtraError.of("pillow-heif", "heic", "reading HEIC photos")
        raise MissingExtraError(told.what, where=where, fix=told.fix) from error
    return HeifImageFile  # type: ignore[no-any-return]
