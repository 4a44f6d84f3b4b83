"""Whether a photo has colours at all, by its pixels: what a captioner says of that, it guesses from what is on it."""

import numpy as np

from sightline.photo import Pixels

SAMPLES = 64  # pixels of a side that are looked at
ALIKE = 128  # of them are compared, as bright as each other

# Root mean squares of `colour_spread`. Of COCO's 4,392 val photos two people or more call 26 black and white: two of
# them are above `COLOURED`, and so are 4,131 of the 4,301 that nobody calls so. Of 141 below `GREY` nobody names a hue.
GREY, COLOURED = 2.0, 5.5


def colour_spread(pixels: Pixels) -> float:
    """How far the colours of pixels (H, W, 3) differ between pixels that are as bright, in levels of 255.

    It is 0 for a grey photo and for one in a single tint, such as sepia, where brightness tells the colour.
    """
    steps = [max(1, side // SAMPLES) for side in pixels.shape[:2]]
    colours = pixels[:: steps[0], :: steps[1]].reshape(-1, 3).astype(np.float32)
    colours = colours[np.argsort(colours.sum(1), kind="stable")]
    differences = colours[:, [0, 2]] - colours[:, [1]]  # red and blue against green
    groups = np.array_split(differences, max(1, len(differences) // ALIKE))
    squares = sum(float(((group - np.median(group, axis=0)) ** 2).sum()) for group in groups)
    return float(np.sqrt(squares / len(differences)))
