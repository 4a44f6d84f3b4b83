"""Reading bottom-up TSV features: the loop that everyone copies against `sightline.data.bottom_up_tsv`.

Both sides end with float32 arrays of boxes and features for every image; ours also normalises and checks them. Rounds
alternate, and the best of each side is compared: what else the machine does only adds time.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from sightline.data.bottom_up_tsv import FIELDS, BottomUpTsv, write_scenes
from sightline.scene import Scene


def generated(images: int, regions: int, width: int) -> Iterator[Scene]:
    """Scenes with features like a detector's: rectified, half of them zero."""
    rng = np.random.default_rng(0)
    for number in range(images):
        corners = rng.random((regions, 2, 2), dtype=np.float32)
        boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
        features = np.maximum(rng.standard_normal((regions, width), dtype=np.float32), 0)
        yield Scene(str(number), boxes=boxes, regions=features, size=(640, 480))


def usual_loop(path: Path) -> int:
    """csv.DictReader, base64, frombuffer, reshape."""
    csv.field_size_limit(sys.maxsize)
    count = 0
    with path.open() as file:
        for row in csv.DictReader(file, delimiter="\t", fieldnames=list(FIELDS)):
            regions = int(row["num_boxes"])
            for name in ("boxes", "features"):
                array = np.frombuffer(base64.b64decode(row[name]), dtype=np.float32).reshape(regions, -1)
                assert array.dtype == np.float32
            count += 1
    return count


def sightline_iteration(path: Path) -> int:
    """Every scene in one pass."""
    return sum(1 for _ in BottomUpTsv(path))


def sightline_random(path: Path) -> int:
    """The index, then every scene by its id in a shuffled order."""
    source = BottomUpTsv(path)
    order = np.random.default_rng(1).permutation(source.ids())
    return sum(1 for id in order if len(source[str(id)]))


def measure(sides: Mapping[str, Callable[[Path], int]], path: Path, images: int, rounds: int) -> dict[str, float]:
    """Milliseconds an image in the best round; the rounds of all sides alternate."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name, read in sides.items():
            start = time.perf_counter()
            assert read(path) == images
            if turn:  # the first turn warms the page cache
                taken[name].append((time.perf_counter() - start) / images * 1e3)
    return {name: min(values) for name, values in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of a table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "features.tsv"
        write_scenes(path, generated(args.images, args.regions, args.width))
        megabytes = path.stat().st_size / 1e6
        sides = {"usual loop": usual_loop, "sightline": sightline_iteration, "sightline by id": sightline_random}
        best = measure(sides, path, args.images, args.rounds)
    usual = best["usual loop"]
    if args.json:
        print(json.dumps({"ms_per_image": best, "ratio": {name: usual / ms for name, ms in best.items()}}))
        return
    print(f"{args.images} images × {args.regions} regions × {args.width}, {megabytes:.0f} MB, {args.rounds} rounds")
    print(f"{'':<16}  ms/image  times faster")
    for name, ms in best.items():
        print(f"{name:<16}  {ms:8.3f}  {usual / ms:12.2f}")


if __name__ == "__main__":
    main()
