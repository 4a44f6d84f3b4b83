"""Ctrl-C and kill, as a question that a long computation asks itself where it can stop."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Gives what tells whether somebody asked to stop; whoever is asked twice stops at once."""
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        old = {number: signal.signal(number, ask) for number in SIGNALS}
    except ValueError:  # not the main thread, which alone is told of signals
        yield lambda: False
        return
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
