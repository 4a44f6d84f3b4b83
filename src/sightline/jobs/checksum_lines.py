"""A text file that grows by whole lines, each the CRC-32 of the rest and JSON.

What a stopped run left of a line is cut off; lines that are damaged count for nothing.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sightline.files import PathLike, checksum
from sightline.vision.store_writer import AppendFile


class ChecksumLines(ABC):
    """Such a file, made if it is missing. Use it in a `with` block.

    One process at a time may hold it; whoever opens it sees to that.

    Attributes:
        is_new: whether there was no such file.
    """

    def __init__(self, path: PathLike) -> None:
        file = Path(path)
        self.is_new = not file.exists()
        raw = b"" if self.is_new else file.read_bytes()
        whole = raw.rfind(b"\n") + 1
        for line in raw[:whole].splitlines():
            crc, _, body = line.partition(b" ")
            if crc == b"%08x" % checksum(body):
                self._learn(json.loads(body))
        self._file = AppendFile(file, whole)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    @abstractmethod
    def _learn(self, row: Any) -> None:
        """Take what a line says; later lines come later."""

    def _write(self, row: Any) -> None:
        """Add a line: all of it or nothing."""
        body = json.dumps(row, separators=(",", ":"), allow_nan=False).encode("ascii")
        self._file.append(b"%08x %s\n" % (checksum(body), body))

    def flush(self) -> None:
        """Return when all it was given is safe, even from a power cut."""
        self._file.sync()
