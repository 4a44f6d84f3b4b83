"""Pictures opened safely: upright RGB, or the pixels of a square, of a file, bytes, an array or a Pillow image.

The kind of a file is recognised by its first bytes, and only the kinds of `sightline.vision.picture_formats` are
opened. What a file declares is checked before a pixel is decoded. Several threads may read at once; of very large
pictures, one at a time.
"""

import contextlib
import io
import logging
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image

from sightline.errors import ConfigError, ImageError
from sightline.files import PathLike, existing_path
from sightline.photo import Pixels
from sightline.vision.picture_formats import ARRAY, HEAD, Kind, as_rgb, image_of, kind_of, not_a_picture, reason

Source = PathLike | bytes | bytearray | memoryview | Image.Image | npt.NDArray[Any]

logging.getLogger("PIL").addHandler(logging.NullHandler())  # what is wrong with a picture is in our own error
MAX_PIXELS = 200_000_000  # as many as the largest phone cameras take
LIMIT_VARIABLE = "SIGHTLINE_MAX_PIXELS"
SPARE = 2  # a JPEG is decoded at no less than so many times the square; with 1, pixels change by up to 4 levels
THIN = 100  # pixels a byte; photos have 2 to 20, and a large picture with more than this is none
LARGE = 25_000_000  # pixels to decode, 100 MB: from here on, one picture at a time
BLOCK = 64 << 20  # bytes Pillow then asks for at once: allocators give so much back to the system when it is freed
_one_large = threading.Lock()
_memory: Any = Image.core  # type: ignore[attr-defined]  # where Pillow's block allocator is set

