"""Files of a job that grow by whole lines, each the CRC-32 of the rest and JSON: the ledger, and logs of results.

What a stopped run left of a line is cut off; lines that are damaged count for nothing. Later lines hold against earlier
ones. So a kill costs at most the batch that was being written, and damage only the photos whose lines it hit.
"""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Self

from sightline.caption import PhotoCaption
from sightline.errors import DataError
from sightline.files import AppendFile, PathLike, checksum
from sightline.jobs.job_photos import id_of
from sightline.vision.object_storage import Mark


class ChecksumLines(ABC):
    """A file of such lines, made if it is missing. Only one process at a time may hold it: the caller must lock it."""

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.is_new = not self.path.exists()
        self._file = AppendFile(self.path, 0 if self.is_new else self._read())

    def _read(self) -> int:
        """Read the lines, and return how many bytes of whole lines there are."""
        start = 0
        with self.path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                if (row := _parse(line)) is not None:
                    self._learn(row, start, len(line))
                start += len(line)
        return start

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @abstractmethod
    def _learn(self, row: Any, start: int, size: int) -> None:
        """Take in the row of a line, which has `size` bytes from `start`. Lines come in their order."""

    def _write(self, row: Any) -> tuple[int, int]:
        """Append a line, whole or not at all; return its start and size in bytes."""
        body = json.dumps(row, separators=(",", ":"), allow_nan=False).encode("ascii")
        line = b"%08x %s\n" % (checksum(body), body)
        return self._file.append(line), len(line)

    def flush(self) -> None:
        self._file.sync()


def _parse(line: bytes) -> Any:
    crc, _, body = line.rstrip(b"\n").partition(b" ")
    return json.loads(body) if crc == b"%08x" % checksum(body) else None


class Entry(NamedTuple):
    """What happened to a photo: its mark at that time, and what was wrong with it, "" where nothing was."""

    mark: Mark
    error: str = ""


class Ledger(ChecksumLines):
    """Which photos are done, and which could not be read; a line a batch: `[[id, bytes, time of change, error], …]`."""

    def __init__(self, path: PathLike) -> None:
        self._entries: dict[str, Entry] = {}
        super().__init__(path)

    def get(self, id: str) -> Entry | None:
        return self._entries.get(id)

    def record(self, entries: Mapping[str, Entry]) -> None:
        """Write entries as one line, whole or not at all. They are on disk on return."""
        if entries:
            self._write([[id, *entry.mark, entry.error] for id, entry in entries.items()])
            self.flush()
            self._entries.update(entries)

    def _learn(self, row: Any, start: int, size: int) -> None:
        self._entries.update({id: Entry((size, time), error) for id, size, time, error in row})


class FileRecord(NamedTuple):
    """What is in a file that Sightline wrote."""

    photo: str = ""  # the id of the photo that a picture shows; "" for a table
    caption: str = ""  # the fingerprint of the caption that a picture shows; "" while it is written


