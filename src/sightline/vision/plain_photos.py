"""Photos that show nothing: of one colour, or of a few pixels. A captioner would see a sky in them."""

import colorsys

from PIL import Image, ImageStat

from sightline.photo import Photo, Pixels

# Levels, of 255, by which pixels of one colour may differ: noise, and what JPEG makes of it. The least of 600 photos of
# Flickr8k is 9.8.
NOISE = 2.0
SMALLEST = 8  # pixels of a side
# The degrees at which each hue ends; above the last it is red again.
HUES = ((15, "red"), (45, "orange"), (70, "yellow"), (165, "green"), (260, "blue"), (320, "purple"), (345, "pink"))


def plain_photo(photo: Photo) -> tuple[str, str] | None:
    """What can be said of a photo that shows nothing, and the warning that it does; None for every other.

    >>> import numpy as np
    >>> plain_photo(Photo("", "", np.full((32, 32, 3), (20, 60, 220), np.uint8), (640, 480)))
    ('a plain blue picture', 'the picture is of one colour, and shows nothing to describe')
    """
    if is_plain(photo.pixels):
        colour = colour_name(photo.pixels)
        return f"a plain {colour} picture", "the picture is of one colour, and shows nothing to describe"
    if min(photo.size) < SMALLEST:
        width, height = photo.size
        return "a very small picture", f"the picture is {width} × {height} pixels, too few to describe"
    return None


def is_plain(pixels: Pixels) -> bool:
    """Whether the colour channel of the pixels (H, W, 3) that varies most deviates by no more than `NOISE`."""
    return max(ImageStat.Stat(Image.fromarray(pixels)).stddev) <= NOISE


def colour_name(pixels: Pixels) -> str:
    """What people call the mean colour of pixels."""
    red, green, blue = pixels.reshape(-1, 3).mean(0) / 255
    hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
    if value < 0.15:
        return "black"
    if saturation < 0.12:
        return "white" if value > 0.9 else "grey"
    degrees = 360 * hue
    if 15 <= degrees < 45 and value < 0.65:
        return "brown"
    return next((name for end, name in HUES if degrees < end), "red")