TURNS = {  # EXIF orientation to what puts the picture upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class DecodedImage:
    """A decoded picture."""

    image: Image.Image  # RGB, as it is stored: perhaps lying on its side, and smaller where less was asked for
    turn: Image.Transpose | None  # what puts it upright
    size: tuple[int, int]  # width and height of the whole picture, upright


def open_image(source: Source, *, max_pixels: int | None = None) -> Image.Image:
    """The picture, upright and RGB; transparent places are white. Of an animation, the first frame.

    Args:
        source: a path, the bytes of a file, a Pillow image (turned upright as its EXIF says), or an array of
            height × width or height × width × 3: uint8, uint16, or float in 0…1.
        max_pixels: the most that a picture may declare; by default 200 million, or what SIGHTLINE_MAX_PIXELS says.

    Raises:
        ImageError: it is no picture, or damaged, or too large.
        MissingExtraError: it is HEIC, and the extra `heic` is not installed.
        DataError: no such file.
    """
    with decode_image(source, max_pixels=max_pixels) as decoded:
        upright = decoded.image.copy() if decoded.turn is None else decoded.image.transpose(decoded.turn)
    upright.info.clear()  # who opens the result again must not turn it again
    return upright


def read_pixels(source: Source, size: int, *, max_pixels: int | None = None) -> tuple[Pixels, tuple[int, int]]:
    """(size, size, 3) pixels of a picture, and its width and height before it was squashed, upright.

    `source` and `max_pixels` are those of `open_image`, and so are the errors. Large JPEGs are decoded at a half, a
    quarter or an eighth of their size, which changes pixels by less than a level on average.
    """
    with decode_image(source, least=SPARE * size, max_pixels=max_pixels) as decoded:
        squashed = decoded.image.resize((size, size), Image.Resampling.BICUBIC, reducing_gap=3.0)
    upright = squashed if decoded.turn is None else squashed.transpose(decoded.turn)
    return np.array(upright), decoded.size


@contextlib.contextmanager
def decode_image(source: Source, *, least: int | None = None, max_pixels: int | None = None) -> Iterator[DecodedImage]:
    """The picture of a source, to be used inside the `with`.

    Args:
        source: as for `open_image`.
        least: a JPEG may be decoded at a half, a quarter or an eighth, as long as both sides keep so many pixels.
        max_pixels: as for `open_image`.
    """
    with contextlib.ExitStack() as stack:
        kind: Kind | None = None
        if isinstance(source, Image.Image):
            image, (width, height), where = source, source.size, "the image given"
        elif isinstance(source, np.ndarray):
            image = image_of(source)
            (width, height), where = image.size, ARRAY
        else:
            file, where = stack.enter_context(_opened(source))
            image, (width, height), kind = _open_picture(file, where, least, max_pixels)
        _check_size(width, height, max_pixels, where)
        if image.width * image.height > LARGE:
            stack.enter_context(_alone())
        try:
            image.load()
            rgb, turn = as_rgb(image), _turn(image)
        except Exception as error:
            raise _refused(error, kind, where) from error
        lying = turn is not None and turn in (TURNS[5], TURNS[6], TURNS[7], TURNS[8])
        yield DecodedImage(rgb, turn, (height, width) if lying else (width, height))


@contextlib.contextmanager
def _opened(source: PathLike | bytes | bytearray | memoryview) -> Iterator[tuple[IO[bytes], str]]:
    """Open a source; the second value names it in errors."""
    if isinstance(source, bytes | bytearray | memoryview):
        yield io.BytesIO(source), "the bytes given"
    elif isinstance(source, str | os.PathLike):
        with _open_file(source) as file:
            yield file, os.fspath(source)
    else:
        raise ImageError(f"{type(source).__name__} is no picture", fix="give a path, bytes, a Pillow image or an array")


def _open_file(path: PathLike) -> IO[bytes]:
    if str(path).startswith(("http://", "https://")):
        raise ImageError("this is a web address; nothing is downloaded", where=path, fix="save the picture first")
    try:
        what = os.stat(path).st_mode  # noqa: PTH116 - a Path would cost more than the call
        if stat.S_ISDIR(what):
            raise ImageError("this is a folder, not a picture", where=path, fix="give the pictures that are in it")
        if not stat.S_ISREG(what):
            raise ImageError("this is no ordinary file", where=path, fix="save the picture to a file first")
        return open(path, "rb")  # noqa: PTH123
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            from sightline.vision.parquet_photos import open_elsewhere  # few need it, and it would cost every start

            if (found := open_elsewhere(path)) is not None:
                return found
            existing_path(path)  # the same error as everywhere
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        fix = "check its name and permissions"
        raise ImageError(f"the file cannot be read ({why})", where=path, fix=fix) from error


def _open_picture(
    file: IO[bytes], where: str, least: int | None, max_pixels: int | None
) -> tuple[Image.Image, tuple[int, int], Kind]:
    """A picture whose pixels are not decoded yet, the width and height that it declares, and its kind."""
    try:
        head = file.read(HEAD)
        stored = file.seek(0, os.SEEK_END)
        file.seek(0)
    except OSError as error:
        raise ImageError(f"the file cannot be read ({error.strerror})", where=where, fix="copy it again") from error
    kind = kind_of(head)
    if kind is None:
        raise not_a_picture(head, where)
    opener = kind.opener(where)
    try:
        image = opener(file, "")
        declared = image.size
        if least is not None:
            image.draft(None, (least, least))  # of all kinds, only JPEG can
    except Exception as error:  # decoders raise anything at all when bytes are hostile
        raise _refused(error, kind, where) from error
    _check_size(*declared, max_pixels, where)
    if LIMIT_VARIABLE not in os.environ and (max_pixels or 0) <= MAX_PIXELS:  # who raises the limit trusts the files
        width, height = declared
        if width * height > max(LARGE, THIN * stored):  # a small file that declares a very large picture
            what = f"the picture declares {width:,} × {height:,} pixels, and its file has {stored:,} bytes"
            fix = f"only use files you trust; if this is one, set {LIMIT_VARIABLE}={width * height}"
            raise ImageError(what, where=where, fix=fix)
    return image, declared, kind


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let only one thread at a time decode a very large picture, and give its memory back afterwards."""
    with _one_large:
        usual = _memory.get_block_size()
        _memory.set_block_size(BLOCK)
        try:
            yield
        finally:
            _memory.set_block_size(usual)


def _turn(image: Image.Image) -> Image.Transpose | None:
    try:
        return TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # a picture whose EXIF is damaged is still a picture
        return None


def _pixel_limit() -> int:
    given = os.environ.get(LIMIT_VARIABLE) or str(MAX_PIXELS)
    if not given.isdecimal():
        raise ConfigError(f"{LIMIT_VARIABLE} is {given!r}", fix="give a whole number of pixels, such as 400000000")
    return int(given)


def _check_size(width: int, height: int, max_pixels: int | None, where: str) -> None:
    limit = _pixel_limit() if max_pixels is None else max_pixels
    if width <= 0 or height <= 0:
        raise ImageError(f"the picture is {width} × {height} pixels", where=where, fix="give one with pixels")
    if width * height > limit:
        ours = max_pixels is None  # otherwise the variable would change nothing
        declared = f"{width:,} × {height:,} pixels, {width * height / 1e6:,.0f} million"
        what = f"the picture declares {declared}; at most {limit / 1e6:,.0f} million are read"
        fix = "make it smaller" + (f", or, if you trust it, set {LIMIT_VARIABLE}={width * height}" if ours else "")
        raise ImageError(what, where=where, fix=fix)


def _refused(error: Exception, kind: Kind | None, where: str) -> ImageError:
    if isinstance(error, Image.DecompressionBombError):
        fix = "make it smaller, or, if you trust it, raise PIL.Image.MAX_IMAGE_PIXELS"
        return ImageError(f"Pillow takes the picture for a decompression bomb ({reason(error)})", where=where, fix=fix)
    if kind is None:
        fix = "check where it came from"
        return ImageError(f"the picture cannot be decoded ({reason(error)})", where=where, fix=fix)
    return kind.unreadable(where, error)