class FileLedger(ChecksumLines):
    """The files of a folder that Sightline wrote, by name: no other may be replaced. A line each, the latest holds:
    `[name, photo, caption]`, or `[name]` for one that is no longer there. The first line lists, in the same form, those
    that were there before the ledger was.
    """

    has_lines = False

    def __init__(self, path: PathLike, folder: Path) -> None:
        self.folder = folder
        self._records: dict[str, FileRecord] = {}
        super().__init__(path)
        for name in [name for name in self if not self._exists(name)]:  # whoever puts a file there wrote it
            self._write([name])
            del self._records[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def __getitem__(self, name: str) -> FileRecord:
        return self._records[name]

    def is_foreign(self, name: str) -> bool:
        """True if there is a file of that name, and Sightline did not write it."""
        return name not in self and self._exists(name)

    def adopt(self, files: Mapping[str, FileRecord]) -> None:
        """Begin with files that are Sightline's though no ledger tells: one line, whole or not at all."""
        self._records.update(files)
        self._write([[name, *record] for name, record in files.items()])
        self.flush()
        self.has_lines = True

    def record(self, name: str, photo: str = "", caption: str = "") -> None:
        """Write down that a file is Sightline's: before it is written, since a kill may come in between."""
        self._records[name] = FileRecord(photo, caption)
        self._write([name, photo, caption])

    def _exists(self, name: str) -> bool:
        return os.path.lexists(self.folder / name)

    def _learn(self, row: Any, start: int, size: int) -> None:
        self.has_lines = True
        if not row or isinstance(row[0], list):
            self._records.update((name, FileRecord(*rest)) for name, *rest in row)
            return
        name, *rest = row
        if rest:
            self._records[name] = FileRecord(*rest)
        else:
            self._records.pop(name, None)


class RecordLog(ChecksumLines):
    """JSON by photo id, a line each: `[id, record]`. Dropped ones are about to be made again."""

    def __init__(self, path: PathLike) -> None:
        self.records: dict[str, Any] = {}
        super().__init__(path)

    def __contains__(self, id: object) -> bool:
        return id in self.records

    def add(self, result: tuple[str, Any]) -> None:
        self._write(result)
        self.records.update([result])

    def drop(self, ids: Iterable[str]) -> None:
        for id in ids:
            self.records.pop(id, None)

    def _learn(self, row: Any, start: int, size: int) -> None:
        self.records.update([row])


class CaptionLog(ChecksumLines):
    """Captions by photo id: the sink of `sightline caption`, from which all its files are written.

    The first line, which has no checksum, names what made the captions (model and settings); captions of another making
    are forgotten. Then a line for each caption: `[id, mark, name, caption]`, the caption as `PhotoCaption.to_json` has
    it, or null for one that no longer holds. Only places in the file are held in memory. `top` is the folder or address
    from which photos get their names, see `name`.
    """

    def __init__(self, path: PathLike, maker: str, top: str = "") -> None:
        self.top = top
        self.forgot = 0  # captions that were there and were of another making
        self._head = json.dumps({"made": maker}).encode() + b"\n"
        self._places: dict[str, tuple[int, int, str]] = {}  # start and size of each line, and the mark in it
        self._names: dict[str, str] = {}  # of dropped ones too, so that a photo keeps its name
        self._taken: set[str] = set()
        super().__init__(path)
        if not self._file.end:
            self._file.append(self._head)
        self._reading = self.path.open("rb")

    def _read(self) -> int:
        size = super()._read()
        with self.path.open("rb") as file:
            if file.readline() == self._head:
                return size
        self.forgot = len(self._places)
        self._places = {}
        return 0

    def __exit__(self, *_: object) -> None:
        self._reading.close()
        super().__exit__()

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __contains__(self, id: object) -> bool:
        return id in self._places

    def __getitem__(self, id: str) -> dict[str, Any]:
        """The caption of a photo as JSON tells it."""
        start, size, _ = self._places[id]
        self._reading.seek(start)
        row = _parse(self._reading.read(size))
        if row is None:
            raise DataError("this file was changed by something else", where=self.path, fix="run the command again")
        caption: dict[str, Any] = row[3]
        return caption

    def mark(self, id: str) -> str:
        """The mark that the caption was added with; "" without one."""
        return self._places[id][2] if id in self._places else ""

    def names(self) -> Iterable[tuple[str, str]]:
        """The id and name of every photo that has, or had, a caption here."""
        return self._names.items()

    def name(self, id: str) -> str:
        """A unique name: the photo's path below `top`, without its ending, numbered where several photos share it."""
        if id not in self._names:
            stem, count = name_below(id, self.top), 1
            while (name := stem if count == 1 else f"{stem}-{count}") in self._taken:
                count += 1
            self._names[id] = name
            self._taken.add(name)
        return self._names[id]

    def add(self, caption: PhotoCaption, mark: str = "") -> None:
        id = id_of(caption.path)
        self._places[id] = *self._write([id, mark, self.name(id), caption.to_json()]), mark

    def drop(self, ids: Iterable[str]) -> None:
        for id in [id for id in ids if id in self._places]:
            self._write([id, "", self.name(id), None])
            del self._places[id]

    def _learn(self, row: Any, start: int, size: int) -> None:
        id, mark, name, caption = row
        self._names[id] = name
        self._taken.add(name)
        if caption is None:
            self._places.pop(id, None)
        else:
            self._places[id] = start, size, mark


def name_below(id: str, top: str) -> str:
    """The path of a photo from a folder or address on, without its ending; its stem where it is not below it.

    >>> name_below("/photos/2019/cat.jpg", "/photos"), name_below("/elsewhere/cat.jpg", "/photos")
    ('2019/cat', 'cat')
    """
    if os.name == "nt":
        id, top = id.replace("\\", "/"), top.replace("\\", "/")
    folder = top.rstrip("/") + "/"
    if top and id.startswith(folder):
        return str(PurePosixPath(id.removeprefix(folder)).with_suffix(""))
    return Path(id).stem
