"""The ledger of a job: which photos are done, as what they were, and which could not be read.

A text file of one line a batch: the CRC-32 of the rest, and JSON, `[[id, bytes, time of last change, error], …]`. Later
lines hold against earlier ones. What a stopped run left of a line, and lines that are damaged, count for nothing: their
photos are worked on again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from sightline.files import PathLike, checksum
from sightline.jobs.photos import Mark
from sightline.vision.store_writer import AppendFile


class Entry(NamedTuple):
    """What happened to a photo: its mark at that time, and what was wrong with it, "" where nothing was."""

    mark: Mark
    error: str = ""


class Ledger:
    """Entries by photo id, in a file that is made if it is missing. Use it in a `with` block.

    One process at a time may hold it; the sink it stands beside sees to that.

    Attributes:
        is_new: whether there was no such file.
    """

    def __init__(self, path: PathLike) -> None:
        file = Path(path)
        self.is_new = not file.exists()
        raw = b"" if self.is_new else file.read_bytes()
        whole = raw.rfind(b"\n") + 1
        self._entries: dict[str, Entry] = {}
        for line in raw[:whole].splitlines():
            self._entries.update(_parse(line))
        self._file = AppendFile(file, whole)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        """How many photos it knows."""
        return len(self._entries)

    def get(self, id: str) -> Entry | None:
        """What happened to a photo last; None if nothing yet."""
        return self._entries.get(id)

    def record(self, entries: Mapping[str, Entry]) -> None:
        """Write down what happened to some photos: all of it or nothing, and safe from a power cut on return."""
        if entries:
            self._file.append(_line(entries))
            self._file.sync()
            self._entries.update(entries)


def _line(entries: Mapping[str, Entry]) -> bytes:
    rows = [[id, *entry.mark, entry.error] for id, entry in entries.items()]
    body = json.dumps(rows, separators=(",", ":")).encode("ascii")
    return b"%08x %s\n" % (checksum(body), body)


def _parse(line: bytes) -> dict[str, Entry]:
    crc, _, body = line.partition(b" ")
    if crc != b"%08x" % checksum(body):
        return {}
    return {id: Entry((size, time), error) for id, size, time, error in json.loads(body)}
