"""Where the time of a caption goes: medians of each stage of `Pipeline.caption_photos`, one photo and a batch of 8.

    python benchmarks/caption_profile.py [--photos FOLDER] [--count 24] [--threads 1 2] [--json]

Stages are the functions that `sightline.pipeline` calls, each timed around its call; "other" is the rest. One photo at
a time is what a person waits for, a batch of 8 what a folder is read in. CPU time stands beside wall time, since other
programs may want the cores: compare CPU time there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import sightline
from sightline import pipeline as steps
from speed_material import make_photos

STAGES = "read scenes embed_images encode decode concepts choose trace_captions choose_boxes".split()
BATCH = 8  # of `sightline caption`


class Clock:
    """Wall and CPU seconds of named stages, in the order in which they end."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, timed."""

        def timed(*args: Any, **options: Any) -> Any:
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                return call(*args, **options)
            finally:
                self.spent[name][0] += time.perf_counter() - wall
                self.spent[name][1] += time.process_time() - cpu

        return timed


def watch(pipe: Any, clock: Clock) -> None:
    """Put the clock around the stages of one pipeline."""
    for name in ("decode", "trace_captions", "choose_boxes"):
        setattr(steps, name, clock.around(name, getattr(steps, name)))
    pipe.scenes = clock.around("scenes", pipe.scenes)
    pipe.read = clock.around("read", pipe.read)
    pipe._vision.concepts = clock.around("concepts", pipe._vision.concepts)
    pipe._chooser.choose = clock.around("choose", pipe._chooser.choose)
    pipe.captioner.encode = clock.around("encode", pipe.captioner.encode)
    if pipe.bundle.matcher is not None:
        model = pipe.bundle.matcher.model
        model.embed_images = clock.around("embed_images", model.embed_images)


def profile(pipe: Any, paths: list[Path], batch: int) -> dict[str, tuple[float, float]]:
    """Median milliseconds a photo of each stage, wall and CPU."""
    clock, rounds = Clock(), []
    watch(pipe, clock)
    groups = [paths[first : first + batch] for first in range(0, len(paths) - batch + 1, batch)]
    for group in (groups[0], *groups):  # the first warms up
        clock.spent.clear()
        wall, cpu = time.perf_counter(), time.process_time()
        pipe.caption_photos([pipe.read(path) for path in group])
        total = time.perf_counter() - wall, time.process_time() - cpu
        stages = {name: tuple(clock.spent[name]) for name in STAGES}
        other = tuple(whole - sum(part[k] for part in stages.values()) for k, whole in enumerate(total))
        rounds.append({**stages, "other": other, "total": total})
    return {
        name: tuple(statistics.median(one[name][k] for one in rounds[1:]) * 1e3 / batch for k in (0, 1))  # type: ignore[misc]
        for name in rounds[0]
    }


def photos(folder: Path | None, count: int, scratch: Path) -> list[Path]:
    """The first photos of a folder, or pictures made for it."""
    if folder is not None:
        return sorted(folder.glob("*.jpg"))[:count]
    return make_photos(scratch, count, (640, 480))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--photos", type=Path, help="a folder of photos; by default pictures are made")
    parser.add_argument("--count", type=int, default=24, help="photos")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        paths = photos(options.photos, options.count, Path(scratch))
        for threads in options.threads:
            torch.set_num_threads(threads)
            for batch in (1, BATCH):
                report[f"{threads} threads, batch of {batch}"] = profile(sightline.load(), paths, batch)
    if options.json:
        print(json.dumps(report))
        return
    for name, stages in report.items():
        print(f"{name}: ms a photo, wall and CPU")
        for stage, (wall, cpu) in stages.items():
            print(f"  {stage:<16}{wall:8.1f}{cpu:8.1f}")


if __name__ == "__main__":
    main()
