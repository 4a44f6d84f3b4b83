"""What one process has to do for a job of a cluster: list photos, take results, write them down.

    python benchmarks/ray_driver.py [--photos 1000000] [--results 20000] [--folder DIR] [--json]

With `--ray`, workers look at photos, and the process that was asked writes. No cluster and no model is needed to see
how many photos a second that process can take: results that are ready are handed to it, as fast as it takes them.
Captions have 12 words and 12 named things. How much memory a list of many photos takes is measured beside.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sightline.caption import PhotoCaption, WordTrace
from sightline.jobs.job import BatchResult, run
from sightline.jobs.job_photos import PhotoRef
from sightline.jobs.ledger import CaptionLog, Ledger
from sightline.scene import Concept
from sightline.search.engine import Row
from sightline.search.exact import ExactIndex
from sightline.search.lance import LanceIndex
from sightline.search.sync import IndexSink
from sightline.vision.photo_reader import Progress

WIDTH, BATCH = 256, 8
PLACE = "/photos/2024/some folder/IMG_%08d.jpg"
BOX = (0.1, 0.2, 0.3, 0.4)


def photos(count: int) -> list[PhotoRef]:
    return [PhotoRef(PLACE % number, PLACE % number, (number + 1, number)) for number in range(count)]


def caption_of(photo: PhotoRef) -> PhotoCaption:
    trace = tuple(WordTrace(log_prob=-0.5, box=BOX, score=0.5) for _ in range(12))
    things = tuple(Concept(f"thing {number}", 0.5, BOX) for number in range(12))
    return PhotoCaption(("word",) * 12, -6.0, trace, str(photo.path), (640, 480), 0.8, False, things)


def row_of(photo: PhotoRef) -> Row:
    vector = np.full(WIDTH, WIDTH**-0.5, np.float32)
    return Row(photo.id, "/photos", photo.mark, "", (640, 480), vector, "a dog runs on a beach with a ball")


class Ready:
    """Hands that have everything done already."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.results = results

    def __call__(
        self, some: Sequence[PhotoRef], work: Any, *, size: int, batch: int, progress: Progress
    ) -> Iterator[BatchResult[Any]]:
        """A batch at a time."""
        for start in range(0, len(some), batch):
            yield BatchResult([(photo, self.results[photo.id]) for photo in some[start : start + batch]])


def speed(results: dict[str, Any], listed: list[PhotoRef], sink: Any, batch: int, folder: Path) -> float:
    """Photos that are taken a second."""
    began = time.perf_counter()
    with Ledger(folder / "ledger.jsonl") as ledger:
        run(listed, len, sink, ledger, size=1, batch=batch, executor=Ready(results))  # type: ignore[arg-type]
    return len(listed) / (time.perf_counter() - began)


def measure(count: int, many: int, top: Path) -> dict[str, float]:
    listed, found = photos(count), dict[str, float]()
    captions = {photo.id: caption_of(photo) for photo in listed}
    with CaptionLog(top / "captions.jsonl", "bench") as log:
        found["captions a second"] = speed(captions, listed, log, BATCH, top)
    (top / "ledger.jsonl").unlink()
    rows, marks = {p.id: row_of(p) for p in listed}, {p.id: p.mark for p in listed}
    for kind in (ExactIndex, LanceIndex):
        engine = kind(top / kind.kind)
        engine.clear("bench")
        found[f"rows a second, {kind.kind}"] = speed(rows, listed, IndexSink(engine, marks), engine.batch, top)
        (top / "ledger.jsonl").unlink()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept = photos(many)
    found[f"MB for a list of {len(kept):,} photos"] = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    ) / 1024
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=1_000_000, help="of the list whose memory is measured")
    parser.add_argument("--results", type=int, default=20_000, help="that are taken")
    parser.add_argument("--folder", type=Path, help="on the disk that is to be measured")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as top:
        found = measure(options.results, options.photos, Path(top))
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:<45}{value:>10,.0f}")


if __name__ == "__main__":
    main()
