"""Run many rows of `sightline reproduce` side by side on one GPU, each in a process of its own.

    python tools/run_rows.py tools/rows/flickr8k.yaml --slots 12 [--minutes 30] [--out runs]

The file lists rows, the most urgent first: an id, the words after `sightline reproduce`, the ids it must wait for, and
its seeds (0 alone where there are none). Each seed is a process of its own, called ID-SEED, and waits for the same seed
of what it needs. A row whose need failed is left out. One process rarely fills a GPU: a dozen small models keep an H200
busy, best with NVIDIA's MPS (`nvidia-cuda-mps-control -d`). What a row prints goes to OUT/logs/ID.log. When the minutes
are over, what still runs is stopped; run it again: finished rows are kept, stopped ones go on. Check all rows with
--dry first. The file may change meanwhile: rows that are new there are run too, rows that are gone are stopped.

Captions and features are read once for all rows that train on them. A row is a fork of the process that has read them:
it begins at once, and a dozen rows hold them in memory once. So this needs Linux.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a row has one thread of its own beside the GPU's

import torch
import yaml

from sightline.cli.reproduce_command import reproduce, write_pages
from sightline.text.vocabulary import Vocabulary
from sightline.training.data import Data, build_data, mark_of, needs_of
from sightline.training.data_config import DataConfig
from sightline.training.launch import Callbacks, data_root
from sightline.training.new_model import CachedFeatures
from sightline.training.objectives.distillation import BOXES, DistillationConfig
from sightline.training.reproduce import SHORT, choose, finished_run, plan
from sightline.training.reproduce import Row as Planned
from sightline.training.reproduce import run as run_planned
from sightline.training.results import RECORDS, write_records
from sightline.training.run_log import Reporter
from sightline.training.stage import Stage

WAIT = 0.5  # seconds between two looks at the processes
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Row:
    """A row to run: its id, the words after `sightline reproduce`, and the rows it waits for."""

    id: str
    words: tuple[str, ...]
    needs: tuple[str, ...] = ()


Work = Callable[[Row], int]  # runs a row in its own process, and gives the exit code


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


@dataclass(frozen=True)
class Words:
    """The words after `sightline reproduce`, taken apart."""

    paper: str
    settings: tuple[str, ...]
    table: str
    rows: tuple[str, ...]
    seed: int

    @classmethod
    def of(cls, row: Row) -> Words:
        parser = argparse.ArgumentParser(prog=row.id)
        parser.add_argument("paper")
        parser.add_argument("settings", nargs="*")
        parser.add_argument("--table", default="")
        parser.add_argument("--rows", default="")
        parser.add_argument("--seeds", type=int, default=0)
        given = parser.parse_intermixed_args(row.words)
        rows = tuple(filter(None, given.rows.split(",")))
        return cls(SHORT.get(given.paper, given.paper), tuple(given.settings), given.table, rows, given.seeds)

    def plan(self) -> list[Planned]:
        planned = plan(choose(self.paper, self.table, self.rows), self.settings)
        return [row.with_seed(self.seed) for row in planned]


class SharedData:
    """`build_data` that reads data once for all rows that train on it; forks share its memory."""

    def __init__(self) -> None:
        self._known: dict[str, Data] = {}

    def __call__(
        self,
        config: DataConfig,
        model: Any,
        stages: Sequence[Stage] = (),
        *,
        base: Path = Path(),
        vocabulary: Vocabulary | None = None,
        vision: Any = CachedFeatures(),  # noqa: B008 - it is frozen
    ) -> Data:
        mark = mark_of(model, stages)
        taught = [stage.objective.teacher for stage in stages if isinstance(stage.objective, DistillationConfig)]
        # all of its arguments that build_data's answer depends on
        marks = getattr(mark, "__self__", None)
        key = repr((config, needs_of(model, stages), marks, BOXES in taught, base, vision))
        data = self._known.get(key)
        if data is None or vocabulary not in (None, data.vocabulary):
            data = build_data(config, model, stages, base=base, vocabulary=vocabulary, vision=vision)
            if vocabulary is None:
                self._known[key] = data
        return data

    def prepare(self, row: Row, out: Path) -> None:
        """Read what a row trains on. What goes wrong is told by the row's own process, and stops no other."""
        try:
            for planned in Words.of(row).plan():
                recipe = planned.recipe
                frozen = isinstance(recipe.vision, CachedFeatures) and not recipe.data.encoder
                if frozen and not recipe.measure and finished_run(planned, out) is None:
                    self(recipe.data, recipe.model, recipe.stage_list(), base=data_root(), vision=recipe.vision)
        except (Exception, SystemExit):
            pass


