"""The one resumable map over photos: read, batch, work, keep, write down.

    photos ─► those not done, or changed ─► read in threads ─► batches ─► work ─► sink, then ledger
                                           └── executor: this process, or a cluster ─┘

A batch is in the ledger only once it is safe in the sink. Whatever stops a run, the next one does that batch again, and
no other: results that the ledger does not know are dropped first, so none is there twice.
"""

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from sightline.errors import ConfigError, CountError, SightlineError
from sightline.files import hold_interrupts
from sightline.jobs.job_photos import GONE, PhotoRef
from sightline.jobs.ledger import Entry, Ledger
from sightline.photo import Photo
from sightline.vision.photo_reader import Progress, left_out, read_batches

Result = TypeVar("Result")
SinkResult = TypeVar("SinkResult", contravariant=True)
Work = Callable[[Sequence[Photo]], Sequence[Result]]
"""From a batch of photos to a result for each; picklable, so that other processes and machines can do it."""

MOST_WORKERS = 4  # batches that are worked on at once: with more, Python's own part of the work takes turns


class Sink(Protocol[SinkResult]):
    """Where results are stored. One writer at a time has it open, and all results are of one model and its settings."""

    def __contains__(self, id: object) -> bool:
        """True if the result of the photo is stored."""

    def add(self, result: SinkResult) -> None:
        """Store a result. The photo must have none yet."""

    def drop(self, ids: Iterable[str]) -> None:
        """Remove the results of photos; photos without one are ignored."""

    def flush(self) -> None:
        """Wait until all results are on disk."""


@dataclass
class BatchResult(Generic[Result]):
    """The results of a batch of photos, and the errors of photos that could not be read."""

    made: list[tuple[PhotoRef, Result]] = field(default_factory=list)
    bad: list[tuple[PhotoRef, SightlineError]] = field(default_factory=list)


Executor = Callable[..., Iterator[BatchResult[Any]]]
"""Reads photos and works on them: `run_locally` in this process, `run_on_cluster` on others; batches in any order."""


@dataclass
class Report:
    """What a run did."""

    photos: int = 0  # how many were listed
    made: int = 0  # results of this run
    kept: int = 0  # photos that were done before and have not changed
    bad: list[SightlineError] = field(default_factory=list)  # why each of the others has no result
    news: list[SightlineError] = field(default_factory=list)  # those of `bad` that no earlier run has reported

    def to_json(self, seconds: float) -> dict[str, Any]:
        """Counts, duration, and each file that was left out."""
        new = {id(error) for error in self.news}
        bad = [
            {"path": error.where, "error": error.what, "fix": error.fix, "new": id(error) in new} for error in self.bad
        ]
        counts = {name: value for name, value in vars(self).items() if name not in ("bad", "news")}
        return {**counts, "seconds": round(seconds, 3), "bad": bad}

    def print_problems(self) -> None:
        """Print to standard error which files were left out and why. Each is listed once, unless it changes."""
        if self.news:
            print(left_out(self.news), file=sys.stderr)
        if before := len(self.bad) - len(self.news):
            which = "1 file reported before is" if before == 1 else f"{before:,} files reported before are"
            print(f"{which} still left out; --json lists all", file=sys.stderr)
        if not self.photos:
            print("No photo was found there. To fix: name a folder that has some.", file=sys.stderr)


