"""The ledger of a job: which photos are done, as what they were, and which could not be read.

A file of checked lines, one a batch: `[[id, bytes, time of last change, error], …]`. Later lines hold against earlier
ones. Photos of lines that are cut or damaged are worked on again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sightline.files import PathLike
from sightline.jobs.checksum_lines import ChecksumLines
from sightline.vision.object_storage import Mark


class Entry(NamedTuple):
    """What happened to a photo: its mark at that time, and what was wrong with it, "" where nothing was."""

    mark: Mark
    error: str = ""


class Ledger(ChecksumLines):
    """Entries by photo id. The sink it stands beside sees to it that one process at a time holds it."""

    def __init__(self, path: PathLike) -> None:
        self._entries: dict[str, Entry] = {}
        super().__init__(path)

    def __len__(self) -> int:
        """How many photos it knows."""
        return len(self._entries)

    def get(self, id: str) -> Entry | None:
        """What happened to a photo last; None if nothing yet."""
        return self._entries.get(id)

    def record(self, entries: Mapping[str, Entry]) -> None:
        """Write down what happened to some photos: all of it or nothing, and safe from a power cut on return."""
        if entries:
            self._write([[id, *entry.mark, entry.error] for id, entry in entries.items()])
            self.flush()
            self._entries.update(entries)

    def _learn(self, row: Any) -> None:
        self._entries.update({id: Entry((size, time), error) for id, size, time, error in row})
