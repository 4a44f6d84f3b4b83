"""Run many rows of `sightline reproduce` side by side on one GPU, each in a process of its own.

    python tools/run_rows.py tools/rows/flickr8k.yaml --slots 12 [--minutes 30] [--out runs]

The file lists rows, the most urgent first: an id, the words after `sightline reproduce`, the ids it must wait for, and
its seeds (0 alone where there are none). Each seed is a process of its own, called ID-SEED, and waits for the same seed
of what it needs. A row whose need failed is left out. One process rarely fills a GPU: a dozen small models keep an H200
busy, best with NVIDIA's MPS (`nvidia-cuda-mps-control -d`). What a row prints goes to OUT/logs/ID.log. When the minutes
are over, what still runs is stopped; run it again: finished rows are kept, stopped ones go on. Check all rows with
--dry first.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

WAIT = 0.5  # seconds between two looks at the processes


@dataclass(frozen=True)
class Row:
    """A row to run: its id, the words after `sightline reproduce`, and the rows it waits for."""

    id: str
    words: tuple[str, ...]
    needs: tuple[str, ...] = ()


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, each with every one of its seeds; those that wait for an unknown row are refused."""
    rows = [
        Row(
            f"{one['id']}-{seed}",
            (*shlex.split(one["row"]), "--seeds", str(seed)),
            tuple(f"{need}-{seed}" for need in one.get("needs", ())),
        )
        for one in yaml.safe_load(path.read_text(encoding="utf-8"))
        for seed in one.get("seeds", (0,))
    ]
    known = {row.id for row in rows}
    if len(known) < len(rows):
        raise SystemExit(f"{path}: two rows have the same id")
    for row in rows:
        if lost := set(row.needs) - known:
            raise SystemExit(f"{path}: {row.id} waits for {', '.join(sorted(lost))}, which is not there")
    return rows


def run(rows: Sequence[Row], command: Sequence[str], logs: Path, slots: int, seconds: float) -> dict[str, str]:
    """Run the rows, at most `slots` at a time: done, failed, left out, stopped or not begun, by id."""
    logs.mkdir(parents=True, exist_ok=True)
    state: dict[str, str] = {}
    running: dict[str, subprocess.Popen[bytes]] = {}
    since, begun = time.monotonic(), dict[str, float]()

    def tell(what: str, id: str) -> None:
        print(f"{time.monotonic() - since:6.0f} s  {what:8} {id}", flush=True)

    while time.monotonic() - since < seconds:
        for id, process in list(running.items()):
            if process.poll() is not None:
                state[id] = "failed" if process.returncode else "done"
                del running[id]
                tell(state[id], f"{id}, {time.monotonic() - begun[id]:.0f} s")
        for row in rows:
            if row.id in state or row.id in running:
                continue
            if any(state.get(need) in ("failed", "left out") for need in row.needs):
                state[row.id] = "left out"
                tell("left out", row.id)
            elif len(running) < slots and all(state.get(need) == "done" for need in row.needs):
                with (logs / f"{row.id}.log").open("wb") as log:  # a row has one thread of its own beside the GPU's
                    running[row.id] = subprocess.Popen(
                        [*command, *row.words],
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env={"OMP_NUM_THREADS": "1", **os.environ},
                        start_new_session=True,
                    )
                begun[row.id] = time.monotonic()
                tell("begins", row.id)
        if not running and all(row.id in state for row in rows):
            break
        time.sleep(min(WAIT, seconds))
    for id, process in running.items():
        os.killpg(process.pid, signal.SIGTERM)  # the loop saves its state
        state[id] = "stopped"
        tell("stopped", id)
    for process in running.values():
        process.wait()
    return {row.id: state.get(row.id, "not begun") for row in rows}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--slots", type=int, default=8, help="rows at a time")
    parser.add_argument("--minutes", type=float, default=24 * 60.0)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dry", action="store_true", help="check every row, train nothing")
    options = parser.parse_args(arguments)
    rows = read_rows(options.file)
    command = [sys.executable, "-m", "sightline", "reproduce", "--out", str(options.out)]
    command += ["--dry"] if options.dry else ["--device", options.device]
    state = run(rows, command, options.out / "logs", options.slots, 60 * options.minutes)
    counts = {what: list(state.values()).count(what) for what in dict.fromkeys(state.values())}
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 0 if set(state.values()) == {"done"} else 1


if __name__ == "__main__":
    sys.exit(main())
