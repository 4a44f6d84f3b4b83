"""One thread that owns the model, and asks from many requests that it answers together.

Asks of the same kind that come within a few milliseconds are answered in one go: a model looks at eight photos in much
less than eight times the time of one. How many may wait is bounded by `room`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sightline.serve.limits import Limits
from sightline.serve.refusal import Refusal

Run = Callable[[list[Any]], Sequence[Any]]
FIRST_GUESS = 0.1  # seconds of one ask, until some were measured


@dataclass(frozen=True, eq=False)
class _Ask:
    kind: Hashable
    run: Run
    item: Any
    came: float
    answer: Future[Any] = field(default_factory=Future)


class Worker:
    """Answers asks in the order of their coming, those of the kind of the first together.

    Attributes:
        taken: asks that have room: coming, waiting or worked on.
        rounds: sizes of the last rounds.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self.taken, self.rounds = limits, 0, deque[int](maxlen=1000)
        self._asks, self._change, self._open = deque[_Ask](), threading.Condition(), True
        self._seconds = FIRST_GUESS
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    @property
    def queue_length(self) -> int:
        """Asks that no round has begun with, and that somebody still waits for."""
        return sum(not ask.answer.cancelled() for ask in self._asks)

    @contextmanager
    def room(self, count: int) -> Iterator[None]:
        """Room for so many asks, or the refusal that says when there will be some."""
        with self._change:
            if self.taken + count > self.limits.queue or not self._open:
                raise Refusal.busy(self._seconds * self.taken)
            self.taken += count
        try:
            yield
        finally:
            with self._change:
                self.taken -= count

    def ask(self, kind: Hashable, run: Run, items: Sequence[Any]) -> list[Future[Any]]:
        """Answers to come: `run` is given items of this kind, perhaps with those of others, and gives one for each."""
        now = time.monotonic()
        asks = [_Ask(kind, run, item, now) for item in items]
        with self._change:
            if not self._open:
                raise Refusal.busy(1)
            self._asks.extend(asks)
            self._change.notify()
        return [ask.answer for ask in asks]

    def close(self) -> None:
        """Answer what is being worked on, refuse the rest, and stop."""
        with self._change:
            self._open = False
            left = list(self._asks)
            self._asks.clear()
            self._change.notify()
        for ask in left:
            if ask.answer.set_running_or_notify_cancel():
                ask.answer.set_exception(Refusal.busy(1))
        self._thread.join()

    def _work(self) -> None:
        while taken := self._next():
            group = [ask for ask in taken if ask.answer.set_running_or_notify_cancel()]
            if not group:
                continue
            began = time.monotonic()
            self._answer(group)
            spent = (time.monotonic() - began) / len(group)
            self._seconds += 0.2 * (spent - self._seconds)
            self.rounds.append(len(group))

    def _next(self) -> list[_Ask]:
        """The asks of the next round; none once it is closed."""
        with self._change:
            self._change.wait_for(lambda: self._asks or not self._open)
            if not self._asks:
                return []
            first = self._asks[0]
            until = first.came + self.limits.wait
            while len(group := self._like(first)) < self.limits.batch and self._open:
                left = until - time.monotonic()
                if left <= 0 or not self._change.wait(left):
                    group = self._like(first)
                    break
            taken = set(map(id, group))
            self._asks = deque(ask for ask in self._asks if id(ask) not in taken and not ask.answer.cancelled())
            return group or [first]

    def _like(self, first: _Ask) -> list[_Ask]:
        alike = (ask for ask in self._asks if ask.kind == first.kind and not ask.answer.cancelled())
        return list(itertools.islice(alike, self.limits.batch))

    def _answer(self, group: list[_Ask]) -> None:
        try:
            answers = group[0].run([ask.item for ask in group])
            for ask, answer in zip(group, answers, strict=True):
                ask.answer.set_result(answer)
        except Exception as error:
            if len(group) == 1:
                group[0].answer.set_exception(error)
                return
            for ask in group:  # what one cannot be given must not be kept from the others
                if not ask.answer.done():
                    self._answer([ask])
