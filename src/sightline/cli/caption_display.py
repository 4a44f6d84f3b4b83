"""What `sightline caption` shows: a line a photo and below them how far it is; at the end, what was left out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from sightline.errors import SightlineError, printable

if TYPE_CHECKING:  # it brings numpy and Pillow, for which help need not wait
    from sightline.export.caption_tables import CaptionJson
    from sightline.files import PathLike
    from sightline.vision.photo_reader import Progress

STREAMS = ("csv", "jsonl", "json")  # tables that can go to standard output


@dataclass(eq=False)
class CaptionDisplay:
    """Lines on standard output. On a terminal a bar with counts and the time left stays below them. Use it in a `with`.

    The bar is on the terminal that the lines are on, or on standard error where they go to a file.
    """

    problems: list[SightlineError]  # of photos that are left out
    form: str = ""  # what standard output is to hold, one of `STREAMS`; "" for lines that people read
    quiet: bool = False
    boxes: bool = False  # whether the boxes of each caption are printed, too
    files: bool = False  # whether captions go to files, for which the work goes on though nobody reads the lines
    stdout: TextIO = field(default_factory=lambda: sys.stdout)  # as it is now: a bar takes its place
    count: int = 0  # captions that were shown
    pictures: list[Path] = field(default_factory=list)  # files that were drawn
    alike: int = 0  # captions that `--distinct` found alike
    changes: list[tuple[str, str, str]] = field(default_factory=list)  # those that it rewrote: path, before, after
    notes: list[str] = field(default_factory=list)  # further lines for the end
    _warnings: list[str] = field(default_factory=list)
    _bar: Any = None
    _task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def progress(self, title: str) -> Progress:
        """Wraps the paths of photos: starts a bar, which moves when `step` is called."""

        def wrap(paths: Sequence[PathLike]) -> Sequence[PathLike]:
            self.begin(title, len(paths))
            return paths

        return wrap

    def begin(self, title: str, total: int) -> None:
        """Show a bar for so many photos, in the place of any other."""
        from rich.console import Console

        from sightline.vision.photo_reader import photo_bar

        console = Console(file=self.stdout if self.stdout.isatty() else sys.stderr)
        if self.quiet or not console.is_terminal:
            return
        if self._bar is None:
            self._bar = photo_bar(console)
            self._bar.start()
        elif self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(title, total=total)

    def step(self) -> None:
        if self._bar is not None:
            self._bar.advance(self._task)

    def _print(self, text: str, file: TextIO) -> None:
        """Print a line, or several, above the bar; control characters must be escaped already."""
        if self._bar is not None and file is self._bar.console.file:
            self._bar.console.print(text, soft_wrap=True, markup=False, highlight=False, emoji=False)
            return
        try:
            print(text, file=file, flush=True)
        except BrokenPipeError:  # the reader, such as `head`, has seen enough
            if not self.files:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())

    def caption(self, record: CaptionJson) -> None:
        """Print what is said of a photo, on one line, and its boxes; a warning waits for the end."""
        from sightline.export.caption_tables import box_table

        self.count += 1
        if "warning" in record:
            self._warnings.append(f"{record['path']}: {record['warning']}")
        if not self.form and not self.quiet:
            self._print(printable(f"{record['path']}: {record['caption']}"), self.stdout)
        if self.boxes:
            self._print(box_table(record["words"]), sys.stderr if self.form else self.stdout)

    def print_data(self, records: Iterable[CaptionJson]) -> None:
        """Print captions in the `form` of standard output, each once it is made."""
        from sightline.export.caption_tables import TABLES

        rest = ""  # of a line that is not whole yet
        for piece in TABLES[self.form](records):
            lines, newline, rest = f"{rest}{piece}".rpartition("\n")
            if newline:
                self._print(lines, self.stdout)

    def end(self, photos: int) -> None:
        """Print what was left out of so many photos and why, what `--distinct` rewrote, and where the pictures are."""
        lines = [f"Warning: {printable(line)}." for line in self._warnings]
        if self.problems:
            from sightline.vision.photo_reader import left_out

            lines.insert(0, left_out(self.problems))
        elif not photos:
            lines.insert(0, "No photo was found there. To fix: name photos, or a folder that has some.")
        if not self.quiet:
            if self.alike:
                lines.append(f"{self.alike:,} captions were alike; rewritten: {len(self.changes):,}")
            lines += [printable(f"  {path}: {before} -> {after}") for path, before, after in self.changes]
            lines += self.notes
            if self.pictures:
                many = "1 picture is" if len(self.pictures) == 1 else f"{len(self.pictures):,} pictures are"
                lines.append(f"{many} in {printable(self.folder)}")
        for line in lines:
            print(line, file=sys.stderr)

    @property
    def folder(self) -> Path:
        """The folder that the pictures are in, or in folders of."""
        return Path(os.path.commonpath([picture.parent for picture in self.pictures]))
