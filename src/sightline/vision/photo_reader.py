"""Many photos to pixels, several at a time and in order; bad files never stop the rest."""

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from sightline.errors import SightlineError
from sightline.files import PathLike
from sightline.photo import Photo, Pixels
from sightline.vision.images import read_pixels

Progress = Callable[[Sequence[Any]], Iterable[Any]]  # of paths
AHEAD = 64  # photos that are read before they are asked for: 20 MB at 320 × 320


def read_batches(
    paths: Sequence[PathLike], size: int, batch: int, *, ids: Sequence[str] | None = None, progress: Progress = iter
) -> Iterator[list[tuple[int, Photo | SightlineError]]]:
    """Photos as they are read, at most `batch` of them together, in the order of their paths.

    Each is with its place among the paths; a file that cannot be read has its error in the place of a photo.

    Args:
        paths: of the photos.
        size: pixels of a side; photos are squashed to squares.
        batch: photos that come together. Errors do not count.
        ids: what the photos are called; by default as their paths are.
        progress: wraps the paths, and yields them all in their order: a progress bar.
    """
    names = [os.fspath(path) for path in paths] if ids is None else ids
    unread = iter(paths)
    reading: deque[Future[tuple[Pixels, tuple[int, int]]]] = deque()
    group: list[tuple[int, Photo | SightlineError]] = []
    photos = 0  # of the group
    with ThreadPoolExecutor(thread_name_prefix="photos") as readers:
        try:
            for place, _ in enumerate(progress(paths)):
                while len(reading) < AHEAD and (path := next(unread, None)) is not None:
                    reading.append(readers.submit(read_pixels, path, size))
                try:
                    pixels, photo_size = reading.popleft().result()
                    group.append((place, Photo(names[place], paths[place], pixels, photo_size)))
                    photos += 1
                except SightlineError as error:
                    group.append((place, error))
                if photos == batch or place == len(paths) - 1:
                    yield group
                    group, photos = [], 0
        finally:
            for future in reading:
                future.cancel()


def read_photos(
    paths: Sequence[PathLike], size: int, *, bad: Callable[[SightlineError], None], progress: Progress = iter
) -> Iterator[Photo]:
    """The photos that can be read, one by one; the error of each other one goes to `bad`."""
    for group in read_batches(paths, size, 1, progress=progress):
        for _, photo in group:
            if isinstance(photo, SightlineError):
                bad(photo)
            else:
                yield photo


def progress_bar(title: str) -> Progress:
    """A bar on standard error while photos are worked on; nothing where that is no terminal."""

    def track(paths: Sequence[PathLike]) -> Iterator[PathLike]:
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_terminal:
            yield from paths
            return
        with photo_bar(console) as bar:
            yield from bar.track(paths, description=title)

    return track


def photo_bar(console: Any) -> Any:
    """A bar of `rich`: how many photos are done, of how many, and the time that is left. It vanishes at its end.

    The time is what photos have taken so far, times those to come. Rich's own column looks at the last steps alone, and
    batches come all at once.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class TimeLeft(ProgressColumn):
        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            if not task.completed or task.elapsed is None or task.total is None:
                return Text("")
            seconds = task.elapsed * (task.total - task.completed) / task.completed
            return Text(f"{timedelta(seconds=math.ceil(seconds))} left")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeLeft())
    return Progress(*columns, console=console, transient=True)


def left_out(bad: Sequence[SightlineError]) -> str:
    """What to print at the end: how many files were left out, and why each.

    >>> from sightline.errors import ImageError
    >>> print(left_out([ImageError("the file is empty", where="a.jpg", fix="leave it out")]))
    1 file was left out:
      a.jpg: the file is empty. To fix: leave it out.
    """
    title = "1 file was left out:" if len(bad) == 1 else f"{len(bad):,} files were left out:"
    return "\n  ".join([title, *map(str, bad)])
