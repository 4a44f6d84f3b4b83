"""What was said about photos, safe on disk: the sink of `sightline caption`, from which all its files are written.

A text file. The first line names what made the captions (model and settings); captions of another making are forgotten.
Then a line for each caption: the CRC-32 of the rest, and JSON, `[id, mark, name, caption]`, the caption as
`PhotoCaption.to_json` tells it, or null for one that no longer holds. Later lines hold against earlier ones. What a
stopped run left of a line, and lines that are damaged, count for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sightline.caption import PhotoCaption
from sightline.errors import DataError
from sightline.files import PathLike, checksum
from sightline.jobs.job_photos import id_of
from sightline.vision.store_writer import AppendFile


class CaptionLog:
    """Captions by photo id, in a file that is made if it is missing. Use it in a `with` block.

    Only places in the file are held in memory. One process at a time may write it: hold a lock.

    Attributes:
        forgot: captions that were there and were of another making.
    """

    def __init__(self, path: PathLike, made: str) -> None:
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        self.forgot = 0
        self._places: dict[str, tuple[int, int]] = {}
        self._marks: dict[str, str] = {}
        self._names: dict[str, str] = {}  # of dropped ones too, so that a photo keeps its name
        self._taken: set[str] = set()
        head = json.dumps({"made": made}).encode() + b"\n"
        whole, found = self._read(file)
        if whole and found != head:
            self.forgot, whole = len(self._places), 0
            self._places, self._marks = {}, {}
        self._file = AppendFile(file, whole)
        if not whole:
            self._file.append(head)
        self._reading = file.open("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._reading.close()
        self._file.close()

    def __len__(self) -> int:
        """How many captions it holds."""
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __contains__(self, id: object) -> bool:
        return id in self._places

    def __getitem__(self, id: str) -> dict[str, Any]:
        """The caption of a photo as JSON tells it."""
        start, size = self._places[id]
        self._reading.seek(start)
        row = _parse(self._reading.read(size))
        if row is None:
            raise DataError("this file has changed under our hands", where=self._file.path, fix="run it again")
        told: dict[str, Any] = row[3]
        return told

    def mark(self, id: str) -> str:
        """What its caption was made with, beside the photo; "" where nothing."""
        return self._marks.get(id, "")

    def name(self, id: str) -> str:
        """A name of a photo that no other has: that of its file, numbered where several are called so."""
        if id not in self._names:
            stem, count = Path(id).stem, 1
            while (name := stem if count == 1 else f"{stem}-{count}") in self._taken:
                count += 1
            self._names[id] = name
            self._taken.add(name)
        return self._names[id]

    def add(self, said: PhotoCaption, mark: str = "") -> None:
        """Take the caption of a photo."""
        id = id_of(said.path)
        line = _line([id, mark, self.name(id), said.to_json()])
        self._places[id] = self._file.append(line), len(line)
        self._marks[id] = mark

    def drop(self, ids: Iterable[str]) -> None:
        """Forget the captions of photos, as far as it has them."""
        for id in [id for id in ids if id in self._places]:
            self._file.append(_line([id, "", self.name(id), None]))
            del self._places[id]

    def flush(self) -> None:
        """Return when all it was given is safe."""
        self._file.sync()

    def _read(self, file: Path) -> tuple[int, bytes]:
        """Learn where the captions are; how many bytes are whole lines, and the first of them."""
        at, head = 0, b""
        if not file.exists():
            return at, head
        with file.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                if not at:
                    head = line
                elif (row := _parse(line)) is not None:
                    self._learn(row, at, len(line))
                at += len(line)
        return at, head

    def _learn(self, row: list[Any], start: int, size: int) -> None:
        id, mark, name, told = row
        self._names[id] = name
        self._taken.add(name)
        if told is None:
            self._places.pop(id, None)
        else:
            self._places[id], self._marks[id] = (start, size), mark


def _line(row: list[Any]) -> bytes:
    body = json.dumps(row, separators=(",", ":"), allow_nan=False).encode("ascii")
    return b"%08x %s\n" % (checksum(body), body)


def _parse(line: bytes) -> list[Any] | None:
    crc, _, body = line.rstrip(b"\n").partition(b" ")
    if crc != b"%08x" % checksum(body):
        return None
    row: list[Any] = json.loads(body)
    return row
