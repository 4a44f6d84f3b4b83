"""How time and memory grow: photos, captions, regions, beam, vocabulary, index size; each with its fitted exponent.

    python benchmarks/scaling.py [NAME …] [--quick] [--json]

Every point is measured in a process of its own, one thread: the best of three runs after one to warm up, and the peak
memory above what the process held before. The exponent is the slope of log time over log size by least squares.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from timing import cpu_seconds

Task = Callable[[], object]
IMAGES = 16  # decoded at once, where images are not what grows
WIDTH = 2048


def photos(size: int) -> Task:
    """Captions of so many photos by the shipped model."""
    import sightline
    from speed_material import make_photos

    folder = tempfile.mkdtemp(prefix="sightline-")
    paths = make_photos(Path(folder), size, (640, 480))
    pipeline = sightline.load(None, "cpu", 1)
    return lambda: pipeline.caption(tuple(paths))


def captions(size: int) -> Task:
    """BLEU, ROUGE-L and CIDEr-D of so many images."""
    from captions_for_benchmarks import captions as read
    from captions_for_benchmarks import plain
    from sightline.metrics.bleu import Bleu
    from sightline.metrics.cider import CIDErD
    from sightline.metrics.rouge import RougeL

    texts = [[plain(text) for text in of] for of in read(size)[1]]
    said, heard = {str(i): of[0] for i, of in enumerate(texts)}, {str(i): of[1:] for i, of in enumerate(texts)}

    def score() -> None:
        for metric in (Bleu(), RougeL(), CIDErD()):
            metric.update(said, heard)
            metric.compute()

    return score


def decode(regions: int = 36, beam: int = 5, vocabulary: int = 9_487) -> Task:
    """Beam search of Up-Down over random features, 16 words."""
    import torch

    from beam_decoding import sightline_beam
    from sightline.decoding.rules import Rules
    from sightline.models.updown import UpDownConfig

    torch.manual_seed(0)
    model = UpDownConfig(region_width=WIDTH).build(vocabulary).eval()
    features = torch.randn(IMAGES, regions, WIDTH).relu()
    return lambda: sightline_beam(model, features, beam, Rules(max_words=16, min_words=16), IMAGES)


def index_size(size: int) -> Task:
    """A hundred exact searches among so many vectors of 256 numbers."""
    from sightline.search.engine import Row
    from sightline.search.exact import ExactIndex

    index = ExactIndex(Path(tempfile.mkdtemp(prefix="sightline-")) / "index")
    index.clear("scaling")
    vectors = np.random.default_rng(0).standard_normal((size, 256), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = [Row(f"/p/{n}.jpg", "/p", (n, n), "", (640, 480), vector, "a dog") for n, vector in enumerate(vectors)]
    index.write(rows)
    return lambda: [index.find(vector, [], 10) for vector in vectors[:100]]


CURVES: dict[str, tuple[Callable[[int], Task], tuple[int, ...]]] = {
    "photos": (photos, (4, 8, 16, 32, 64)),
    "captions": (captions, (500, 1000, 2000, 4000, 8000, 16000)),
    "regions": (lambda size: decode(regions=size), (9, 18, 36, 72, 144)),
    "beam": (lambda size: decode(beam=size), (1, 2, 4, 8, 16)),
    "vocabulary": (lambda size: decode(vocabulary=size), (2_500, 5_000, 10_000, 20_000, 40_000)),
    "index size": (index_size, (10_000, 20_000, 40_000, 80_000, 160_000)),
}


def resident(field: str) -> float:
    """Of this process in MB, from Linux's status."""
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) / 1024


def point(name: str, size: int) -> dict[str, float]:
    """Seconds and MB of one size, in this process."""
    task = CURVES[name][0](size)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far, of reading and building, is forgotten
    before = resident("VmRSS")
    task()
    peak = resident("VmHWM")
    return {"seconds": cpu_seconds(task, 3), "mb": max(0.0, peak - before)}


def curve(name: str, sizes: tuple[int, ...]) -> dict[str, Any]:
    """The points of one curve, and its exponents."""
    found = []
    for size in sizes:
        command = [sys.executable, __file__, "--point", name, str(size)]
        found.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    seconds, megabytes = [one["seconds"] for one in found], [one["mb"] for one in found]
    return {
        "sizes": list(sizes),
        "seconds": seconds,
        "mb": megabytes,
        "time_exponent": exponent(sizes, seconds),
        "memory_exponent": exponent(sizes, [max(one, 0.1) for one in megabytes]),
    }


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    """b of values = a · sizes^b, by least squares of logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CURVES)}; by default all")
    parser.add_argument("--quick", action="store_true", help="the three smallest sizes")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument("--point", nargs=2, metavar=("NAME", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print(json.dumps(point(options.point[0], int(options.point[1]))))
        return
    report = {name: curve(name, CURVES[name][1][: 3 if options.quick else None]) for name in options.names or CURVES}
    if options.json:
        print(json.dumps(report))
        return
    for name, found in report.items():
        print(f"{name}: time ~ size^{found['time_exponent']:.2f}, memory ~ size^{found['memory_exponent']:.2f}")
        for size, seconds, megabytes in zip(found["sizes"], found["seconds"], found["mb"], strict=True):
            print(f"{size:>12,}{seconds:12.3f} s{megabytes:10.1f} MB")


if __name__ == "__main__":
    main()
