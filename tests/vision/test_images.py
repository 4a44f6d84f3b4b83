"""Every kind and mode of picture becomes upright RGB; whatever is no picture becomes one clear error."""

import importlib.util
import io
import os
import struct
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features
from PIL.PngImagePlugin import PngInfo

from sightline.errors import ConfigError, DataError, ImageError, MissingExtraError
from sightline.vision import images
from sightline.vision.images import MAX_PIXELS, decode_image, open_image, read_pixels
from sightline.vision.picture_formats import HEAD, kind_of

HEADERS = {
    "jpeg": b"\xff\xd8\xff\xe0",
    "png": b"\x89PNG\r\n\x1a\n",
    "webp": b"RIFF\x40\0\0\0WEBPVP8 ",
    "gif": b"GIF89a",
    "bmp": b"BM",
    "tiff": b"II*\0",
    "big-endian tiff": b"MM\0*",
    "avif": b"\0\0\0\x20ftypavif\0\0\0\0avifmif1",
}
HAS_HEIF = importlib.util.find_spec("pillow_heif") is not None


def smooth(height: int = 48, width: int = 64) -> np.ndarray:
    """A picture no two of whose corners are alike, and that lossy kinds keep well."""
    y, x = np.mgrid[:height, :width]
    return np.stack([255 * x / width, 255 * y / height, 255 - 255 * (x + y) / (height + width)], -1).astype(np.uint8)


def encoded(image: Image.Image | np.ndarray, format: str, **options: object) -> bytes:
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, format, **options)
    return file.getvalue()


def differences(one: Image.Image, other: np.ndarray) -> np.ndarray:
    return np.abs(np.asarray(one).astype(int) - other.astype(int))


