"""A photo in one tint has no colours, however strong the tint is."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from bundle_samples import EXAMPLES
from sightline.vision.images import read_pixels
from sightline.vision.photo_colours import COLOURED, colour_spread


def as_jpeg(photo, quality):
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=quality)
    return read_pixels(file.getvalue(), 320)[0]


@pytest.mark.parametrize("quality", [60, 90])
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.jpg")), ids=lambda path: path.stem)
def test_photos_have_colours_until_they_are_grey_or_in_sepia(path, quality):
    with Image.open(path) as photo:
        upright = photo.convert("RGB")
    assert (colour_spread(as_jpeg(upright, quality)) > COLOURED) == (path.stem != "photographer")  # black and white
    assert colour_spread(as_jpeg(upright.convert("L"), quality)) == 0
    sepia = ImageOps.colorize(upright.convert("L"), "#201000", "#fff0d0", mid="#a07848")
    assert colour_spread(as_jpeg(sepia, quality)) < COLOURED


def test_the_spread_is_how_far_colours_differ_where_brightness_does_not():
    # red and green as bright as each other: against their median, which is either, half differ in both differences
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[::2, :, 0] = pixels[1::2, :, 1] = 90
    values = np.array([[90, 0]] * 32 * 64 + [[-90, -90]] * 32 * 64, float)  # red less green, blue less green
    expected = np.sqrt(((values - np.median(values, axis=0)) ** 2).sum(-1).mean())
    assert colour_spread(pixels) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("size", [(1, 1), (3, 7), (64, 65), (320, 320)])
def test_pictures_of_any_size_have_a_spread(size):
    assert colour_spread(np.full((*size, 3), (200, 30, 30), np.uint8)) == 0


def test_a_photo_keeps_its_spread_in_another_size():
    with Image.open(EXAMPLES / "cat.jpg") as photo:
        spreads = [colour_spread(np.asarray(photo.convert("RGB").resize((side, side)))) for side in (128, 320)]
    assert spreads[0] == pytest.approx(spreads[1], rel=0.1)