def run(
    read: Callable[[], Sequence[Row]],
    work: Work,
    logs: Path,
    slots: int,
    seconds: float,
    prepare: Callable[[Row], None] = lambda row: None,
) -> dict[str, str]:
    """Run the rows that `read` gives, at most `slots` at a time: done, failed, left out, stopped or not begun, by id.

    `prepare` is called with a row in this process before its own begins.
    """
    logs.mkdir(parents=True, exist_ok=True)
    state: dict[str, str] = {}
    running: dict[str, Any] = {}
    since, begun = time.monotonic(), dict[str, float]()
    rows: Sequence[Row] = ()

    def tell(what: str, id: str) -> None:
        print(f"{time.monotonic() - since:6.0f} s  {what:8} {id}", flush=True)

    def stop(ids: Sequence[str]) -> None:
        for id in ids:
            try:
                os.killpg(running[id].pid, signal.SIGTERM)  # the loop saves its state
            except ProcessLookupError:  # it has no group yet, or has just ended
                running[id].terminate()
            state[id] = "stopped"
            tell("stopped", id)
        for id in ids:
            running.pop(id).join()

    try:
        while time.monotonic() - since < seconds:
            rows = read()
            stop([id for id in running if all(row.id != id for row in rows)])
            for id, process in list(running.items()):
                if process.exitcode is not None:
                    state[id] = "failed" if process.exitcode else "done"
                    del running[id]
                    tell(state[id], f"{id}, {time.monotonic() - begun[id]:.0f} s")
            for row in rows:
                if row.id in state or row.id in running:
                    continue
                if any(state.get(need) in ("failed", "left out") for need in row.needs):
                    state[row.id] = "left out"
                    tell("left out", row.id)
                elif len(running) < slots and all(state.get(need) == "done" for need in row.needs):
                    prepare(row)
                    begun[row.id] = time.monotonic()
                    running[row.id] = FORK.Process(target=_work, args=(row, work, logs / f"{row.id}.log"))
                    running[row.id].start()
                    tell("begins", row.id)
            if not running and all(row.id in state for row in rows):
                break
            time.sleep(min(WAIT, seconds))
    finally:
        stop(list(running))
    return {row.id: state.get(row.id, "not begun") for row in rows}


def _work(row: Row, work: Work, log: Path) -> None:
    """In the process of a row: a group of its own, so that all it starts ends with it, and a log of its own."""
    os.setsid()
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(work(row))


def reread(path: Path) -> Callable[[], list[Row]]:
    """Gives the rows of the file as it is now; one that became unreadable is told, and changes nothing."""
    held, stamp = read_rows(path), path.stat().st_mtime_ns

    def read() -> list[Row]:
        nonlocal held, stamp
        try:
            if (now := path.stat().st_mtime_ns) != stamp:
                stamp = now
                held = read_rows(path)
        except (Exception, SystemExit) as error:
            print(f"{path} is as it was before: {error}", file=sys.stderr, flush=True)
        return held

    return read


def train(row: Row, out: Path, device: str, data: SharedData) -> int:
    """`sightline reproduce` of a row, with data that may have been read before."""
    with Reporter() as reporter:
        callbacks = Callbacks(reporter.say, reporter.report, reporter.progress)
        outcomes = run_planned(Words.of(row).plan(), out, device, callbacks=lambda _: callbacks, read=data)
        for outcome in outcomes:
            reporter.say(f"{outcome.row.address}: {outcome.state} {outcome.why}")
    return int(any(outcome.state in ("failed", "not run") for outcome in outcomes))


def check(row: Row) -> int:
    """`sightline reproduce --dry` of a row."""
    words = Words.of(row)
    return reproduce(words.paper, words.settings, table=words.table, rows=words.rows, seeds=(words.seed,), dry=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--slots", type=int, default=8, help="rows at a time")
    parser.add_argument("--minutes", type=float, default=24 * 60.0)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dry", action="store_true", help="check every row, train nothing")
    options = parser.parse_args(arguments)
    out = options.out
    torch.set_num_threads(1)  # a fork has no threads but one, and would wait for the others for ever
    data, read = SharedData(), reread(options.file)
    state = run(
        read,
        check if options.dry else lambda row: train(row, out, options.device, data),
        out / "logs",
        options.slots,
        60 * options.minutes,
        (lambda row: None) if options.dry else lambda row: data.prepare(row, out),
    )
    if not options.dry:
        for paper in sorted({Words.of(row).paper for row in read() if state.get(row.id) in ("done", "stopped")}):
            print(f"All tables: {write_pages(paper, out)}")
        print(f"Records: {len(write_records(out, out / RECORDS))} in {out / RECORDS}")
    counts = {what: list(state.values()).count(what) for what in dict.fromkeys(state.values())}
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 0 if set(state.values()) == {"done"} else 1


if __name__ == "__main__":
    sys.exit(main())
