"""One photo captioned by two threads, alone and beside a busy process: threads that sleep while they wait, or spin.

    python benchmarks/busy_machine.py [--model FILE] [--photos 20] [--rounds 3] [--json]

Sightline sets OMP_WAIT_POLICY=passive before PyTorch is imported, unless the user chose otherwise: threads that wait
for each other sleep. The peer is what PyTorch does by itself, which is to spin. Both take turns, each in a process of
its own, and the best round's median of each counts. Measure on a machine that is idle otherwise: its load, which counts
the last minute, is told beside.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PHOTO = Path(__file__).parents[1] / "examples" / "cat.jpg"
CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS")
POLICIES = {"sleep": {}, "spin": {"GOMP_SPINCOUNT": "300000"}}  # so often libgomp looks where nothing is set
LIMIT = 60.0  # seconds of a round, after which the photos that are done count
BUSY = "while True: pass"


def worker(model: str | None, photos: int) -> float:
    """The median milliseconds of a photo, warm."""
    import sightline

    pipeline = sightline.load(model, "cpu", 2)
    pipeline.caption(PHOTO)
    taken: list[float] = []
    begun = time.perf_counter()
    while len(taken) < photos and time.perf_counter() - begun < LIMIT:
        start = time.perf_counter()
        pipeline.caption(PHOTO)
        taken.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken)


def measure(policy: str, beside: int, arguments: list[str]) -> float:
    """The same in a new process, beside so many that are busy."""
    environment = {name: value for name, value in os.environ.items() if name not in CHOICES}
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(beside)]
    try:
        command = [sys.executable, __file__, "--worker", *arguments]
        run = subprocess.run(
            command, capture_output=True, text=True, check=True, env={**environment, **POLICIES[policy]}
        )
        return float(run.stdout)
    finally:
        for other in others:
            other.kill()
            other.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--photos", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(worker(options.model, options.photos))
        return
    arguments = ["--photos", str(options.photos), *(["--model", options.model] if options.model else [])]
    found: dict[str, dict[str, float]] = {}
    for beside in (0, 1):
        rounds = [{policy: measure(policy, beside, arguments) for policy in POLICIES} for _ in range(options.rounds)]
        name = "beside a busy process" if beside else "alone"
        found[name] = {policy: min(one[policy] for one in rounds) for policy in POLICIES}
    load = os.getloadavg()[0]
    if options.json:
        print(json.dumps({"ms": found, "load": load}))
        return
    for name, row in found.items():
        print(
            f"{name:<24} sleep {row['sleep']:8.0f} ms   spin {row['spin']:8.0f} ms   {row['spin'] / row['sleep']:.1f} ×"
        )
    print(f"{os.cpu_count()} processors, load {load:.1f}")


if __name__ == "__main__":
    main()