def png_that_declares(width: int, height: int) -> bytes:
    """A few bytes that call themselves a picture of any size."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


# Kinds


@pytest.mark.parametrize(
    ("format", "options", "tolerance"),
    [
        ("JPEG", {"quality": 95}, 12),
        ("JPEG", {"quality": 95, "progressive": True}, 12),
        ("MPO", {"quality": 95}, 12),
        ("PNG", {}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("WEBP", {"quality": 95}, 16),
        ("AVIF", {"quality": 95}, 16),
        ("BMP", {}, 0),
        ("TIFF", {}, 0),
        ("TIFF", {"compression": "tiff_lzw"}, 0),
        ("TIFF", {"compression": "tiff_deflate"}, 0),
    ],
)
def test_every_kind_is_read_from_a_file_and_from_bytes(tmp_path, format, options, tolerance):
    if format == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    raw = encoded(smooth(), format, **options)
    path = tmp_path / "photo.any"
    path.write_bytes(raw)
    for source in (path, str(path), raw, bytearray(raw), memoryview(raw)):
        found = open_image(source)
        assert (found.mode, found.size) == ("RGB", (64, 48))
        assert differences(found, smooth()).max() <= tolerance


def test_the_kind_is_told_by_content_not_by_name(tmp_path):
    (tmp_path / "really-png.jpg").write_bytes(encoded(smooth(), "PNG"))
    assert differences(open_image(tmp_path / "really-png.jpg"), smooth()).max() == 0


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_an_animation_the_first_frame_is_read(format):
    red, blue = Image.new("RGB", (8, 8), "red"), Image.new("RGB", (8, 8), "blue")
    options = {"lossless": True} if format == "WEBP" else {}
    raw = encoded(red, format, save_all=True, append_images=[blue], **options)
    assert open_image(raw).getpixel((4, 4)) == (255, 0, 0)


def test_a_kind_that_pillow_was_built_without_is_said_to_be_so(monkeypatch):
    monkeypatch.setattr("PIL.AvifImagePlugin.SUPPORTED", False)
    monkeypatch.setattr(features, "check", lambda name: name != "avif")
    with pytest.raises(ImageError, match=r"Pillow that is installed \([\d.]+\) cannot read AVIF.*upgrade pillow"):
        open_image(HEADERS["avif"] + bytes(100))


@pytest.mark.skipif(HAS_HEIF, reason="pillow-heif is installed")
def test_heic_without_its_extra_names_the_pip_line(tmp_path):
    path = tmp_path / "IMG_0001.HEIC"
    for brand in (b"heic", b"heix", b"mif1"):
        path.write_bytes(b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0mif1heic" + bytes(64))
        with pytest.raises(MissingExtraError, match=r"IMG_0001\.HEIC: .*pip install 'sightline\[heic\]'"):
            open_image(path)


@pytest.mark.skipif(not HAS_HEIF, reason="pillow-heif is not installed")
def test_heic_is_read_upright():
    import pillow_heif

    file = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(smooth())).save(file, quality=95)
    assert differences(open_image(file.getvalue()), smooth()).max() <= 16


def test_a_container_of_either_kind_is_told_by_its_brands():
    assert kind_of(b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf").name == "AVIF"
    assert kind_of(b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic").name == "HEIC"
    assert kind_of(b"\0\0\0\x18ftypisom\0\0\0\0isommp42") is None


# Upright

UPRIGHT = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: np.swapaxes(a, 0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.swapaxes(np.rot90(a, 2), 0, 1),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_the_camera_s_orientation_is_undone(format, orientation):
    if format == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if format == "WEBP" else {"quality": 95} if format in ("JPEG", "AVIF") else {}
    raw = encoded(smooth(), format, exif=exif, **options)
    expected = UPRIGHT[orientation](smooth())
    found = open_image(raw)
    assert found.size == expected.shape[1::-1]
    assert differences(found, expected).max() <= 16
    pixels, size = read_pixels(raw, 32)
    assert size == found.size
    squashed = np.asarray(Image.fromarray(np.ascontiguousarray(expected)).resize((32, 32), Image.Resampling.BICUBIC))
    assert np.abs(pixels.astype(int) - squashed).max() <= 18


def test_a_pillow_image_is_turned_as_its_exif_says_and_left_as_it_was():
    exif = Image.Exif()
    exif[0x0112] = 6
    given = Image.open(io.BytesIO(encoded(smooth(), "PNG", exif=exif)))
    assert differences(open_image(given), np.rot90(smooth(), -1)).max() == 0
    assert given.size == (64, 48)


def test_the_result_is_not_turned_twice():
    exif = Image.Exif()
    exif[0x0112] = 6
    once = open_image(encoded(smooth(), "PNG", exif=exif))
    assert differences(open_image(once), np.asarray(once)).max() == 0


def test_the_result_shares_nothing_with_the_image_given():
    given = Image.fromarray(smooth())
    found = open_image(given)
    found.putpixel((0, 0), (1, 2, 3))
    assert given.getpixel((0, 0)) == tuple(smooth()[0, 0])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_exif_leaves_the_picture_as_it_is_stored():
    raw = encoded(smooth(), "JPEG", quality=95, exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + bytes(range(40)))
    assert differences(open_image(raw), smooth()).max() <= 12


def test_exif_that_cannot_be_read_at_all_is_no_reason_to_refuse():
    text = PngInfo()
    text.add_text("Raw profile type exif", "\nexif\n 4\nno hexadecimal digits")
    assert differences(open_image(encoded(smooth(), "PNG", pnginfo=text)), smooth()).max() == 0


# Modes


def test_adobe_cmyk_has_its_colours():
    inks = Image.merge("CMYK", [Image.new("L", (16, 16), value) for value in (255, 0, 0, 0)])
    raw = encoded(inks, "JPEG", quality=95)  # Pillow writes inverted inks with an Adobe marker, as Photoshop does
    assert b"Adobe" in raw[:200]
    assert np.abs(np.asarray(open_image(raw)).astype(int) - (0, 255, 255)).max() <= 6  # cyan
    assert open_image(encoded(inks, "TIFF")).getpixel((3, 3)) == (0, 255, 255)


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_not_clipped(format):
    deep = np.linspace(0, 65535, 32 * 32, dtype=np.uint16).reshape(32, 32)
    found = np.asarray(open_image(encoded(deep, format)))
    assert found.shape == (32, 32, 3)
    assert np.abs(found[..., 0] - deep / 257).max() <= 1
    assert (found.min(), found.max()) == (0, 255)


def test_sixteen_bits_big_endian_are_scaled_too():
    little = encoded(np.full((4, 4), 0x80FF, np.uint16), "TIFF")
    big = Image.frombytes("I;16B", (4, 4), np.full((4, 4), 0x80FF, ">u2").tobytes())
    assert open_image(little).getpixel((0, 0)) == open_image(big).getpixel((0, 0)) == (0x80,) * 3


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_values_without_a_range_go_from_black_to_white(dtype):
    deep = np.array([[-1000, 0], [500, 1000]], dtype)
    found = np.asarray(open_image(encoded(deep, "TIFF")))[..., 0]
    assert found.tolist() == [[0, 128], [191, 255]]
    assert np.asarray(open_image(encoded(np.full((2, 2), 7, dtype), "TIFF"))).max() == 0


def test_floats_that_are_no_numbers_are_black():
    deep = np.array([[np.nan, 0.0], [np.inf, 4.0]], np.float32)
    assert np.asarray(open_image(Image.fromarray(deep)))[..., 0].tolist() == [[0, 0], [0, 255]]
    assert np.asarray(open_image(Image.fromarray(np.full((2, 2), np.nan, np.float32)))).max() == 0


def test_transparent_places_are_white():
    layer = np.zeros((1, 3, 4), np.uint8)
    layer[0, :, 0] = 200  # red
    layer[0, :, 3] = 0, 128, 255
    for raw in (encoded(layer, "PNG"), encoded(layer, "WEBP", lossless=True, exact=True), encoded(layer, "TIFF")):
        found = np.asarray(open_image(raw))[0].astype(int)
        expected = [(colour * a + 255 * (255 - a)) / 255 for a in (0, 128, 255) for colour in (200, 0, 0)]
        assert np.abs(found.ravel() - expected).max() <= 1


def test_a_palette_with_a_transparent_colour_shows_white_there():
    paletted = Image.new("P", (2, 1))
    paletted.putpalette([10, 20, 30, 40, 50, 60])
    paletted.putdata([0, 1])
    for format in ("PNG", "GIF"):
        found = open_image(encoded(paletted, format, transparency=0))
        assert [found.getpixel((x, 0)) for x in (0, 1)] == [(255, 255, 255), (40, 50, 60)]
    half = open_image(encoded(paletted, "PNG", transparency=bytes([255, 0])))
    assert [half.getpixel((x, 0)) for x in (0, 1)] == [(10, 20, 30), (255, 255, 255)]
    assert open_image(encoded(paletted, "PNG")).getpixel((0, 0)) == (10, 20, 30)


@pytest.mark.parametrize(("mode", "colour"), [("L", 40), ("RGB", (1, 2, 3))])
def test_a_transparent_colour_outside_a_palette_shows_white_too(mode, colour):
    assert (
        open_image(encoded(Image.new(mode, (2, 2), colour), "PNG", transparency=colour)).getpixel((0, 0)) == (255,) * 3
    )


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV", "I;16", "I", "F"]
)
def test_every_mode_becomes_rgb(mode):
    gray = Image.fromarray(smooth()[..., 0])
    if mode in ("La", "RGBa"):
        given = gray.convert(mode.upper()).convert(mode)
    elif mode == "I;16":
        given = Image.fromarray(smooth()[..., 0].astype(np.uint16) * 257)
    elif mode == "PA":
        given = gray.convert("P").convert("PA")
    else:
        given = gray.convert(mode)
    assert given.mode == mode
    found = np.asarray(open_image(given)).astype(int)
    assert found.shape == (48, 64, 3)
    if mode != "1":
        expected = smooth()[..., :1].astype(int)
        if mode in ("I", "F"):  # stretched: the highest value here is 251
            expected = expected * 255 / expected.max()
        assert np.abs(found - expected).max() <= 2


def test_one_bit_is_black_and_white():
    bits = np.array([[True, False], [False, True]])
    for raw in (encoded(bits, "PNG"), encoded(bits, "TIFF"), encoded(bits, "BMP")):
        assert np.asarray(open_image(raw))[..., 2].tolist() == [[255, 0], [0, 255]]


def test_lab_is_turned_to_rgb_too():
    middle = Image.merge("LAB", [Image.new("L", (4, 4), value) for value in (128, 128, 128)])
    red, green, blue = open_image(encoded(middle, "TIFF")).getpixel((1, 1))
    assert max(red, green, blue) - min(red, green, blue) <= 4  # no colour, half as light as white
    assert 100 < green < 140


def test_a_damaged_file_behind_a_pillow_image_is_an_image_error():
    raw = encoded(smooth(), "PNG")
    given = Image.open(io.BytesIO(raw[: len(raw) // 2]))
    with pytest.raises(ImageError, match="the image given: the picture cannot be decoded"):
        open_image(given)


# Arrays


def test_arrays_of_every_kind_are_pictures():
    eight = smooth()
    assert differences(open_image(eight), eight).max() == 0
    assert differences(open_image(eight[:, ::-1]), eight[:, ::-1]).max() == 0  # not contiguous
    assert differences(open_image(eight.astype(np.uint16) * 257), eight).max() == 0
    for dtype in (np.float16, np.float32, np.float64):
        assert differences(open_image((eight / 255).astype(dtype)), eight).max() <= (dtype == np.float16)
    for gray in (eight[..., 0], eight[..., :1]):
        assert differences(open_image(gray), np.repeat(eight[..., :1], 3, -1)).max() == 0
    assert np.asarray(open_image(np.array([[True, False]])))[..., 0].tolist() == [[255, 0]]
    clear = np.dstack([eight, np.zeros((48, 64), np.uint8)])
    assert np.asarray(open_image(clear)).min() == 255


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.zeros((3, 8, 8), np.uint8), r"\(3, 8, 8\).*transpose\(1, 2, 0\)"),
        (np.zeros((8, 8, 2), np.uint8), "height × width × 3"),
        (np.zeros(8, np.uint8), "no picture"),
        (np.zeros((2, 8, 8, 3), np.uint8), "no picture"),
        (np.zeros((0, 8, 3), np.uint8), "no picture"),
        (np.zeros((8, 8, 3), np.int64), r"int64.*astype"),
        (np.zeros((8, 8, 3), object), "object"),
        (np.full((8, 8, 3), 255.0), "0…1, and these are in 255…255.*divide"),
        (np.full((8, 8, 3), -0.5), "0…1"),
        (np.full((8, 8, 3), np.nan), "0…1"),
    ],
)
def test_arrays_that_are_no_pictures_are_told_what_to_change(array, told):
    with pytest.raises(ImageError, match=told):
        open_image(array)


def test_other_things_are_no_pictures():
    for thing in (None, 7, [[1, 2], [3, 4]]):
        with pytest.raises(ImageError, match="give a path, bytes"):
            open_image(thing)


# What is refused


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "empty.*download it again"),
        (b"just some words, renamed\n", "this is text"),
        ("schön, auch das ist Text: " * 40, "this is text"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
        (b"\xef\xbb\xbf\n  <HTML lang=en>", "web page"),
        (b'<?xml version="1.0"?>\n<svg xmlns="x">', "SVG"),
        (b"%PDF-1.7\n...", "PDF"),
        (b"PK\x03\x04rest", "zip"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"8BPS\0\x01", "Photoshop"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"\xff\x0a\0\0", "JPEG XL"),
        (b"\0\0\0\x18ftypisom\0\0\0\0isommp42", "video"),
        (bytes(600), "begins like no picture"),
        (b"BMW builds cars", "BMP picture is damaged"),
        (b"GIF89a", "GIF picture is damaged"),
        (b"\xff\xd8\xff", "JPEG picture is damaged"),
    ],
)
def test_what_is_no_picture_is_told_apart(tmp_path, content, told):
    path = tmp_path / "x.jpg"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    for read in (open_image, lambda source: read_pixels(source, 16)):
        with pytest.raises(ImageError, match=rf"(?s)x\.jpg: .*{told}.*|(?s:x\.jpg: .*To fix: .*{told})") as caught:
            read(path)
        assert caught.value.fix


def test_a_folder_called_like_a_picture_is_refused(tmp_path):
    (tmp_path / "x.jpg").mkdir()
    with pytest.raises(ImageError, match=r"x\.jpg: this is a folder"):
        open_image(tmp_path / "x.jpg")


def test_a_missing_file_is_a_data_error_that_names_what_exists(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "none.jpg", tmp_path / "file" / "x.jpg"):
        with pytest.raises(DataError, match=r"no such file.*exists"):
            open_image(path)


def test_a_web_address_is_not_downloaded():
    with pytest.raises(ImageError, match="nothing is downloaded"):
        open_image("https://example.org/cat.jpg")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_without_waiting_for_it(tmp_path):
    os.mkfifo(tmp_path / "x.jpg")
    with pytest.raises(ImageError, match="no ordinary file"):
        open_image(tmp_path / "x.jpg")


def test_a_name_that_no_file_can_have_is_an_image_error():
    with pytest.raises(ImageError, match="null"):
        open_image("a\0b.jpg")
    with pytest.raises(ImageError, match="too long"):
        open_image("a" * 5000)


@pytest.mark.skipif(sys.platform != "linux", reason="a file that opens and cannot be read")
def test_a_disk_that_fails_is_told():
    with pytest.raises(ImageError, match="Input/output error"):
        open_image("/proc/self/mem")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_told(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(encoded(smooth(), "PNG"))
    path.chmod(0)
    with pytest.raises(ImageError, match=r"Permission.*permissions"):
        open_image(path)


def test_a_picture_without_pixels_is_refused():
    with pytest.raises(ImageError, match="0 × 4"):
        open_image(Image.new("RGB", (0, 4)))


# Bombs


def test_a_bomb_is_refused_by_what_it_declares():
    bomb = png_that_declares(60_000, 60_000)
    assert len(bomb) < 100
    with pytest.raises(ImageError, match=r"60,000 × 60,000 pixels, 3,600 million; at most 200 million.*3600000000"):
        open_image(bomb)


def test_the_limit_can_be_given(monkeypatch):
    raw = encoded(smooth(), "PNG")
    assert open_image(raw, max_pixels=64 * 48).size == (64, 48)
    for read in (lambda: open_image(raw, max_pixels=64 * 48 - 1), lambda: read_pixels(raw, 8, max_pixels=100)):
        with pytest.raises(ImageError, match="declares 64 × 48"):
            read()
    monkeypatch.setenv("SIGHTLINE_MAX_PIXELS", "3000")
    with pytest.raises(ImageError, match="SIGHTLINE_MAX_PIXELS=3072"):
        open_image(raw)
    monkeypatch.setenv("SIGHTLINE_MAX_PIXELS", "3072")
    assert open_image(raw).size == (64, 48)
    monkeypatch.setenv("SIGHTLINE_MAX_PIXELS", "many")
    with pytest.raises(ConfigError, match="many"):
        open_image(raw)


def test_a_higher_limit_reaches_beyond_pillow_s_own():
    just_over = png_that_declares(15_000, 15_000)  # Pillow refuses from 179 million on
    with pytest.raises(ImageError, match="at most 200 million"):
        open_image(just_over)
    with pytest.raises(ImageError, match="damaged or cut short"):  # it is let in, and holds no pixels
        open_image(just_over, max_pixels=225_000_000)
    assert MAX_PIXELS == 200_000_000


def test_where_pillow_refuses_by_itself_its_limit_is_named(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ImageError, match=r"bomb.*PIL\.Image\.MAX_IMAGE_PIXELS"):
        open_image(encoded(smooth(), "WEBP"))


def test_of_very_large_pictures_one_is_decoded_at_a_time(monkeypatch):
    monkeypatch.setattr(images, "LARGE", 1000)
    raw, inside, most, counting = encoded(smooth(), "PNG"), [], [], threading.Lock()
    usual = Image.core.get_block_size()

    def read(_: int) -> None:
        with decode_image(raw) as found:
            with counting:
                inside.append(found)
                most.append(len(inside))
            found.image.resize((300, 300))
            with counting:
                inside.remove(found)

    with ThreadPoolExecutor(4) as readers:
        list(readers.map(read, range(12)))
    assert (max(most), len(most)) == (1, 12)
    assert Image.core.get_block_size() == usual
    with pytest.raises(ImageError):  # an error lets the next one in
        open_image(raw[: len(raw) // 2])
    assert open_image(raw).size == (64, 48)


# Reduced decoding


def test_a_large_jpeg_is_decoded_at_a_fraction_that_leaves_enough():
    raw = encoded(smooth(1200, 1600), "JPEG", quality=95)
    for least, expected in ((None, (1600, 1200)), (700, (1600, 1200)), (600, (800, 600)), (128, (200, 150))):
        with decode_image(raw, least=least) as found:
            assert found.image.size == expected
            assert found.size == (1600, 1200)


def test_reduced_decoding_hardly_changes_pixels():
    random = np.random.default_rng(0)
    coarse = Image.fromarray(random.integers(0, 256, (24, 32, 3), dtype=np.uint8))
    photo = coarse.resize((1600, 1200), Image.Resampling.BICUBIC)
    raw = encoded(photo, "JPEG", quality=92)
    pixels, size = read_pixels(raw, 288)
    whole = Image.open(io.BytesIO(raw)).convert("RGB").resize((288, 288), Image.Resampling.BICUBIC)
    assert size == (1600, 1200)
    assert np.abs(pixels.astype(int) - np.asarray(whole)).mean() < 1


def test_pixels_are_squashed_by_bicubic_resampling_and_can_be_written_to():
    pixels, size = read_pixels(smooth(), 24)
    assert size == (64, 48)
    naive = np.asarray(Image.fromarray(smooth()).resize((24, 24), Image.Resampling.BICUBIC))
    assert np.array_equal(pixels, naive)
    assert pixels.flags.writeable
    assert (pixels.dtype, pixels.shape) == (np.uint8, (24, 24, 3))


def test_slivers_and_single_pixels_are_read():
    for width, height in ((1, 1), (1, 4000), (4000, 1)):
        raw = encoded(Image.new("RGB", (width, height), (9, 99, 199)), "PNG")
        pixels, size = read_pixels(raw, 16)
        assert size == (width, height)
        assert (pixels == (9, 99, 199)).all()


def test_threads_read_the_same_as_one(tmp_path):
    paths = []
    for number, format in enumerate(["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP"] * 4):
        paths.append(tmp_path / f"{number}.any")
        paths[-1].write_bytes(encoded(np.roll(smooth(), number, 1), format))
    alone = [read_pixels(path, 32)[0] for path in paths]
    with ThreadPoolExecutor(8) as readers:
        together = list(readers.map(lambda path: read_pixels(path, 32)[0], paths))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


# Hostile bytes


def survives(raw: bytes) -> bool:
    """Pixels, or an ImageError that says what to do; anything else fails the test."""
    error = None
    try:
        pixels, _ = read_pixels(raw, 8, max_pixels=10_000_000)
    except ImageError as caught:
        error = caught
    if error is None:
        assert pixels.shape == (8, 8, 3)
    else:
        assert error.where == "the bytes given"
        assert error.fix
    return error is None


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_a_file_cut_anywhere_gives_pixels_or_an_image_error(format):
    if format == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    raw = encoded(smooth(), format)
    step = max(1, len(raw) // 300)
    outcomes = [survives(raw[:length]) for length in range(0, len(raw), step)]
    assert survives(raw)
    assert not any(outcomes[: len(outcomes) // 4])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@settings(max_examples=60, deadline=None)
@given(rest=st.binary(max_size=300))
def test_random_bytes_behind_a_real_header_never_crash(header, rest):
    survives(header + rest)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=200, deadline=None)
@given(
    format=st.sampled_from(["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"]),
    changes=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_a_file_with_changed_bytes_never_crashes(format, changes):
    raw = bytearray(encoded(smooth(), format, exif=Image.Exif()))
    for place, value in changes:
        raw[int(place * len(raw))] = value
    survives(bytes(raw))


@settings(max_examples=100, deadline=None)
@given(head=st.binary(max_size=HEAD))
def test_any_bytes_are_some_kind_or_none(head):
    kind = kind_of(head)
    assert kind is None or kind.name


def test_an_error_names_the_file_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cut.png").write_bytes(encoded(smooth(), "PNG")[:100])
    with pytest.raises(ImageError, match=r"^cut\.png: this PNG picture is damaged or cut short") as caught:
        open_image("cut.png")
    assert caught.value.where == "cut.png"
