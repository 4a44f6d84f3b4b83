"""The feature store: the scenes of many photos in one folder, checksummed, growing while it is read.

>>> import tempfile, numpy as np
>>> from sightline.scene import Scene
>>> folder = tempfile.mkdtemp()
>>> with FeatureStore.writer(folder, fingerprint="my-detector") as writer:
...     writer.add(Scene("cat.jpg", vector=np.ones(3, np.float32), fingerprint="my-detector"))
>>> FeatureStore(folder)["cat.jpg"].vector
array([1., 1., 1.], dtype=float16)
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from sightline.errors import (
    ChecksumError,
    ConfigError,
    DataError,
    DuplicateRecordError,
    MissingRecordError,
    TruncatedError,
)
from sightline.files import (
    UNFINISHED,
    AppendFile,
    PathLike,
    atomic_write,
    checksum,
    lock,
    refuse_special,
    sweep,
    sync_folder,
)
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
    decode,
    encode,
    index_line,
    shard_name,
)

SHARD_BYTES = 1 << 30  # a data file that would grow beyond this is followed by another
FLUSH_EVERY = 64  # records between two waits for the disk


class RepairReport(NamedTuple):
    """What a repair dropped: damaged records, and damaged lines of the index (each of up to 64 records)."""

    records: int
    index_lines: int


class FeatureStore:
    """Scenes by image id, as they were when the store was opened.

    A record is read, with its checksum compared the first time, when its scene is asked for; nothing is kept. Records
    are not mapped: that takes as long, pages that were touched count as memory in use, and a file that becomes shorter
    would kill Python. The arrays of a scene are read-only.

    Args:
        path: the store's folder.
        verify: compare checksums; False trusts the disk.
    """

    def __init__(self, path: PathLike, verify: bool = True) -> None:
        self.path = Path(path)
        self._settings = Settings.read(self.path)
        self._entries = Index.read(self.path).refuse_damage().entries
        self._verify = verify
        self._verified: set[str] = set()
        self._shards: dict[int, Path] = {}  # the data files that were read from

    @property
    def fingerprint(self) -> str:
        return self._settings.fingerprint

    @property
    def dtype(self) -> str:
        """The number type of regions, grid and vector: `float16` or `float32`. Boxes and scores are always float32."""
        return self._settings.dtype

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def __iter__(self) -> Iterator[Scene]:
        for id in self._entries:
            yield self[id]

    def __getitem__(self, id: str) -> Scene:
        entry = self._entries.get(id)
        if entry is None:
            fix = "extract it, or check the id's spelling and leading zeros"
            raise MissingRecordError(f"no image {id} among the {len(self)} scenes here", where=self.path, fix=fix)
        record = self._read(entry)
        if self._verify and id not in self._verified:
            if checksum(record) != entry.crc:
                raise self._damaged(entry)
            self._verified.add(id)
        try:
            return decode(record, entry, self._settings, str(self.path))
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # nonsense in a record read unverified
            raise self._damaged(entry) from error

    def ids(self) -> tuple[str, ...]:
        """Every image id, in the order they were added."""
        return tuple(self._entries)

    def verify(self) -> dict[str, DataError]:
        """Read every record from disk and return what is wrong with the damaged ones, by id."""
        fresh = FeatureStore(self.path)
        damaged: dict[str, DataError] = {}
        for id in self._entries:
            try:
                fresh[id]
            except DataError as error:
                damaged[id] = error
        return damaged

    @staticmethod
    @contextlib.contextmanager
    def writer(
        path: PathLike, *, fingerprint: str, dtype: str | None = None, flush_every: int = FLUSH_EVERY
    ) -> Iterator[StoreWriter]:
        """Open the store in `path` for adding scenes, making it if it is missing.

        A stopped run is resumed by opening the store again and skipping what is `in` the writer. A second writer, and
        scenes that something else made, are refused. Readers may read all the while.

        Args:
            path: the store's folder.
            fingerprint: what makes the scenes; every scene added must carry it.
            dtype: `float16` (a new store's default; loses digits of float32 input) or `float32`.
            flush_every: records between two waits for the disk; a killed process loses at most so many.
        """
        folder = Path(path)
        _refuse_foreign(folder)
        with lock(folder / LOCK):
            sweep(folder)
            writer = StoreWriter(folder, _prepare(folder, fingerprint, dtype), flush_every)
            try:
                yield writer
            finally:
                writer.close()

    @staticmethod
    def repair(path: PathLike) -> RepairReport:
        """Drop damaged records and lines from the index, so that their photos can be extracted again."""
        folder = Path(path)
        Settings.read(folder)
        with lock(folder / LOCK):
            index = Index.read(folder)
            _replace_index(folder, index.entries.values())
            store = FeatureStore(folder)
            damaged = store.verify()
            if damaged:
                _replace_index(folder, (entry for entry in store._entries.values() if entry.id not in damaged))
            return RepairReport(len(damaged), len(index.damaged))

    def _read(self, entry: Entry) -> bytes:
        """The bytes of a record."""
        file = self._shards.get(entry.shard)
        if file is None:
            file = self.path / shard_name(entry.shard)
            if file.exists():
                refuse_special(file)
            self._shards[entry.shard] = file
        try:
            with file.open("rb", buffering=0) as data:
                data.seek(entry.offset)
                record = data.read(entry.size)
        except OSError as error:
            what = f"the record of image {entry.id} cannot be read ({error.strerror})"
            raise self._truncated(entry, what) from error
        if len(record) < entry.size:
            what = f"the file ends at byte {file.stat().st_size}, inside or before the record of image {entry.id}"
            raise self._truncated(entry, f"{what} ({entry.size} bytes from byte {entry.offset})")
        return record

    def _truncated(self, entry: Entry, what: str) -> TruncatedError:
        repair = f"drop the record with `sightline data repair {self.path}` and extract this photo again"
        return TruncatedError(what, where=self.path / shard_name(entry.shard), fix=f"copy the store again, or {repair}")

    def _damaged(self, entry: Entry) -> ChecksumError:
        what = f"the record of image {entry.id} is damaged ({entry.size} bytes from byte {entry.offset})"
        fix = f"drop it with `sightline data repair {self.path}`, then extract this photo again"
        return ChecksumError(what, where=self.path / shard_name(entry.shard), fix=fix)


def _prepare(folder: Path, fingerprint: str, dtype: str | None) -> Settings:
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
        fix = f"write to another folder, or leave dtype out to go on in {settings.dtype}"
        raise DataError(f"the store holds {settings.dtype}, and {dtype} was asked for", where=folder, fix=fix)
    return settings


def _refuse_foreign(folder: Path) -> None:
    """Refuse to make a store in a folder that already holds something else."""
    if folder.exists() and not folder.is_dir():
        raise DataError("this is a file, and a store is a folder", where=folder, fix="name another folder")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    ours = {name for name in names if name in (LOCK, INDEX) or fnmatch(name, UNFINISHED)}  # a writer stopped at once
    if SETTINGS not in names and names - ours:
        what = f"the folder is not a feature store and is not empty (it holds {min(names - ours)})"
        raise DataError(what, where=folder, fix="name a new folder")


def _replace_index(folder: Path, entries: Iterable[Entry]) -> None:
    """Write an index of these records alone, in place of the one there."""
    with atomic_write(folder / INDEX) as file:
        remaining = iter(entries)
        while batch := list(itertools.islice(remaining, FLUSH_EVERY)):
            file.write(index_line(batch))


def _other_maker(stored: str, offered: str, where: str) -> DataError:
    makers = f"by {stored or '(unknown)'}, and what is offered was made by {offered or '(unknown)'}"
    what = f"the store's scenes were made {makers}: one store holds the scenes of one vision model and box rule"
    return DataError(what, where=where, fix="write to another folder, or extract with the model that made the store")


class StoreWriter:
    """Adds scenes to a store. Made by `FeatureStore.writer`; `id in writer` tells what is there already.

    A record is safe, even from a power cut, once `flush` returns. `add` calls it after every `flush_every` records and
    the end of the `with` block calls it too, so a killed process loses at most the last `flush_every` records.
    """

    def __init__(self, folder: Path, settings: Settings, flush_every: int) -> None:
        self.path = folder
        self.settings = settings
        self._flush_every = flush_every
        index = Index.read(folder).refuse_damage()
        self._checks = {id: (entry.size, entry.crc) for id, entry in index.entries.items()}  # of every record
        self._pending: list[Entry] = []
        self._index = AppendFile(folder / INDEX, index.end)
        self._shard = max((int(file.stem.removeprefix("data-")) for file in folder.glob("data-*.bin")), default=0)
        self._data = self._open_shard()

    def __contains__(self, id: object) -> bool:
        return id in self._checks

    def __len__(self) -> int:
        return len(self._checks)

    def add(self, scene: Scene) -> None:
        """Append `scene`; an id that is there already, or a scene of another fingerprint, is refused."""
        if scene.id in self._checks:
            what = f"image {scene.id} is in the store already"
            raise DuplicateRecordError(what, where=self.path, fix="skip it: `if id not in writer`")
        self._append(scene.id, *self._encode(scene))

    def ensure(self, scene: Scene) -> None:
        """Append `scene` unless it is there already, bit for bit; another scene under its id is refused."""
        record, meta = self._encode(scene)
        stored = self._checks.get(scene.id)
        if stored is None:
            self._append(scene.id, record, meta)
        elif stored != (len(record), checksum(record)):
            fix = "write to a new folder; a store is continued only from the source it was begun with"
            raise DuplicateRecordError(f"the store holds another scene of image {scene.id}", where=self.path, fix=fix)

    def drop(self, ids: Iterable[str]) -> None:
        """Forget scenes, so that others can take their ids; their bytes stay in the data files, and are not read."""
        gone = {id for id in ids if id in self._checks}
        if not gone:
            return
        self.flush()
        entries = Index.read(self.path).entries
        self._index.close()  # not every system replaces a file that is open
        try:
            _replace_index(self.path, (entry for id, entry in entries.items() if id not in gone))
        finally:
            self._index = AppendFile(self.path / INDEX)
        for id in gone:
            del self._checks[id]

    def _encode(self, scene: Scene) -> tuple[bytes, int]:
        if scene.fingerprint != self.settings.fingerprint:
            raise _other_maker(self.settings.fingerprint, scene.fingerprint, scene.where)
        return encode(scene, self.settings.dtype)

    def _append(self, id: str, record: bytes, meta: int) -> None:
        if self._data.end and self._data.end + len(record) > SHARD_BYTES:
            self.flush()
            self._data.close()
            self._shard += 1
            self._data = self._open_shard()
        offset = self._data.append(record)
        crc = checksum(record)
        self._pending.append(Entry(id, self._shard, offset, meta, len(record), crc))
        self._checks[id] = (len(record), crc)
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
        try:
            self.flush()
        finally:
            self._data.close()
            self._index.close()

    def _open_shard(self) -> AppendFile:
        # What a stopped writer left behind stays: cutting a file that another program has mapped would crash that.
        data = AppendFile(self.path / shard_name(self._shard))
        data.append(bytes(-data.end % ALIGN))
        sync_folder(self.path)
        return data
