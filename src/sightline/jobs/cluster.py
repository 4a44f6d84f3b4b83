"""The executor on a cluster: Ray's workers read photos and work on them; the asking process writes (extra `ray`).

A worker holds a part of the cluster: a GPU where there are any, else some CPUs. It has two batches at a time, so that
it reads the one while it works on the other. A worker that dies is replaced, and its batches are done again: photo by
photo, in case one of them killed it, and each alone with a worker, so that none pays for its neighbour. Machines that
join are used, machines that leave are not missed.
"""

import contextlib
import functools
import itertools
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sightline.errors import ClusterError, DataError, SightlineError, library
from sightline.jobs.job import BatchResult, Executor, Work, run_locally
from sightline.jobs.job_photos import PhotoRef
from sightline.photo import Photo
from sightline.vision.photo_reader import Progress

Result = TypeVar("Result")
AT_ONCE = 64  # photos that a worker is given together, at most: large batches would leave others idle
AHEAD = 2  # batches that a worker has: one that is worked on, one that is read
LIVES = 3  # workers that a photo may cost
STARTS = 5  # workers that may fail to start, one after the other
KNOCK = 10.0  # seconds until a machine that does not answer is taken for gone
PATIENCE = 5.0  # seconds from one look for machines that have joined to the next


@contextlib.contextmanager
def executor_of(address: str | None, threads: int | None = None, device: str = "auto") -> Iterator[Executor]:
    """The executor of an address: this process if it is None, else that of a Ray cluster, such as 10.0.0.7:6379.

    The address auto is that of the cluster that RAY_ADDRESS or this machine knows of, and of a new one on this machine
    if there is none. Each worker has `threads` CPUs, and a GPU unless `device` is cpu or there are none.
    """
    if address is None:
        yield functools.partial(run_locally, device=device)
        return
    ray = library("ray", "ray", "`--ray`")
    was_running = ray.is_initialized()
    if not was_running:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine unasked
        try:
            if address != "auto":
                _knock(address)
            ray.init(None if address == "auto" else address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            what = f"no Ray cluster answers ({str(error).partition(chr(10))[0]})"
            fix = "start one with `ray start --head`, which prints its address, or use `--ray auto`"
            raise ClusterError(what, where=address, fix=fix) from error
    try:
        yield functools.partial(run_on_cluster, cpus=threads or 1, gpus=device != "cpu")
    finally:
        if not was_running:
            ray.shutdown()


def _knock(address: str) -> None:
    """Raise OSError if nothing listens at the address; Ray alone would need a minute to notice."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError("an address is a name and a port, such as 10.0.0.7:6379")
    socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK).close()


@dataclass(eq=False)
class _Batch:
    """Photos that are worked on together; a photo whose worker died is alone with one from then on."""

    photos: Sequence[PhotoRef]
    load: int = 1  # of a worker's `AHEAD` places; one that is alone takes all
    deaths: int = 0  # workers that it has cost since it is alone


def run_on_cluster(
    photos: Sequence[PhotoRef],
    work: Work[Result],
    *,
    size: int,
    batch: int,
    progress: Progress = iter,
    cpus: int = 1,
    gpus: bool = True,
) -> Iterator[BatchResult[Result]]:
    """The executor of all workers that a running Ray has room for: results whenever a batch of them is done.

    Ray tells a worker its `cpus` by OMP_NUM_THREADS, so that it computes with as many threads. With `gpus`, workers get
    a GPU each where there are some; then there are as many as GPUs.
    """
    if not photos:
        return
    piece = min(batch, AT_ONCE)
    waiting = deque(_Batch(photos[start : start + piece]) for start in range(0, len(photos), piece))
    bar = iter(progress([photo.path for photo in photos]))
    results = BatchResult[Result]()
    pool = _WorkerPool(cpus, gpus, work, size)
    try:
        while waiting or pool.running:
            pool.grow(len(waiting))
            pool.submit(waiting)
            for result in pool.collect(waiting):
                results.made += result.made
                results.bad += result.bad
                for _ in itertools.islice(bar, len(result.made) + len(result.bad)):
                    pass  # the bar moves on
            if len(results.made) >= batch:
                yield results
                results = BatchResult()
        for _ in bar:
            pass
        yield results
    finally:
        for worker in [*pool.loads, *pool.starting.values()]:
            pool.kill(worker)


class _WorkerPool:
    """The workers of a job, and what each of them has to do."""

    def __init__(self, cpus: int, gpus: bool, work: Work[Any], size: int) -> None:
        self.ray, self.cpus, self.gpus, self.size = library("ray", "ray", "`--ray`"), cpus, gpus, size
        self.work = self.ray.put(work)
        self.starting: dict[Any, Any] = {}  # workers that are not ready yet, by the reference of their `ready` call
        self.running: dict[Any, tuple[Any, _Batch]] = {}  # worker and batch, by the reference of the call
        self.loads: dict[Any, int] = {}  # batches of each worker
        self.failures = 0  # to start, one after the other

    def grow(self, needed: int) -> None:
        """Start workers while the cluster has room and batches wait."""
        total = self.ray.cluster_resources()
        gpus = int(total.get("GPU", 0)) if self.gpus else 0
        cpus = self.cpus if not gpus else max(1, min(self.cpus, int(total.get("CPU", 1)) // gpus))
        room = gpus or max(1, int(total.get("CPU", 1)) // cpus)
        while len(self.loads) + len(self.starting) < min(room, needed + len(self.loads)):
            actor = self.ray.remote(num_cpus=cpus, num_gpus=min(gpus, 1), max_concurrency=AHEAD)(_Worker)
            worker = actor.remote(self.work, self.size, os.getcwd())  # noqa: PTH109
            self.starting[worker.ready.remote()] = worker

    def submit(self, waiting: deque[_Batch]) -> None:
        """Give waiting batches to the workers that have the fewest."""
        for load in range(AHEAD):
            for worker in [worker for worker, count in self.loads.items() if count == load]:
                if waiting and load + waiting[0].load <= AHEAD:
                    batch = waiting.popleft()
                    self.running[worker.run.remote(list(batch.photos))] = worker, batch
                    self.loads[worker] += batch.load

    def collect(self, waiting: deque[_Batch]) -> Iterator[BatchResult[Any]]:
        """Results that are ready. Batches of workers that died go back into `waiting`."""
        ready, rest = self.ray.wait([*self.running, *self.starting], num_returns=1, timeout=PATIENCE)
        also = self.ray.wait(rest, num_returns=len(rest), timeout=0)[0] if rest else []  # are written down with it
        for reference in [*ready, *also]:
            if reference in self.starting:
                self._finish_start(reference)
                continue
            worker, batch = self.running.pop(reference)
            try:
                result = self._get(reference)
            except self.ray.exceptions.RayTaskError:  # the work itself is wrong
                raise
            except self.ray.exceptions.RayError:
                self.kill(worker)
                yield from _retry(batch, waiting)
            else:
                if worker in self.loads:
                    self.loads[worker] -= batch.load
                yield result

    def _finish_start(self, reference: Any) -> None:
        worker = self.starting.pop(reference)
        try:
            self._get(reference)
        except self.ray.exceptions.RayActorError as error:
            self.kill(worker)
            self.failures += 1
            if self.failures >= STARTS:
                what = f"{self.failures} workers could not start, the last because {str(error).splitlines()[0]}"
                raise ClusterError(what, fix="see Ray's logs of that machine") from error
        else:
            self.failures = 0
            self.loads[worker] = 0

    def _get(self, reference: Any) -> Any:
        """The result of a remote call; an error of ours is raised as it was there."""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, SightlineError):
                raise error.cause from None
            raise

    def kill(self, worker: Any) -> None:
        self.loads.pop(worker, None)
        with contextlib.suppress(Exception):  # it may be gone already
            self.ray.kill(worker)


def _retry(batch: _Batch, waiting: deque[_Batch]) -> Iterator[BatchResult[Any]]:
    """Put the photos back, one by one. A photo that has cost `LIVES` workers is left out."""
    deaths = batch.deaths + (batch.load == AHEAD)
    if deaths < LIVES:
        waiting.extendleft(_Batch([photo], AHEAD, deaths) for photo in reversed(batch.photos))
        return
    what = f"{deaths} workers died when they looked at it"
    fix = "leave it out, or give workers more memory"
    yield BatchResult(bad=[(photo, DataError(what, where=photo.path, fix=fix)) for photo in batch.photos])


class _Worker:
    """Reads photos, and works on them: runs in a process of its own, perhaps on another machine."""

    def __init__(self, work: Work[Any], size: int, folder: str) -> None:
        with contextlib.suppress(OSError):
            os.chdir(folder)  # where relative paths lead to the same photos
        self.work, self.size = work, size
        self.turn = threading.Lock()

    def ready(self) -> None:
        """Return once the worker has started."""

    def run(self, photos: Sequence[PhotoRef]) -> BatchResult[Any]:
        """Read and work on a batch. Another call may read its batch meanwhile."""
        (result,) = run_locally(photos, self._work_in_turn, size=self.size, batch=len(photos))
        return result

    def _work_in_turn(self, photos: Sequence[Photo]) -> Sequence[Any]:
        with self.turn:
            return self.work(photos)
