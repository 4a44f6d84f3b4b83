"""Peak resident memory while every scene of a COCO-sized feature file is read.

The file is a precomp `train_ims.npy` of 113,287 × 36 × 2048 float32, 33 GB, written as a hole: it takes no disk space,
and reads as zeros. Each side runs in its own process, which reports its peak (VmHWM). `numpy.load(mmap_mode="r")` is
what people use: the pages it has touched stay counted as its memory. Sightline reads a row at a time into one array.

Another store can be measured with `--source FORMAT:PATH`, e.g. `--source sightline-store:features/`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from sightline.data.formats import FORMATS
from sightline.data.precomp import PrecompFeatures
from sightline.data.records import SceneSource
from sightline.scene import Scene

COCO_TRAIN = 113_287


def sparse_precomp(folder: Path, images: int, regions: int, width: int) -> None:
    """A precomp folder whose features are one hole in a file."""
    path = folder / "train_ims.npy"
    with path.open("wb") as file:
        shape = (images, regions, width)
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + images * regions * width * 4)


def read_all(source: SceneSource) -> int:
    """Count the regions of every scene, letting each go."""
    return sum(len(scene) for scene in source)


def precomp_source(folder: str) -> int:
    """Through Sightline's reader, each scene checked."""
    return read_all(PrecompFeatures(folder))


def mapped_array(folder: str) -> int:
    """Through numpy's memory map, each row checked in the same way."""
    rows = np.load(Path(folder) / "train_ims.npy", mmap_mode="r")
    return sum(len(Scene(str(number), regions=row)) for number, row in enumerate(rows))


def named_source(spec: str) -> int:
    """Through the reader of any format, named `format:path`."""
    name, _, path = spec.partition(":")
    reader = next(format.scenes for format in FORMATS if format.name == name)
    assert reader is not None, f"{name} holds no features"
    return read_all(reader(Path(path)))


def peak_megabytes() -> float:
    """The most memory this process ever had resident, mapped file pages included (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _run(task: Callable[[str], int], path: str) -> dict[str, float]:
    before, start = peak_megabytes(), time.perf_counter()
    regions = task(path)
    seconds = time.perf_counter() - start
    return {"regions": regions, "seconds": seconds, "start_mb": before, "peak_mb": peak_megabytes()}


def measure(task: Callable[[str], int], path: str) -> dict[str, float]:
    """Run `task(path)` in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_run, task, path).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=COCO_TRAIN)
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--mapped-images", type=int, default=10_000, help="images for the memory-mapped side")
    parser.add_argument("--source", action="append", default=[], help="also read FORMAT:PATH")
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of a table")
    args = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        sparse_precomp(Path(name), args.images, args.regions, args.width)
        found[f"sightline, {args.images} images"] = measure(precomp_source, name)
        mapped = min(args.images, args.mapped_images)
        sparse_precomp(Path(name), mapped, args.regions, args.width)
        found[f"numpy map, {mapped} images"] = measure(mapped_array, name)
    for spec in args.source:
        found[spec] = measure(named_source, spec)
    if args.json:
        print(json.dumps(found))
        return
    print(f"{args.regions} × {args.width} float32 an image, {args.images * args.regions * args.width * 4 / 1e9:.1f} GB")
    print(f"{'':<28}  seconds  start MB  peak MB")
    for side, numbers in found.items():
        print(f"{side:<28}  {numbers['seconds']:7.1f}  {numbers['start_mb']:8.0f}  {numbers['peak_mb']:7.0f}")


if __name__ == "__main__":
    main()
