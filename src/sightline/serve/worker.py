"""Threads that work with the model, and jobs of many requests that each of them does together.

Jobs of the same kind that come within a few milliseconds are one batch: a model looks at eight photos in less than
eight times the time of one. On a CPU several batches are worked on at once, as those of a folder are
(`sightline.jobs.job`). How many jobs may wait is bounded by `reserve`.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from sightline.pipeline import FEW_PHOTOS
from sightline.serve.limits import Limits, Refusal

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
    """Begins jobs in the order of their coming, those of one kind together; `batches` at once share the threads."""

    def __init__(self, limits: Limits, batches: int = 1) -> None:
        self.limits = limits
        self.reserved = 0  # jobs that have room: coming, waiting or worked on
        self._jobs, self._change, self._open = deque[_Job](), threading.Condition(), True
        self._seconds, self._idle = FIRST_GUESS, 0  # threads that could begin with a batch
        self._cpu_threads = torch.get_num_threads()
        self._threads = [threading.Thread(target=self._work, name="model", daemon=True) for _ in range(batches)]
        for thread in self._threads:
            thread.start()

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
            self._change.notify_all()
        return [job.result for job in jobs]

    def close(self) -> None:
        """Finish what is being worked on, refuse the rest, and stop."""
        with self._change:
            self._open = False
            waiting = list(self._jobs)
            self._jobs.clear()
            self._change.notify_all()
        for job in waiting:
            if job.result.set_running_or_notify_cancel():
                job.result.set_exception(Refusal.busy(1))
        for thread in self._threads:
            thread.join()
        torch.set_num_threads(self._cpu_threads)  # which threads that begin later have too

    def _work(self) -> None:
        torch.set_num_threads(max(1, self._cpu_threads // len(self._threads)))
        while jobs := self._next_batch():
            batch = [job for job in jobs if job.result.set_running_or_notify_cancel()]
            if not batch:
                continue
            began = time.monotonic()
            self._run(batch)
            seconds = (time.monotonic() - began) / len(batch) / len(self._threads)
            self._seconds += 0.2 * (seconds - self._seconds)

    def _next_batch(self) -> list[_Job]:
        """The jobs of the next batch; none once it is closed."""
        with self._change:
            self._idle += 1
            while self._open:
                self._jobs = deque(job for job in self._jobs if not job.result.cancelled())
                alike = [job for job in self._jobs if job.kind == self._jobs[0].kind]
                left = alike[0].came + self.limits.wait - time.monotonic() if alike else None
                if left is None or (left > 0 and len(alike) < self.limits.batch):
                    self._change.wait(left)
                    continue
                share = max(FEW_PHOTOS, math.ceil(len(alike) / self._idle))  # as many for each thread that is idle
                batch = alike[: min(self.limits.batch, share)]
                taken = set(map(id, batch))
                self._jobs = deque(job for job in self._jobs if id(job) not in taken)
                self._idle -= 1
                return batch
        return []

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
