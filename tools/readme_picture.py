"""Draw README's picture: example photos with their captions, and a box for each noun, as the model says them.

python tools/readme_picture.py [--model FILE]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image

import sightline
from sightline.draw.canvas import GAP, PAPER
from sightline.draw.photo_boxes import words_on_boxes
from sightline.files import atomic_write

ROOT = Path(__file__).parents[1]
PHOTOS = ("cat", "coffee", "photographer")
WIDTH = 330  # pixels of each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="instead of the one that comes with Sightline")
    pipeline = sightline.load(parser.parse_args().model, device="cpu")
    paths = [ROOT / "examples" / f"{name}.jpg" for name in PHOTOS]
    pictures = [words_on_boxes(path, pipeline.caption(path), WIDTH) for path in paths]
    row = Image.new("RGB", (sum(p.width + GAP for p in pictures) - GAP, max(p.height for p in pictures)), PAPER)
    for n, picture in enumerate(pictures):
        row.paste(picture, (sum(p.width + GAP for p in pictures[:n]), 0))
    few = row.quantize(256, Image.Quantize.MEDIANCUT)  # a third of the bytes, for people who read on phones
    with atomic_write(ROOT / "docs" / "images" / "readme.png") as file:
        few.save(file, "PNG", optimize=True)


if __name__ == "__main__":
    main()
