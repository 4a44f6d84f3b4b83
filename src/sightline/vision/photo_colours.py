"""Whether a photo has colours at all, by its pixels: what a captioner says of that, it guesses from what is on it."""

import numpy as np

from sightline.photo import Pixels

CELLS = 64  # of a side, each the mean of some pixels: what JPEG makes of colours is not theirs
ALIKE = 128  # of them are compared, as bright as each other

# Root mean squares of `colour_spread`. Of COCO's 4,392 val photos two people or more call 26 black and white: two of
# them are above `COLOURED`, and so are 4,109 of the 4,301 that nobody calls so. Of 164 below `GREY` one has a hue that
# somebody names. Sepia is near `GREY`, on either side.
GREY, COLOURED = 3.0, 5.5


def colour_spread(pixels: Pixels) -> float:
    """How far the colours of pixels (H, W, 3) differ between pixels that are as bright, in levels of 255.

    It is 0 for a grey photo, and small for one in a single tint, such as sepia, where brightness tells the colour.
    """
    height, width = (max(1, side // CELLS) for side in pixels.shape[:2])  # of a cell
    rows, columns = pixels.shape[0] // height, pixels.shape[1] // width
    cells = pixels[: rows * height, : columns * width].reshape(rows, height, columns, width, 3)
    colours = cells.mean((1, 3), dtype=np.float32).reshape(-1, 3)
    colours = colours[np.argsort(colours.sum(1), kind="stable")]
    differences = colours[:, [0, 2]] - colours[:, [1]]  # red and blue against green
    groups = np.array_split(differences, max(1, len(differences) // ALIKE))
    squares = sum(float(((group - np.median(group, axis=0)) ** 2).sum()) for group in groups)
    return float(np.sqrt(squares / len(differences)))
