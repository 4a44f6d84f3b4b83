"""A damaged LMDB is read in a child process first: the library follows its page numbers without checking them.

A wrong one leads outside the file, which ends the process that reads there (SIGBUS) and everything in it. The child
looks up every key, touches the ends of every value, and tells; each file is probed once a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sightline.errors import DataError

# What follows holds for the child: it has the size of the file, looks at every key there is, and ends with a sentence
# on standard output where something is wrong. Keys take 8 bytes at least. Overflowing values run into pages behind the
# end of the file, which are mapped (`map_size`), so that touching their last byte is a SIGBUS and never other memory.
_CHILD = """
import lmdb, sys
path, size, map_size, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "folder"
options = dict(readonly=True, lock=False, readahead=False, map_size=map_size, subdir=folder)
try:
    with lmdb.open(path, **options) as environment, environment.begin(buffers=True) as found:
        count, most = 0, min(size // 8, environment.stat()["entries"])
        for key in found.cursor().iternext(values=False):
            value, count = found.get(bytes(key)), count + 1
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
_SECONDS = 60  # and a second more for every 10 MB
_sound: set[tuple[str, int, int, int]] = set()


def map_size(size: int) -> int:
    """The bytes of memory to map for a file: a value that begins in the file and is no longer than it ends in there."""
    return 3 * size + (1 << 20)


def probe(path: Path, file: Path) -> None:
    """Read the LMDB at `path`, whose data are in `file`, in a child process; a DataError where it is damaged."""
    state = file.stat()
    key = (str(file.resolve()), state.st_ino, state.st_size, state.st_mtime_ns)
    if key in _sound:
        return
    kind = "folder" if path.is_dir() else "file"
    command = [sys.executable, "-P", "-c", _CHILD, str(path), str(state.st_size), str(map_size(state.st_size)), kind]
    try:
        child = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=_SECONDS + state.st_size / 1e7,
        )
        said, code = child.stdout.strip(), child.returncode
    except subprocess.TimeoutExpired:
        said, code = "reading it takes too long", 0
    if said != "sound" or code:
        told = said if said and not code else f"reading it ended a process with code {code}"
        raise DataError(f"damaged LMDB: {told}", where=path, fix="copy or download it again")
    _sound.add(key)
