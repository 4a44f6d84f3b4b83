"""The feature store: the scenes of many photos in one folder, memory-mapped, checksummed, growing while it is read.

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
import copy
import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sightline.errors import ChecksumError, DataError, DuplicateRecordError, MissingRecordError, TruncatedError
from sightline.files import PathLike, checksum, lock, refuse_special, sweep
from sightline.scene import Scene
from sightline.vision.store_layout import LOCK, Entry, Index, Settings, decode, shard_name
from sightline.vision.store_writer import FLUSH_EVERY, SHARD_BYTES, StoreWriter, prepare, refuse_foreign, replace_index

RESIDENT = 64 << 20


class RepairReport(NamedTuple):
    """What a repair dropped: damaged records, and damaged lines of the index (each of up to 64 records)."""

    records: int
    index_lines: int


class FeatureStore:
    """Scenes by image id, as they were when the store was opened.

    The arrays of a scene are read-only views of the mapped file. Each record's checksum is compared when it is first
    read. Reading the whole store keeps about 64 MB of it resident: mapped pages are given back as reading goes on.

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
        self._shards = _Shards(self.path)

    @property
    def fingerprint(self) -> str:
        """What made the scenes."""
        return self._settings.fingerprint

    @property
    def dtype(self) -> str:
        """The number type of regions, grid and vector: `float16` or `float32`. Boxes and scores are always float32."""
        return self._settings.dtype

    def __len__(self) -> int:
        """How many scenes there are."""
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def __iter__(self) -> Iterator[Scene]:
        for id in self._entries:
            yield self[id]

    def __getitem__(self, id: str) -> Scene:
        entry = self._find(id)
        record = self._shards.view(entry)
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

    def select(self, ids: Iterable[str]) -> FeatureStore:
        """The same store with only `ids`, in their order."""
        chosen: dict[str, Entry] = {}
        for id in ids:
            if id in chosen:
                raise DuplicateRecordError(f"image {id} was selected twice", where=self.path, fix="name each id once")
            chosen[id] = self._find(id)
        part = copy.copy(self)
        part._entries = chosen
        return part

    def verify(self) -> dict[str, DataError]:
        """Read every record and return the damaged ones: id and what is wrong. Empty if the store is whole."""
        fresh = copy.copy(self)
        fresh._verify, fresh._verified, fresh._shards = True, set(), _Shards(self.path)
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
        path: PathLike,
        *,
        fingerprint: str,
        dtype: str | None = None,
        flush_every: int = FLUSH_EVERY,
        shard_bytes: int = SHARD_BYTES,
    ) -> Iterator[StoreWriter]:
        """Open the store in `path` for adding scenes, making it if it is missing.

        A stopped run is resumed by opening the store again and skipping what is `in` the writer. A second writer, and
        scenes that something else made, are refused. Readers may read all the while.

        Args:
            path: the store's folder.
            fingerprint: what makes the scenes; every scene added must carry it.
            dtype: `float16` (a new store's default; loses digits of float32 input) or `float32`.
            flush_every: records between two waits for the disk; a killed process loses at most so many.
            shard_bytes: a data file that would grow beyond this is followed by another.
        """
        folder = Path(path)
        refuse_foreign(folder)
        with lock(folder / LOCK):
            sweep(folder)
            writer = StoreWriter(folder, prepare(folder, fingerprint, dtype), flush_every, shard_bytes)
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
            replace_index(folder, index.entries.values())
            store = FeatureStore(folder)
            damaged = store.verify()
            if damaged:
                replace_index(folder, (entry for entry in store._entries.values() if entry.id not in damaged))
            return RepairReport(len(damaged), len(index.damaged))

    def _find(self, id: str) -> Entry:
        try:
            return self._entries[id]
        except KeyError:
            raise MissingRecordError(
                f"no image {id} among the {len(self)} scenes here",
                where=self.path,
                fix="extract it, or check the id's spelling and leading zeros",
            ) from None

    def _damaged(self, entry: Entry) -> ChecksumError:
        return ChecksumError(
            f"the record of image {entry.id} is damaged ({entry.size} bytes from byte {entry.offset})",
            where=self.path / shard_name(entry.shard),
            fix=f"drop it with `sightline data repair {self.path}`, then extract this photo again",
        )


class _Shards:
    """The mapped data files; pages are handed back to the system after every `RESIDENT` bytes read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._maps: dict[int, mmap.mmap] = {}
        self._touched = 0

    def __reduce__(self) -> tuple[object, ...]:
        """Cross to another process as the folder alone; it maps the files itself."""
        return _Shards, (self._folder,)

    def view(self, entry: Entry) -> memoryview:
        """The bytes of `entry`'s record."""
        data = self._maps.get(entry.shard)
        if data is None:
            data = self._maps[entry.shard] = self._map(entry)
        end = min(len(data), data.size())  # the file's length now: touching pages that it lost would kill Python
        if entry.offset + entry.size > end:
            raise TruncatedError(
                f"the file ends at byte {end}, inside or before the record of image {entry.id} "
                f"({entry.size} bytes from byte {entry.offset})",
                where=self._folder / shard_name(entry.shard),
                fix=f"copy the store again, or drop the record with `sightline data repair {self._folder}` "
                "and extract this photo again",
            )
        self._touched += entry.size
        if self._touched > RESIDENT:
            self._release()
        return memoryview(data)[entry.offset : entry.offset + entry.size]

    def _map(self, entry: Entry) -> mmap.mmap:
        file = self._folder / shard_name(entry.shard)
        if file.exists():
            refuse_special(file)
        try:
            with file.open("rb") as handle:
                return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # a ValueError: the file is empty
            raise TruncatedError(
                f"the record of image {entry.id} cannot be read: the file is missing or empty",
                where=file,
                fix=f"copy the store again, or drop the record with `sightline data repair {self._folder}` "
                "and extract this photo again",
            ) from error

    def _release(self) -> None:
        # Views stay valid: a page that is read again is mapped again from the file.
        self._touched = 0
        if hasattr(mmap, "MADV_DONTNEED"):
            for data in tuple(self._maps.values()):  # another thread may be mapping a file
                data.madvise(mmap.MADV_DONTNEED)
