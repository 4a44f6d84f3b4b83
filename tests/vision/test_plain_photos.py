"""A photo that shows nothing gets a warning, not a sky."""

import json

import numpy as np
import pytest
from PIL import Image

from bundle_samples import EXAMPLES
from sightline.photo import Photo
from sightline.vision.images import read_pixels
from sightline.vision.plain_photos import NOISE, colour_name, is_plain, plain_photo


def photo_of(pixels, size=(640, 480)) -> Photo:
    return Photo("", "", np.asarray(pixels, np.uint8), size)


@pytest.mark.parametrize(
    ("rgb", "name"),
    [
        ((0, 0, 0), "black"),
        ((255, 255, 255), "white"),
        ((128, 128, 128), "grey"),
        ((220, 20, 20), "red"),
        ((255, 140, 0), "orange"),
        ((120, 70, 20), "brown"),
        ((250, 230, 30), "yellow"),
        ((30, 160, 40), "green"),
        ((90, 140, 220), "blue"),
        ((130, 30, 160), "purple"),
        ((255, 105, 180), "pink"),
    ],
)
def test_a_colour_is_called_what_people_call_it(rgb, name):
    assert colour_name(np.full((4, 4, 3), rgb, np.uint8)) == name


def test_noise_is_nothing_to_see_and_photos_are():
    noise = np.random.default_rng(0).normal(100, 1.5, (64, 64, 3))
    assert plain_photo(photo_of(noise)) is not None
    assert plain_photo(photo_of(np.linspace(80, 120, 64)[:, None, None].repeat(64, 1).repeat(3, 2))) is None  # a sky
    for path in EXAMPLES.glob("*.jpg"):
        assert plain_photo(Photo("", path, *read_pixels(path, 64))) is None


@pytest.mark.parametrize("height", [1, 2, 16, 17, 64, 320])
@pytest.mark.parametrize("rows", ["all", "one in sixteen", "the first"])
def test_what_differs_in_some_rows_alone_counts_as_in_all(height, rows):
    random = np.random.default_rng(height)
    for deviation in (0.5, 1.9, 2.0, 2.1, 4, 7.9, 8.1, 30):
        pixels = np.full((height, 20, 3), 128.0)
        chosen = {"all": slice(None), "one in sixteen": slice(None, None, 16), "the first": slice(1)}[rows]
        pixels[chosen] += random.choice([-deviation, deviation], pixels[chosen].shape)
        whole = pixels.round().astype(np.uint8)
        assert is_plain(whole) == (whole.reshape(-1, 3).std(0).max() <= NOISE)


@pytest.mark.parametrize("distinct", [[], ["--distinct"]], ids=["", "distinct"])
@pytest.mark.parametrize("to_files", [False, True])
def test_the_command_warns_of_photos_of_one_colour_and_of_a_few_pixels(command, tmp_path, to_files, distinct):
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.new("RGB", (640, 480), (90, 140, 220)).save(folder / "a.jpg")
    Image.new("RGB", (640, 480), (92, 141, 220)).save(folder / "b.jpg")
    Image.new("RGB", (1, 1), (200, 10, 10)).save(folder / "c.png")
    few = Image.new("RGB", (3, 2))
    few.putdata([(0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (9, 99, 9)])
    few.save(folder / "d.png")
    out = ["--out", tmp_path / "out"] if to_files else []
    code, told, err = command("caption")(folder, *out, *distinct, "--json")
    assert code == 0
    assert [(one["caption"], one["low_confidence"], one["confidence"]) for one in json.loads(told)] == [
        ("a plain blue picture", True, 0),
        ("a plain blue picture", True, 0),
        ("a plain red picture", True, 0),
        ("a very small picture", True, 0),
    ]
    assert err.count("Warning: ") == 4
    assert f"Warning: {folder / 'c.png'}: the picture is of one colour, and shows nothing to describe." in err
    assert f"Warning: {folder / 'd.png'}: the picture is 3 × 2 pixels, too few to describe." in err
