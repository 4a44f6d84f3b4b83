"""The one resumable map over photos: read, batch, work, keep, write down.

    photos ─► those not done, or changed ─► read in threads ─► batches ─► work ─► sink, then ledger

A batch is in the ledger only once it is safe in the sink. Whatever stops a run, the next one does that batch again, and
no other: results that the ledger does not know are dropped first, so none is there twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from sightline.errors import ConfigError, CountError, SightlineError
from sightline.jobs.ledger import Entry, Ledger
from sightline.jobs.photos import LoadedPhoto, Photo
from sightline.vision.reading import Progress, read_photos

Result = TypeVar("Result")
Kept = TypeVar("Kept", contravariant=True)
Work = Callable[[Sequence[LoadedPhoto]], Sequence[Result]]
"""From a batch of photos to a result for each; picklable, so that other processes and machines can do it."""


class Sink(Protocol[Kept]):
    """Where results go: open to one writer at a time, and for results of one making."""

    def __contains__(self, id: object) -> bool:
        """Whether it has the result of a photo."""

    def add(self, result: Kept) -> None:
        """Take a result, of a photo that it has none of."""

    def drop(self, ids: Iterable[str]) -> None:
        """Forget the results of photos, as far as it has them."""

    def flush(self) -> None:
        """Return when all it was given is safe."""


@dataclass
class Report:
    """What a run did.

    Attributes:
        photos: how many were listed.
        made: results of this run.
        kept: photos that were done before and have not changed.
        bad: why each of the others has no result.
        news: those of `bad` that no run before has told.
    """

    photos: int = 0
    made: int = 0
    kept: int = 0
    bad: list[SightlineError] = field(default_factory=list)
    news: list[SightlineError] = field(default_factory=list)


def run(
    photos: Sequence[Photo],
    work: Work[Result],
    sink: Sink[Result],
    ledger: Ledger,
    *,
    size: int,
    batch: int,
    progress: Progress = iter,
) -> Report:
    """Do what is not done; files that cannot be read are left out, and tried again by the next run.

    Args:
        photos: each id once.
        work: is given at most `batch` photos.
        sink: takes the results, in the order of the photos.
        ledger: of this sink. One that is new believes that what is in the sink was made of the photos as they are.
        size: photos are squashed to squares of so many pixels.
        batch: photos that are worked on together, and that a kill can cost.
        progress: wraps the paths of the photos that are worked on: a progress bar.
    """
    if batch < 1:
        raise ConfigError(f"`batch` is {batch}", fix="give 1 or more")
    if ledger.is_new:
        ledger.record({photo.id: Entry(photo.mark) for photo in photos if photo.id in sink})
    waiting = [photo for photo in photos if photo.id not in sink or ledger.get(photo.id) != Entry(photo.mark)]
    sink.drop(photo.id for photo in waiting)
    report, bad = Report(len(photos), kept=len(photos) - len(waiting)), dict[Photo, SightlineError]()
    for group in _batches(_loaded(waiting, size, progress, bad), batch):
        results = work([photo for _, photo in group])
        if len(results) != len(group):
            raise CountError(f"{len(results)} results of {len(group)} photos", fix="give one for each, in their order")
        for result in results:
            sink.add(result)
        sink.flush()
        ledger.record({photo.id: Entry(photo.mark) for photo, _ in group})
        report.made += len(group)
    _note(report, bad, ledger)
    return report


def _loaded(
    waiting: Sequence[Photo], size: int, progress: Progress, bad: dict[Photo, SightlineError]
) -> Iterator[tuple[Photo, LoadedPhoto]]:
    """The photos that can be read, in order; the errors of the others go to `bad`."""
    by_path = {photo.path: photo for photo in waiting}
    at = Path()

    def watched(paths: Sequence[Path]) -> Iterator[Path]:
        nonlocal at
        for path in progress(paths):
            at = path
            yield path

    def refuse(error: SightlineError) -> None:
        bad[by_path[at]] = error

    for read in read_photos(list(by_path), size, bad=refuse, progress=watched):
        photo = by_path[read.path]
        yield photo, LoadedPhoto(photo.id, read.path, read.pixels, read.size)


def _batches(photos: Iterable[tuple[Photo, LoadedPhoto]], size: int) -> Iterator[Sequence[tuple[Photo, LoadedPhoto]]]:
    coming = iter(photos)
    while group := list(itertools.islice(coming, size)):
        yield group


def _note(report: Report, bad: dict[Photo, SightlineError], ledger: Ledger) -> None:
    """Tell what could not be read, and write down that it was told."""
    entries = {photo.id: Entry(photo.mark, error.what) for photo, error in bad.items()}
    fresh = {id: entry for id, entry in entries.items() if ledger.get(id) != entry}
    report.bad = list(bad.values())
    report.news = [error for photo, error in bad.items() if photo.id in fresh]
    ledger.record(fresh)
