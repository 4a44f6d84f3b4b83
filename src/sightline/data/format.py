"""How a file format introduces itself: recognise it, inspect it, read and write it. One `FORMAT` a reader file."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sightline.data.records import CaptionSet, Problems, SceneSource
from sightline.errors import DataError, about
from sightline.files import open_bytes, read_json
from sightline.scene import Scene

HEAD = 65536  # bytes by which a file is recognised


@dataclass(frozen=True)
class Probe:
    """A file or folder to be recognised; what is looked at is read once, and only when asked for."""

    path: Path

    @cached_property
    def name(self) -> str:
        """The file name in lower case, without a closing `.gz`."""
        return self.path.name.lower().removesuffix(".gz")

    @cached_property
    def is_folder(self) -> bool:
        return self.path.is_dir()

    @cached_property
    def entries(self) -> list[str]:
        """The sorted names in a folder ([] for a file)."""
        return sorted(p.name for p in self.path.iterdir()) if self.is_folder else []

    @cached_property
    def _start(self) -> tuple[bytes, DataError | None]:
        if self.is_folder:
            return b"", None
        try:
            with open_bytes(self.path) as file:
                return file.read(HEAD), None
        except DataError as error:
            return b"", error

    @property
    def head(self) -> bytes:
        """The first 64 KiB, gunzipped (b"" for a folder or an unreadable file; `damage` tells why)."""
        return self._start[0]

    @property
    def damage(self) -> DataError | None:
        """Why the file cannot be read at all, or None."""
        return self._start[1]

    @cached_property
    def text(self) -> str | None:
        """The head as text, or None if it is not UTF-8 text."""
        if self.is_folder or b"\0" in self.head:
            return None
        try:
            return self.head.decode("utf-8-sig")
        except UnicodeDecodeError as error:  # a character cut at the end of the head is still text
            return None if error.start < len(self.head) - 4 else self.head[: error.start].decode("utf-8-sig")

    @property
    def is_other_text(self) -> bool:
        """Whether this is text in another encoding than UTF-8, such as Latin-1: no byte is a control character."""
        return self.text is None and not self.is_folder and not re.search(rb"[\x00-\x08\x0e-\x1f]", self.head)

    @cached_property
    def lines(self) -> list[str]:
        """The whole lines of the head, at most 50 (the last, possibly cut, line is left out if there are others)."""
        lines = (self.text or "").splitlines()
        cut = len(lines) > 1 and len(self.head) == HEAD
        return (lines[:-1] if cut else lines)[:50]

    @cached_property
    def json_start(self) -> str:
        """`{` or `[` if the text opens like JSON, else ""."""
        start = (self.text or "").lstrip()[:1]
        return start if start in ("{", "[") else ""

    @cached_property
    def json(self) -> Any:
        """The parsed JSON or None. Parses the whole file: look at `json_start` and `has_key` first."""
        if not self.json_start:
            return None
        try:
            return read_json(self.path)
        except DataError:
            return None

    def has_any_key(self, *keys: str) -> bool:
        return any(map(self.has_key, keys))

    def has_key(self, *keys: str) -> bool:
        """Whether every key occurs as a JSON key (`"key":`) in the head: cheap, and true of damaged files too."""
        return all(re.search(rf'"{re.escape(key)}"\s*:', self.text or "") for key in keys)


@dataclass(frozen=True)
class Report:
    """What `sightline data inspect` tells about one file or folder."""

    path: str
    format: str
    about: str
    counts: dict[str, int | str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    problem_count: int = 0

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]


Summary = tuple[dict[str, int | str], Iterable[str]]  # counts, and notes


@dataclass(frozen=True)
class Format:
    """A format people have on disk. Readers are strict; `inspect` collects every problem instead of raising."""

    name: str  # what `--to` and reports call it
    about: str  # one sentence
    matches: Callable[[Probe], bool]  # must also say yes to damaged files of it
    survey: Callable[[Path, Problems], Summary]  # what a file holds; what is wrong with it goes to the problems
    scenes: Callable[[Path], SceneSource] | None = None  # where the format holds features
    captions: Callable[[Path], CaptionSet] | None = None  # where it holds captions
    # The same for one split, where that differs from picking it out of the whole:
    split_scenes: Callable[[Path, str], SceneSource] | None = None
    split_captions: Callable[[Path, str], CaptionSet] | None = None
    # Writers are atomic, and return how many records they wrote:
    write_scenes: Callable[[Path, Iterable[Scene]], int] | None = None
    write_captions: Callable[[Path, CaptionSet], int] | None = None
    keeps: tuple[str, ...] = ()  # the parts of a scene that `write_scenes` writes; `convert` says which are left out

    def inspect(self, path: Path) -> Report:
        """Counts, notes and problems; never raises a DataError for a file that `matches`."""
        problems = Problems(collect=True)
        summary: Summary = {}, ()
        with problems, about(path):
            summary = self.survey(path, problems)
        counts, notes = summary
        errors = tuple(map(str, problems.errors))
        return Report(str(path), self.name, self.about, counts, tuple(notes), errors, problems.total)
