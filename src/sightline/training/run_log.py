"""What a run tells while it runs: its speed, one line on the terminal, and curves where TensorBoard is installed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.status import Status

PLACES = ("stage", "epoch", "step", "steps", "rate", "images/s", "seconds left")
QUIET_SECONDS = 30  # between two lines where nobody watches a terminal


class Reporter:
    """Tells people on stderr: a line that changes on a terminal, else a line now and then."""

    def __init__(self, quiet: bool = False, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._status: Status | None = None
        self._last = -float("inf")

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, sentence: str) -> None:
        """A sentence that stays."""
        self.console.print(sentence, markup=False)

    def report(self, line: dict[str, Any]) -> None:
        """A line of metrics.jsonl: evaluations stay, steps are shown until the next."""
        if any(name.startswith("val ") for name in line):
            self.say(evaluation_line(line))
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
    """Stage, epoch, losses, speed, and the time that is left.

    >>> step_line({"stage": "xe", "epoch": 0, "step": 50, "steps": 200, "rate": 1e-3, "loss": 3.21, "images/s": 812.5,
    ...            "seconds left": 75.0})
    'xe, epoch 1, step 50 of 200: loss 3.210; 812 images/s, 1 min 15 s left'
    """
    losses = ", ".join(f"{name} {value:.3f}" for name, value in line.items() if name not in PLACES)
    speed = f"; {line['images/s']:.0f} images/s, {duration(line['seconds left'])} left" if "images/s" in line else ""
    return f"{line['stage']}, epoch {line['epoch'] + 1}, step {line['step']:,} of {line['steps']:,}: {losses}{speed}"


def evaluation_line(line: dict[str, Any]) -> str:
    """What an evaluation found.

    >>> evaluation_line({"stage": "xe", "epoch": 4, "step": 500, "val CIDEr": 57.25})
    'xe, epoch 5, step 500: val CIDEr 57.250'
    """
    found = ", ".join(f"{name} {value:.3f}" for name, value in line.items() if name not in PLACES)
    return f"{line['stage']}, epoch {line['epoch'] + 1}, step {line['step']:,}: {found}"


def duration(seconds: float) -> str:
    """As people say it.

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


class Clock:
    """Images a second without the first step, which warms up, and without pauses; and the time left, with them."""

    def __init__(self) -> None:
        self.steps, self.images, self.since, self.pauses = -1, 0, 0.0, 0.0

    def count(self, images: int) -> None:
        """A step over so many images has ended."""
        self.steps += 1
        if self.steps == 0:
            self.since = time.perf_counter()
        else:
            self.images += images

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What is not training: evaluation, writing."""
        began = time.perf_counter()
        yield
        self.pauses += time.perf_counter() - began

    def told(self, left: int) -> dict[str, float]:
        """`images/s`, and `seconds left` if so many steps are left; nothing after the first step."""
        if self.steps < 1:
            return {}
        seconds = time.perf_counter() - self.since
        rate = self.images / max(1e-9, seconds - self.pauses)
        return {"images/s": round(rate, 1), "seconds left": round(left * seconds / self.steps, 1)}
