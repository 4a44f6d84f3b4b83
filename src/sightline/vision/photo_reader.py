"""Many photos to pixels, several at a time and in order; bad files are told and never stop the rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sightline.errors import SightlineError
from sightline.files import PathLike
from sightline.vision.pixels import Pixels, read_pixels

AnyPath = TypeVar("AnyPath", bound=PathLike)
Progress = Callable[[Sequence[Any]], Iterable[Any]]  # of paths
AHEAD = 64  # photos that are read before they are asked for: 20 MB at 320 × 320


@dataclass(frozen=True, eq=False)
class PhotoRead(Generic[AnyPath]):
    """A photo that was read: where it is, (size, size, 3) pixels, and its upright width and height."""

    path: AnyPath
    pixels: Pixels
    size: tuple[int, int]


def read_photos(
    paths: Sequence[AnyPath],
    size: int,
    *,
    bad: Callable[[SightlineError], None],
    progress: Progress = iter,
    threads: int | None = None,
    max_pixels: int | None = None,
) -> Iterator[PhotoRead[AnyPath]]:
    """The photos that can be read, in the order of their paths; the error of each other one goes to `bad`.

    Args:
        paths: of the photos.
        size: pixels of a side; photos are squashed to squares.
        bad: is given the error of a file that cannot be read, for example `errors.append`.
        progress: wraps the paths, and yields them all in their order: a progress bar.
        threads: that read; by default some more than there are processors.
        max_pixels: the most that a photo may declare.
    """
    coming, reading = iter(paths), deque[tuple[AnyPath, Future[tuple[Pixels, tuple[int, int]]]]]()
    with ThreadPoolExecutor(threads, thread_name_prefix="photos") as readers:
        try:
            for _ in progress(paths):
                while len(reading) < AHEAD and (path := next(coming, None)) is not None:
                    reading.append((path, readers.submit(read_pixels, path, size, max_pixels=max_pixels)))
                path, future = reading.popleft()
                try:
                    pixels, full = future.result()
                except SightlineError as error:
                    bad(error)
                else:
                    yield PhotoRead(path, pixels, full)
        finally:
            for _, future in reading:
                future.cancel()


def progress_bar(title: str) -> Progress:
    """A bar on standard error while photos are worked on; nothing where that is no terminal."""

    def bar(paths: Sequence[PathLike]) -> Iterable[PathLike]:
        from rich.console import Console
        from rich.progress import track

        console = Console(stderr=True)
        return track(paths, title, console=console, transient=True, disable=not console.is_terminal)

    return bar


def left_out(bad: Sequence[SightlineError]) -> str:
    """What to print at the end: how many files were left out, and why each.

    >>> from sightline.errors import ImageError
    >>> print(left_out([ImageError("the file is empty", where="a.jpg", fix="leave it out")]))
    1 file was left out:
      a.jpg: the file is empty. To fix: leave it out.
    """
    many = "1 file was" if len(bad) == 1 else f"{len(bad):,} files were"
    return "\n  ".join([f"{many} left out:", *map(str, bad)])
