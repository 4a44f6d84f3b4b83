"""What `sightline caption` shows while it works: a line a photo, and below them how far it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from sightline.errors import printable

if TYPE_CHECKING:  # it brings numpy and Pillow, for which help need not wait
    from sightline.files import PathLike
    from sightline.vision.photo_reader import Progress


class CaptionDisplay:
    """Lines on standard output. On a terminal a bar with counts and the time left stays below them. Use it in a `with`.

    The bar is on the terminal that the lines are on, or on standard error where they go to a file.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.stdout: TextIO = sys.stdout  # as it is now: a bar takes its place
        self.quiet = quiet
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def progress(self, title: str, *, by_path: bool = False) -> Progress:
        """What wraps the paths of photos: the bar begins with the first of them.

        It goes on when `step` is called; with `by_path`, when the next path is asked for.
        """

        def wrap(paths: Sequence[PathLike]) -> Iterator[PathLike]:
            self._begin(title, len(paths))
            for path in paths:
                yield path
                if by_path:
                    self.step()

        return iter if self.quiet else wrap

    def _begin(self, title: str, total: int) -> None:
        from rich.console import Console

        from sightline.vision.photo_reader import photo_bar

        console = Console(file=self.stdout if self.stdout.isatty() else sys.stderr)
        if not console.is_terminal:
            return
        if self._bar is None:
            self._bar = photo_bar(console)
            self._bar.start()
        elif self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(title, total=total)

    def step(self) -> None:
        """One photo more is done."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def print(self, text: str, file: TextIO | None = None) -> None:
        """Print a line, or several, above the bar; control characters must be escaped already."""
        target = file or self.stdout
        if self._bar is not None and target is self._bar.console.file:
            self._bar.console.print(text, soft_wrap=True, markup=False, highlight=False, emoji=False)
        else:
            print(text, file=target, flush=True)

    def caption(self, path: str, caption: str) -> None:
        """Print what is said of a photo, on one line."""
        if not self.quiet:
            self.print(printable(f"{path}: {caption}"))
