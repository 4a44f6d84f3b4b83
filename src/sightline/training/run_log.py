"""What a run tells while it runs: losses and speed in metrics.jsonl, a line on the terminal, TensorBoard's curves."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.status import Status
from torch import Tensor

from sightline.errors import LearningError
from sightline.files import unwritable
from sightline.training.distributed import Distributed
from sightline.training.state import Counters

PLACES = ("stage", "epoch", "step", "steps", "rate", "images/s", "seconds left")
QUIET_SECONDS = 30  # between two lines where nobody watches a terminal


class Clock:
    """Speed in images a second, without the first step (warm-up) and without pauses; and the time that is left."""

    def __init__(self) -> None:
        self.steps, self.images, self.since, self.pauses = -1, 0, 0.0, 0.0

    def count(self, images: int) -> None:
        self.steps += 1
        if self.steps == 0:
            self.since = time.perf_counter()
        else:
            self.images += images

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Leave out the time that is spent within: evaluating, writing."""
        began = time.perf_counter()
        yield
        self.pauses += time.perf_counter() - began

    def speed(self, left: int) -> dict[str, float]:
        """`images/s`, and `seconds left` if so many steps are left; nothing after the first step."""
        if self.steps < 1:
            return {}
        seconds = time.perf_counter() - self.since
        speed = self.images / max(1e-9, seconds - self.pauses)
        return {"images/s": round(speed, 1), "seconds left": round(left * seconds / self.steps, 1)}


@dataclass(eq=False)
class StageLog:
    """The lines of metrics.jsonl of one stage, and the losses that wait to be written there.

    Losses stay on the device until a line, an evaluation or a state needs them: reading one waits for the device.
    """

    path: Path  # of metrics.jsonl
    stage: str
    counters: Counters  # they hold the losses since the last line, so that a resumed run logs the same means
    distributed: Distributed  # losses are summed over processes, and process 0 writes
    parameters: Collection[Tensor]  # they must be finite whenever losses are read
    report: Callable[[dict[str, Any]], None]  # is given each line
    clock: Clock = field(default_factory=Clock)
    _step: dict[str, Tensor] = field(default_factory=dict)
    _unread: list[dict[str, Tensor]] = field(default_factory=list)

    def add(self, sums: dict[str, Tensor], weight: float) -> None:
        """Add the loss of a batch and its parts, each over the weight of the whole step."""
        for name, value in sums.items():
            self._step[name] = self._step.get(name, 0) + value.detach() / weight

    def end_step(self, images: int) -> None:
        self._unread.append(self._step)
        self._step = {}
        self.clock.count(images)

    def read(self) -> None:
        """Move losses from the device to the counters; raise where one of them or a weight is no number."""
        if not self._unread:
            return
        counters = self.counters
        rows = [{name: float(value) for name, value in step.items()} for step in self._unread]
        first = counters.step - len(rows) + 1
        self._unread.clear()
        fix = "lower the learning rate or clip gradients (optimiser.clip); the last good state is kept"
        for number, shares in enumerate(zip(*self.distributed.gather(rows), strict=True), first):
            losses = {name: sum(share.get(name, 0.0) for share in shares) for share in shares for name in share}
            if not math.isfinite(losses["loss"]):
                raise LearningError(f"the loss is {losses['loss']} at step {number} of stage `{self.stage}`", fix=fix)
            counters.sums |= {name: counters.sums.get(name, 0.0) + value for name, value in losses.items()}
            counters.summed += 1
        if not torch.stack([parameter.isfinite().all() for parameter in self.parameters]).all():
            raise LearningError(f"weights are not finite after step {counters.step} of stage `{self.stage}`", fix=fix)

    def write_step(self, epoch: int, steps: int, lr: float) -> None:
        """Write the means over the steps since the last such line, and the speed."""
        self.read()
        counters = self.counters
        means = {name: value / counters.summed for name, value in counters.sums.items()}
        counters.sums, counters.summed = {}, 0
        place = {"epoch": epoch, "step": counters.step, "steps": steps, "rate": lr}
        self.write({**place, **means, **self.clock.speed(steps - counters.step)})

    def write(self, line: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl. It is on disk before a state that counts it."""
        self.counters.lines += 1
        if not self.distributed.first:
            return
        line = {"stage": self.stage, **line}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(self.path, error) from error
        self.report(line)


class Reporter:
    """Progress on stderr: one changing line on a terminal, otherwise a line now and then."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._status: Status | None = None
        self._last = -float("inf")

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, sentence: str) -> None:
        self.console.print(sentence, markup=False)

    def report(self, line: dict[str, Any]) -> None:
        """A line of metrics.jsonl: evaluations stay, steps are shown until the next."""
        if any(name.startswith("val ") for name in line):
            self.say(step_line(line))
        elif self.console.is_terminal:
            if self._status is None:
                self._status = self.console.status("")
                self._status.start()
            self._status.update(step_line(line))
        elif time.monotonic() - self._last >= QUIET_SECONDS:
            self._last = time.monotonic()
            self.say(step_line(line))

    def progress(self, photos: Sequence[Path]) -> Iterable[Path]:
        """A bar while features are extracted."""
        return track(photos, "extracting features", console=self.console, transient=True)


def step_line(line: dict[str, Any]) -> str:
    """Stage, epoch, losses or metrics, speed, and the time that is left.

    >>> step_line({"stage": "xe", "epoch": 0, "step": 50, "steps": 200, "rate": 1e-3, "loss": 3.21, "images/s": 812.5,
    ...            "seconds left": 75.0})
    'xe, epoch 1, step 50 of 200: loss 3.210; 812 images/s, 1 min 15 s left'
    >>> step_line({"stage": "xe", "epoch": 4, "step": 500, "val CIDEr": 57.25})
    'xe, epoch 5, step 500: val CIDEr 57.250'
    """
    values = ", ".join(f"{name} {value:.3f}" for name, value in line.items() if name not in PLACES)
    steps = f" of {line['steps']:,}" if "steps" in line else ""
    speed = f"; {line['images/s']:.0f} images/s, {duration(line['seconds left'])} left" if "images/s" in line else ""
    return f"{line['stage']}, epoch {line['epoch'] + 1}, step {line['step']:,}{steps}: {values}{speed}"


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> duration(45), duration(75), duration(7260)
    ('45 s', '1 min 15 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def curves(out: Path) -> Callable[[dict[str, Any]], None] | None:
    """A sink that draws curves into `out`, where TensorBoard is installed."""
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(out / "tensorboard"))

    def draw(line: dict[str, Any]) -> None:
        for name, value in line.items():
            if name not in PLACES or name == "rate":
                writer.add_scalar(f"{line['stage']}/{name}", value, line["step"])
        writer.flush()

    return draw
