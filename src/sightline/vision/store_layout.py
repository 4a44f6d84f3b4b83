"""The feature store on disk: its settings, the bytes of one record, and the lines of the index.

A store is a folder of three kinds of file:

- `store.json`: version, number type and the fingerprint of what made the scenes.
- `data-00000.bin`, `data-00001.bin`, …: records one after the other, each starting at a multiple of 64 bytes. A record
  is a short JSON text (shapes, grid shape, image size, concepts) and then the arrays, little-endian, each on a multiple
  of 64 bytes. Boxes and scores are float32; regions, grid and vector have the store's number type.
- `index.jsonl`: one line a flush, `[[id, file number, offset, bytes of JSON, bytes in all, CRC-32 of the record], …,
  CRC-32 of this line]`. A record exists once its line does, and the line is written after the record. Whatever follows
  the last line break is the trace of a writer that was stopped, and counts for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sightline.errors import ChecksumError, DataError, DuplicateRecordError, NonFiniteError
from sightline.files import checksum, existing_path, read_json, refuse_special, write_json
from sightline.scene import Array, Concept, Scene

NAME = "sightline-store"
VERSION = 1  # of the layout; a store of a later one is refused
SETTINGS, INDEX, LOCK = "store.json", "index.jsonl", ".lock"
ALIGN = 64  # bytes: a cache line, and more than any number needs
DTYPES = ("float16", "float32")
PARTS = ("boxes", "scores", "regions", "grid", "vector")
EXACT = ("boxes", "scores")  # float16 would move a box edge by up to a pixel in 4,000


def shard_name(number: int) -> str:
    return f"data-{number:05d}.bin"


@dataclass(frozen=True)
class Settings:
    """What is said once for the whole store."""

    dtype: str
    fingerprint: str

    def write(self, folder: Path) -> None:
        settings = {"format": NAME, "version": VERSION, **asdict(self), "checksum": self._checksum()}
        write_json(folder / SETTINGS, settings, indent=2)

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """Read `store.json`, refusing what is not a store, a damaged one, and one of a later version."""
        file = existing_path(folder) / SETTINGS
        if not file.is_file():
            fix = "name the folder that `sightline extract` wrote"
            raise DataError(f"this is not a feature store: it holds no {SETTINGS}", where=folder, fix=fix)
        header = read_json(file)
        if not isinstance(header, dict) or header.get("format") != NAME or not isinstance(header.get("version"), int):
            raise DataError("this is not the settings file of a feature store", where=file, fix="name another folder")
        if header["version"] > VERSION:
            what = f"the store has version {header['version']}, and this Sightline reads up to {VERSION}"
            raise DataError(what, where=file, fix="pip install --upgrade sightline")
        settings = cls(str(header.get("dtype")), str(header.get("fingerprint")))
        if header.get("checksum") != settings._checksum() or settings.dtype not in DTYPES:
            raise ChecksumError("the settings are damaged", where=file, fix="restore the file from a copy of the store")
        return settings

    def _checksum(self) -> int:
        return checksum(json.dumps([VERSION, self.dtype, self.fingerprint]).encode())


class Entry(NamedTuple):
    """Where a record is, and the checksum of its bytes."""

    id: str
    shard: int
    offset: int
    meta: int  # bytes of JSON
    size: int
    crc: int


def index_line(entries: Iterable[Entry]) -> bytes:
    """The index line of records that are flushed together, its own checksum last."""
    body = json.dumps(list(entries), separators=(",", ":"))[:-1].encode("ascii")
    return b"%s,%d]\n" % (body, checksum(body))


@dataclass(frozen=True)
class Index:
    """The index as read."""

    entries: dict[str, Entry]  # the records by image id, in the order they were added
    end: int  # the bytes that whole lines take; what follows them is the torn tail of a stopped writer
    damaged: list[int]  # the numbers (from 1) of whole lines whose checksum is wrong
    where: Path

    @classmethod
    def read(cls, folder: Path) -> Index:
        file = existing_path(folder / INDEX)
        refuse_special(file)
        raw = file.read_bytes()
        lines = raw.split(b"\n")[:-1]
        records: list[Entry] = []
        damaged: list[int] = []
        for number, line in enumerate(lines, 1):
            cut = line.rfind(b",")
            if cut > 0 and line[cut + 1 :] == b"%d]" % checksum(line[:cut]):
                records += map(Entry._make, json.loads(line)[:-1])
            else:
                damaged.append(number)
        entries = {entry.id: entry for entry in records}
        if len(entries) < len(records) and len(entries) < len(set(records)):
            twice = next(entry.id for entry in records if entries[entry.id] != entry)
            what = f"image {twice} has two different records"
            raise DuplicateRecordError(what, where=file, fix="extract the photos into a new store")
        return cls(entries, raw.rfind(b"\n") + 1, damaged, file)

    def refuse_damage(self) -> Index:
        """The index itself, or a ChecksumError if a line of it is damaged."""
        if self.damaged:
            what = f"line {self.damaged[0]} is damaged (damaged lines in all: {len(self.damaged)})"
            repair = f"drop damaged records with `sightline data repair {self.where.parent}`"
            raise ChecksumError(what, where=self.where, fix=f"{repair}, then extract the missing photos again")
        return self


def encode(scene: Scene, dtype: str) -> tuple[bytes, int]:
    """The record of `scene`, and how many bytes of it are JSON. A value that float16 cannot hold is refused."""
    arrays = [(name, _fit(scene, name, dtype)) for name in PARTS if getattr(scene, name) is not None]
    meta: dict[str, Any] = {"shapes": {name: array.shape for name, array in arrays}}
    if scene.grid_shape is not None:
        meta["grid_shape"] = [int(n) for n in scene.grid_shape]
    if scene.size is not None:
        meta["size"] = [int(n) for n in scene.size]
    if scene.concepts:
        meta["concepts"] = [[c.name, float(c.score), c.box and [float(v) for v in c.box]] for c in scene.concepts]
    try:  # ASCII only, so that file names which are not valid Unicode survive as escapes
        text = json.dumps(meta, separators=(",", ":"), allow_nan=False).encode("ascii")
    except ValueError as error:
        what = "a concept's score or box is NaN or infinite"
        raise NonFiniteError(what, where=scene.where, fix="extract this image again") from error
    chunks: list[memoryview | bytes] = []
    for data in (memoryview(text), *(array.data for _, array in arrays)):
        chunks += [data, bytes(-data.nbytes % ALIGN)]
    return b"".join(chunks), len(text)


def _fit(scene: Scene, name: str, dtype: str) -> Array:
    part: Array = getattr(scene, name)
    target = _dtype(name, dtype)
    limit = float(np.finfo(target).max)
    if part.size and not np.can_cast(part.dtype, target) and (part.max() > limit or part.min() < -limit):
        row = tuple(int(i) for i in np.argwhere((part > limit) | (part < -limit))[0])
        what = f"`{name}` holds {float(part[row]):.6g} at {list(row)}, and {target.name} ends at {limit:.6g}"
        wider = "make the store with float32 (`--dtype float32`)"
        raise DataError(what, where=scene.where, fix=wider if target.name == "float16" else "scale the values down")
    return np.ascontiguousarray(part, dtype=target)


def _dtype(part: str, dtype: str) -> np.dtype[Any]:
    """The numbers of a part in a store of `dtype`."""
    return np.dtype("<f4" if part in EXACT or dtype == "float32" else "<f2")


def decode(record: bytes, entry: Entry, settings: Settings, source: str) -> Scene:
    """The scene in `record`; its arrays are read-only views of it."""
    meta = json.loads(record[: entry.meta])
    arrays: dict[str, Array] = {}
    end = entry.meta
    for name, shape in meta["shapes"].items():
        start = end + -end % ALIGN
        arrays[name] = np.ndarray(shape, _dtype(name, settings.dtype), buffer=record, offset=start)
        end = start + arrays[name].nbytes
    return Scene(
        entry.id,
        **arrays,
        grid_shape=_tuple(meta.get("grid_shape")),
        concepts=tuple(Concept(name, score, _tuple(box)) for name, score, box in meta.get("concepts", ())),
        size=_tuple(meta.get("size")),
        fingerprint=settings.fingerprint,
        source=source,
    )


def _tuple(numbers: list[Any] | None) -> Any:
    return None if numbers is None else tuple(numbers)
