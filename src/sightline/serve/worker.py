"""One thread that owns the model, and jobs of many requests that it does together.

Jobs of the same kind that come within a few milliseconds are one batch: a model looks at eight photos in much less than
eight times the time of one. How many may wait is bounded by `reserve`.
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
FIRST_GUESS = 0.1  # seconds of one job, until some were measured


@dataclass(frozen=True, eq=False)
class _Job:
    kind: Hashable
    run: Run
    item: Any
    came: float  # by the monotonic clock
    result: Future[Any] = field(default_factory=Future)


class Worker:
    """Does jobs in the order of their coming, those of the kind of the first together."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.reserved = 0  # jobs that have room: coming, waiting or worked on
        self._jobs, self._change, self._open = deque[_Job](), threading.Condition(), True
        self._seconds = FIRST_GUESS
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    @contextmanager
    def reserve(self, count: int) -> Iterator[None]:
        """Room for so many jobs, or the refusal that says when there will be some."""
        with self._change:
            if self.reserved + count > self.limits.queue or not self._open:
                raise Refusal.busy(self._seconds * self.reserved)
            self.reserved += count
        try:
            yield
        finally:
            with self._change:
                self.reserved -= count

    def submit(self, kind: Hashable, run: Run, items: Sequence[Any]) -> list[Future[Any]]:
        """Results to come: `run` is given items of this kind, perhaps with those of others, and gives one for each."""
        now = time.monotonic()
        jobs = [_Job(kind, run, item, now) for item in items]
        with self._change:
            if not self._open:
                raise Refusal.busy(1)
            self._jobs.extend(jobs)
            self._change.notify()
        return [job.result for job in jobs]

    def close(self) -> None:
        """Finish what is being worked on, refuse the rest, and stop."""
        with self._change:
            self._open = False
            waiting = list(self._jobs)
            self._jobs.clear()
            self._change.notify()
        for job in waiting:
            if job.result.set_running_or_notify_cancel():
                job.result.set_exception(Refusal.busy(1))
        self._thread.join()

    def _work(self) -> None:
        while jobs := self._next_batch():
            batch = [job for job in jobs if job.result.set_running_or_notify_cancel()]
            if not batch:
                continue
            began = time.monotonic()
            self._run(batch)
            seconds = (time.monotonic() - began) / len(batch)
            self._seconds += 0.2 * (seconds - self._seconds)

    def _next_batch(self) -> list[_Job]:
        """The jobs of the next batch; none once it is closed."""
        with self._change:
            self._change.wait_for(lambda: self._jobs or not self._open)
            if not self._jobs:
                return []
            first = self._jobs[0]
            until = first.came + self.limits.wait
            while len(batch := self._like(first)) < self.limits.batch and self._open:
                left = until - time.monotonic()
                if left <= 0 or not self._change.wait(left):
                    batch = self._like(first)
                    break
            taken = set(map(id, batch))
            self._jobs = deque(job for job in self._jobs if id(job) not in taken and not job.result.cancelled())
            return batch or [first]

    def _like(self, first: _Job) -> list[_Job]:
        alike = (job for job in self._jobs if job.kind == first.kind and not job.result.cancelled())
        return list(itertools.islice(alike, self.limits.batch))

    def _run(self, batch: list[_Job]) -> None:
        try:
            results = batch[0].run([job.item for job in batch])
            for job, result in zip(batch, results, strict=True):
                job.result.set_result(result)
        except Exception as error:
            if len(batch) == 1:
                batch[0].result.set_exception(error)
                return
            for job in batch:  # what one cannot be given must not be kept from the others
                if not job.result.done():
                    self._run([job])
