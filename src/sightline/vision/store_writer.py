"""Adding scenes to a feature store: whole records or nothing, one writer at a time, resumable."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from sightline.errors import ConfigError, DataError, DuplicateRecordError
from sightline.files import atomic_write, checksum, sync_folder
from sightline.scene import Scene
from sightline.vision.store_layout import (
    ALIGN,
    DTYPES,
    INDEX,
    LOCK,
    SETTINGS,
    Entry,
    Index,
    Settings,
    encode,
    index_line,
    shard_name,
)

SHARD_BYTES = 1 << 30
FLUSH_EVERY = 64


class AppendFile:
    """A file that grows by whole pieces: a write that fails half-way is cut off again."""

    def __init__(self, path: Path, end: int | None = None) -> None:
        """Open `path` for appending, cutting it to `end` bytes where given."""
        self.path = path
        self._file = path.open("ab", buffering=0)
        if end is not None:
            self._file.truncate(end)
        self.end = self._file.seek(0, os.SEEK_END)

    def append(self, data: bytes) -> int:
        """Write `data` and return the offset it starts at."""
        start, rest = self.end, memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except BaseException as error:
            self._file.truncate(start)
            if isinstance(error, OSError):
                raise _unwritable(self.path, error) from error
            raise
        self.end = start + len(data)
        return start

    def sync(self) -> None:
        """Wait until the disk holds what was appended; a DataError where the file was deleted meanwhile."""
        try:
            os.fsync(self._file.fileno())
            links = os.fstat(self._file.fileno()).st_nlink
        except OSError as error:
            raise _unwritable(self.path, error) from error
        if not links:
            raise DataError(
                "this was deleted while it was written to", where=self.path, fix="run the same command again"
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"cannot write: {error.strerror}",
        where=path,
        fix="make room (or check the disk) and run the same command again: finished records are kept",
    )


def prepare(folder: Path, fingerprint: str, dtype: str | None) -> Settings:
    """The settings of the store in `folder`, which is made if it is missing; a store of another making is refused."""
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"a store cannot hold {dtype!r}", fix=f"choose one of {', '.join(DTYPES)}")
    if not (folder / SETTINGS).exists():
        (folder / INDEX).touch()  # before the settings: a folder with settings always has an index
        Settings(dtype or DTYPES[0], fingerprint).write(folder)
    settings = Settings.read(folder)
    if settings.fingerprint != fingerprint:
        raise _other_maker(settings.fingerprint, fingerprint, str(folder))
    if dtype not in (None, settings.dtype):
        raise DataError(
            f"the store holds {settings.dtype}, and {dtype} was asked for",
            where=folder,
            fix=f"write to another folder, or leave dtype out to go on in {settings.dtype}",
        )
    return settings


def refuse_foreign(folder: Path) -> None:
    """Refuse to make a store in a folder that already holds something else."""
    if folder.exists() and not folder.is_dir():
        raise DataError("this is a file, and a store is a folder", where=folder, fix="name another folder")
    names = {p.name for p in folder.iterdir()} if folder.exists() else set()
    ours = {n for n in names if n in (LOCK, INDEX) or n.startswith(f".{SETTINGS}.")}  # a writer stopped at once
    if SETTINGS not in names and names - ours:
        raise DataError(
            f"the folder is not a feature store and is not empty (it holds {min(names - ours)})",
            where=folder,
            fix="name a new folder",
        )


def replace_index(folder: Path, entries: Iterable[Entry]) -> None:
    """Write an index of these records alone, in place of the one there."""
    with atomic_write(folder / INDEX) as file:
        rest = iter(entries)
        while batch := list(itertools.islice(rest, FLUSH_EVERY)):
            file.write(index_line(batch))


def _other_maker(held: str, offered: str, where: str) -> DataError:
    return DataError(
        f"the store's scenes were made by {held or '(unknown)'}, and what is offered was made by "
        f"{offered or '(unknown)'}: one store holds the scenes of one vision model and box rule",
        where=where,
        fix="write to another folder, or extract with the model that made the store",
    )


class StoreWriter:
    """Adds scenes to a store. Made by `FeatureStore.writer`; `id in writer` tells what is there already.

    A record is safe, even from a power cut, once `flush` returns. `add` calls it after every `flush_every` records and
    the end of the `with` block calls it too, so a killed process loses at most the last `flush_every` records.
    """

    def __init__(self, folder: Path, settings: Settings, flush_every: int, shard_bytes: int) -> None:
        self.path = folder
        self.settings = settings
        self._flush_every = flush_every
        self._shard_bytes = shard_bytes
        index = Index.read(folder).refuse_damage()
        self._held = {id: (entry.size, entry.crc) for id, entry in index.entries.items()}
        self._pending: list[Entry] = []
        self._index = AppendFile(folder / INDEX, index.end)
        self._shard = max((int(p.stem[5:]) for p in folder.glob("data-*.bin")), default=0)
        self._data = self._open_shard()

    def __contains__(self, id: object) -> bool:
        return id in self._held

    def __len__(self) -> int:
        """How many scenes the store holds, those not yet flushed included."""
        return len(self._held)

    def add(self, scene: Scene) -> None:
        """Append `scene`; an id that is there already, or a scene of another fingerprint, is refused."""
        if scene.id in self._held:
            raise DuplicateRecordError(
                f"image {scene.id} is in the store already", where=self.path, fix="skip it: `if id not in writer`"
            )
        self._append(scene.id, *self._encode(scene))

    def ensure(self, scene: Scene) -> None:
        """Append `scene` unless it is there already, bit for bit; another scene under its id is refused."""
        record, meta = self._encode(scene)
        held = self._held.get(scene.id)
        if held is None:
            self._append(scene.id, record, meta)
        elif held != (len(record), checksum(record)):
            raise DuplicateRecordError(
                f"the store holds another scene of image {scene.id}",
                where=self.path,
                fix="write to a new folder; a store is continued only from the source it was begun with",
            )

    def drop(self, ids: Iterable[str]) -> None:
        """Forget scenes, so that others can take their ids; their bytes stay in the data files, and are not read."""
        gone = {id for id in ids if id in self._held}
        if not gone:
            return
        self.flush()
        entries = Index.read(self.path).entries
        self._index.close()  # not every system replaces a file that is open
        try:
            replace_index(self.path, (entry for id, entry in entries.items() if id not in gone))
        finally:
            self._index = AppendFile(self.path / INDEX)
        for id in gone:
            del self._held[id]

    def _encode(self, scene: Scene) -> tuple[bytes, int]:
        if scene.fingerprint != self.settings.fingerprint:
            raise _other_maker(self.settings.fingerprint, scene.fingerprint, scene.where)
        return encode(scene, self.settings.dtype)

    def _append(self, id: str, record: bytes, meta: int) -> None:
        if self._data.end and self._data.end + len(record) > self._shard_bytes:
            self._next_shard()
        offset = self._data.append(record)
        crc = checksum(record)
        self._pending.append(Entry(id, self._shard, offset, meta, len(record), crc))
        self._held[id] = (len(record), crc)
        if len(self._pending) >= self._flush_every:
            self.flush()

    def flush(self) -> None:
        """Make everything added so far safe: first the records, then their index line."""
        if self._pending:
            self._data.sync()
            self._index.append(index_line(self._pending))
            self._pending.clear()
            self._index.sync()

    def close(self) -> None:
        """Flush and close."""
        try:
            self.flush()
        finally:
            self._data.close()
            self._index.close()

    def _next_shard(self) -> None:
        self.flush()
        self._data.close()
        self._shard += 1
        self._data = self._open_shard()

    def _open_shard(self) -> AppendFile:
        # What a stopped writer left behind stays: cutting a file that a reader has mapped would crash the reader.
        data = AppendFile(self.path / shard_name(self._shard))
        data.append(bytes(-data.end % ALIGN))
        sync_folder(self.path)
        return data
