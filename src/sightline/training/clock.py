"""How fast training is, and how long it still takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


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