def run_locally(
    photos: Sequence[PhotoRef],
    work: Work[Result],
    *,
    size: int,
    batch: int,
    progress: Progress = iter,
    device: str | None = None,
    loaded: bool = False,
) -> Iterator[BatchResult[Result]]:
    """The executor of this process: photos are read in threads while others are worked on; batches come in order.

    Where the work computes on a CPU, which `device` says, several batches are worked on at once, with a share of
    PyTorch's threads each: threads of one batch wait for each other after every product, those of two never do. The
    first batch is worked on alone, since it may load a model, unless that is `loaded`. Otherwise there is one batch at
    a time.
    """
    paths, ids = [ref.path for ref in photos], [ref.id for ref in photos]
    groups = read_batches(paths, size, batch, ids=ids, progress=progress)
    for first in itertools.islice(groups, 0 if loaded else 1):
        yield _work_on(photos, first, work)
    threads = _threads(device)
    workers = min(MOST_WORKERS, threads)
    if workers == 1:
        for group in groups:
            yield _work_on(photos, group, work)
        return
    import torch

    waiting = deque[Future[BatchResult[Result]]]()
    with ThreadPoolExecutor(workers, "work", torch.set_num_threads, (threads // workers,)) as pool:
        try:
            for group in groups:
                waiting.append(pool.submit(_work_on, photos, group, work))
                if len(waiting) > workers:  # one more than are worked on, so that none waits for the results' sink
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            torch.set_num_threads(threads)  # which threads that begin later have too


def _work_on(
    photos: Sequence[PhotoRef], group: Sequence[tuple[int, Photo | SightlineError]], work: Work[Result]
) -> BatchResult[Result]:
    """The results of one batch of `read_batches`: places in `photos`, each with the photo or its error."""
    good = [(photos[at], photo) for at, photo in group if isinstance(photo, Photo)]
    results = work([photo for _, photo in good]) if good else ()
    if len(results) != len(good):
        raise CountError(f"{len(results)} results of {len(good)} photos", fix="give one for each, in their order")
    bad = [(photos[at], error) for at, error in group if isinstance(error, SightlineError)]
    return BatchResult([(ref, result) for (ref, _), result in zip(good, results, strict=True)], bad)


def _threads(device: str | None) -> int:
    """The number of PyTorch's threads if the work runs on a CPU, else 1."""
    if device is None:
        return 1
    import torch

    from sightline.devices import choose_device

    return torch.get_num_threads() if choose_device(device).type == "cpu" else 1


def run(
    photos: Sequence[PhotoRef],
    work: Work[Result],
    sink: Sink[Result],
    ledger: Ledger,
    *,
    size: int | Callable[[], int],
    batch: int,
    progress: Progress = iter,
    executor: Executor = run_locally,
    problems: Sequence[SightlineError] = (),
) -> Report:
    """Work on the photos that have no result yet. Files that cannot be read are left out; the next run tries again.

    Args:
        photos: each id once.
        work: is given at most `batch` photos.
        sink: takes the results, batch by batch as they are done.
        ledger: of this sink.
        size: photos are squashed to squares of so many pixels. A function is called only if there is work to do.
        batch: photos that are worked on together, and that a kill can cost each who works.
        progress: wraps the paths of the photos that are worked on: a progress bar.
        executor: who works: this process, or a cluster (`sightline.jobs.cluster`). Sink and ledger stay here.
        problems: the errors of what could not be listed, which are reported like those of photos.
    """
    if batch < 1:
        raise ConfigError(f"`batch` is {batch}", fix="give 1 or more")
    if ledger.is_new:  # what is in the sink is taken as made of the photos as they are now
        ledger.record({photo.id: Entry(photo.mark) for photo in photos if photo.id in sink})
    todo = [photo for photo in photos if photo.id not in sink or ledger.get(photo.id) != Entry(photo.mark)]
    sink.drop(photo.id for photo in todo)
    report = Report(len(photos), kept=len(photos) - len(todo))
    errors: dict[PhotoRef, SightlineError] = {}
    pixels = size() if callable(size) and todo else size
    for result in executor(todo, work, size=pixels, batch=batch, progress=progress) if todo else ():
        with hold_interrupts():  # a batch is stored and written down, or neither: the next run counts what there is
            for _, stored in result.made:
                sink.add(stored)
            if result.made:
                sink.flush()
            ledger.record({photo.id: Entry(photo.mark) for photo, _ in result.made})
            report.made += len(result.made)
        errors.update(result.bad)
    bad = [(str(error.where), Entry(GONE, error.what), error) for error in problems]
    bad += [(photo.id, Entry(photo.mark, errors[photo].what), errors[photo]) for photo in todo if photo in errors]
    new = {id: entry for id, entry, _ in bad if ledger.get(id) != entry}
    report.bad = [error for _, _, error in bad]
    report.news = [error for id, _, error in bad if id in new]
    ledger.record(new)
    return report
