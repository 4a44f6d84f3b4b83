"""self-critical's `.lmdb`: the bytes of an npz or npy file under each image id. A file, or a folder with `data.mdb`.

A damaged LMDB is read in a child process first: the library follows its page numbers without checking them. A wrong one
leads outside the file, which ends the process that reads there (SIGBUS) and everything in it. The child looks up every
key, touches the ends of every value, and tells; each file is probed once a process.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.feature_source import (
    FeatureSource,
    PerProcess,
    atomic_path,
    feature_parts,
    plain_name,
    regions_of,
    scene_format,
    unique_scenes,
)
from sightline.data.format import Probe
from sightline.data.npz_folder import FEATURE_KEYS
from sightline.data.numpy_files import parse_arrays
from sightline.errors import DataError, MissingRecordError, TruncatedError, about, library
from sightline.files import COPY_AGAIN, PathLike, existing_path, refuse_special, unwritable
from sightline.scene import Scene

_MAGIC = b"\xde\xc0\xef\xbe"
_MAGIC_AT = 16  # bytes: the header of the first page comes before it
_FIRST_MAP = 1 << 30  # bytes; the map grows with what is written
_RESERVED = re.compile(r"__\w+__")  # where lmdbdict, which self-critical writes with, keeps `__len__` and the like

# What follows holds for the child: it has the size of the file, looks at every key there is, and ends with a sentence
# on standard output where something is wrong. Keys take 8 bytes at least. Overflowing values run into pages behind the
# end of the file, which are mapped (`map_size`), so that touching their last byte is a SIGBUS and never other memory.
_CHILD = """
import lmdb, sys
path, size, map_size, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "True"
options = dict(readonly=True, lock=False, readahead=False, map_size=map_size, subdir=folder)
try:
    with lmdb.open(path, **options) as environment, environment.begin(buffers=True) as transaction:
        count, most = 0, min(size // 8, environment.stat()["entries"])
        for key in transaction.cursor().iternext(values=False):
            value, count = transaction.get(bytes(key)), count + 1
            if count > most:
                sys.exit(print("it has more keys than it says"))
            if value is None or len(value) > size:
                sys.exit(print("a key leads to no value"))
            value[:1].tobytes() + value[-1:].tobytes()
except lmdb.Error as error:
    print(error)
else:
    print("sound")
"""
_SECONDS = 60  # that the child may take, and one more for every 10 MB

FileState = tuple[str, int, int, int]  # resolved path, inode, size, time of the last change
_open_files: weakref.WeakValueDictionary[tuple[int, FileState], Any] = weakref.WeakValueDictionary()  # by process id
_sound: set[FileState] = set()  # files that a child has read to their end


def _data_file(path: Path) -> Path:
    return path / "data.mdb" if path.is_dir() else path


def open_lmdb(path: Path) -> Any:
    """The environment, read-only, shared by all who read it: LMDB cannot open a database twice in one process."""
    file = existing_path(_data_file(path))
    refuse_special(file)
    stat = file.stat()
    state = (str(file.resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns)
    environment = _open_files.get((os.getpid(), state))
    if environment is None:
        for inherited in [other for (process, _), other in _open_files.items() if process != os.getpid()]:
            inherited.close()  # of the parent of this forked process, and of no use here
        environment = _open_files[os.getpid(), state] = _open_new(path, state)
    return environment


def _open_new(path: Path, state: FileState) -> Any:
    """A file shorter than its own page count is refused: touching the missing pages would kill Python."""
    lmdb = library("lmdb", "train", f"reading {path.name}")
    size = state[2]
    options = {"readonly": True, "lock": False, "readahead": False, "subdir": path.is_dir()}
    try:
        environment = lmdb.open(str(path), map_size=_map_size(size), **options)
        promised = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    except lmdb.Error as error:
        raise DataError(f"not a readable LMDB: {error}", where=path, fix=COPY_AGAIN) from error
    try:
        if size < promised:
            raise TruncatedError(f"the LMDB has {size} of its {promised} bytes", where=path, fix=COPY_AGAIN)
        if state not in _sound:
            _read_in_child(path, size)
    except DataError:
        environment.close()
        raise
    _sound.add(state)
    return environment


def _map_size(size: int) -> int:
    """The bytes of memory to map for a file: a value that begins in the file and is no longer than it ends in there."""
    return 3 * size + (1 << 20)


def _read_in_child(path: Path, size: int) -> None:
    """Read the LMDB in a child process; a DataError where it is damaged."""
    command = [sys.executable, "-P", "-c", _CHILD, str(path), str(size), str(_map_size(size)), str(path.is_dir())]
    try:
        child = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=_SECONDS + size / 1e7,
        )
        answer, code = child.stdout.strip(), child.returncode
    except subprocess.TimeoutExpired:
        answer, code = "reading it takes too long", 0
    if answer != "sound" or code:
        what = answer if answer and not code else f"reading it ended a process with code {code}"
        raise DataError(f"damaged LMDB: {what}", where=path, fix=COPY_AGAIN)


class LmdbFeatures(FeatureSource):
    """Scenes of one LMDB; values are npz with `feat` (or `z`, `features`), or npy."""

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self._environment = PerProcess(partial(open_lmdb, self.path))
        self._size = existing_path(_data_file(self.path)).stat().st_size

    def read(self, id: str) -> Scene:
        with self._transaction() as transaction:
            value = transaction.get(self.index[id])
        if value is None:
            raise MissingRecordError("its key leads to no value", fix=COPY_AGAIN)
        arrays = parse_arrays(value, FEATURE_KEYS)
        return Scene(id, **feature_parts(next(iter(arrays.values()))), source=str(self.path))

    @cached_property
    def index(self) -> dict[str, bytes]:
        with about(self.path), self._transaction() as transaction:
            keys = [bytes(key) for key in transaction.cursor().iternext(values=False)]
        index = {key.decode("utf-8", "surrogateescape"): key for key in keys}
        return {id: key for id, key in index.items() if not _RESERVED.fullmatch(id)}

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        environment = self._environment()
        if _data_file(self.path).stat().st_size < self._size:  # touching pages that it lost would kill Python
            raise TruncatedError("the LMDB became shorter while it was read", fix="read it again")
        try:
            with environment.begin() as transaction:
                yield transaction
        except library("lmdb", "train", f"reading {self.path.name}").Error as error:
            raise DataError(f"damaged LMDB: {error}", fix=COPY_AGAIN) from error


def _matches(probe: Probe) -> bool:
    """A folder with `data.mdb`, or a file that begins like one, or is called so."""
    if probe.is_folder:
        return "data.mdb" in probe.entries
    return probe.head[_MAGIC_AT : _MAGIC_AT + 4] == _MAGIC or probe.name.endswith((".lmdb", ".mdb"))


def write_scenes(path: PathLike, scenes: Iterable[Scene]) -> int:
    """Write one file: the regions of each scene as npz bytes with the key `feat`, under the scene's id."""
    lmdb = library("lmdb", "train", "writing LMDB")

    def put(scene: Scene) -> None:
        value = io.BytesIO()
        np.savez(value, feat=regions_of(scene, "self-critical's lmdb"))
        if _RESERVED.fullmatch(scene.id):
            raise DataError(f"the id {scene.id!r} is one of lmdbdict's own", where=scene.where, fix="rename it")
        try:
            with environment.begin(write=True) as transaction:
                transaction.put(plain_name(scene).encode("utf-8"), value.getvalue())
        except lmdb.MapFullError:
            environment.set_mapsize(2 * environment.info()["map_size"] + value.tell())
            put(scene)

    options, count = {"subdir": False, "lock": False, "sync": False}, 0
    try:
        with atomic_path(path) as draft, lmdb.open(str(draft), map_size=_FIRST_MAP, **options) as environment:
            for scene in unique_scenes(scenes, path):
                put(scene)
                count += 1
            environment.sync(True)
    except lmdb.Error as error:
        raise unwritable(path, OSError(str(error))) from error
    return count


FORMAT = scene_format(
    "lmdb",
    "Region features in an LMDB, as self-critical packs its folders",
    _matches,
    LmdbFeatures,
    write_scenes,
    ("regions",),
)
