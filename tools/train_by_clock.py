"""Run rows of `sightline reproduce` whose last stage ends at a given time, whatever steps it has taken by then.

    python tools/train_by_clock.py 1700000000 default --table captioner --rows longer [--out runs] [KEY=VALUE …]

The first word is that time, in seconds since 1970 (`date -d '+9 min' +%s`); the others are those of `sightline
reproduce`. The learning rate follows the clock too: a cosine from the first step to that time, after the recipe's
warm-up. For machines that are lent for minutes. The result depends on how fast the machine is: put the steps that came
out (metrics.jsonl tells them) into the recipe.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from sightline.training.launch import Callbacks
from sightline.training.recipe import Recipe
from sightline.training.reproduce import Row, choose, plan, run
from sightline.training.stage import Schedule, Selection


class ScheduleByClock(Schedule):
    """A cosine over time."""

    ends: ClassVar[float]

    @cached_property
    def began(self) -> float:
        return time.time()

    def at(self, epoch: int, step: int, steps: int) -> float:
        share = (time.time() - self.began) / max(1e-9, self.ends - self.began)
        rise = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return rise * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


class SelectionByClock(Selection):
    """The stage stops when time is over."""

    ends: ClassVar[float]

    def spent(self, without_better: int) -> bool:
        return time.time() >= self.ends or super().spent(without_better)


def by_clock(recipe: Recipe, ends: float) -> Recipe:
    """The recipe with a last stage that ends then."""
    ScheduleByClock.ends = SelectionByClock.ends = ends
    name, stage = [(name, stage) for name, stage in recipe.stages.items() if stage is not None][-1]
    schedule = ScheduleByClock(**{one.name: getattr(stage.schedule, one.name) for one in fields(Schedule)})
    select = SelectionByClock(**{one.name: getattr(stage.select, one.name) for one in fields(Selection)})
    return replace(recipe, stages={**recipe.stages, name: replace(stage, schedule=schedule, select=select)})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ends", type=float, help="in seconds since 1970")
    parser.add_argument("paper")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--table", required=True)
    parser.add_argument("--rows", required=True, help="by commas")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--device", default="auto")
    options = parser.parse_intermixed_args(arguments)
    if options.ends <= time.time():
        parser.error("that time is over")
    chosen = choose(options.paper, options.table, options.rows.split(","))
    rows = [
        replace(row, recipe=by_clock(row.recipe, options.ends)) if row.address in chosen else row
        for row in plan(chosen, options.settings)
    ]

    def callbacks(row: Row) -> Callbacks:
        return Callbacks(say=print)

    outcomes = run(rows, options.out, options.device, callbacks=callbacks)
    for outcome in outcomes:
        print(outcome.row.address, outcome.state, outcome.why, outcome.results.get("metrics", ""))
    return int(any(outcome.state == "failed" for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
