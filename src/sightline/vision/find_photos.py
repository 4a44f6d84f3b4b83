"""Find the photos that names on a command line stand for: files, folders, patterns, lists on standard input."""

import glob
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sightline.errors import DataError, SightlineError
from sightline.files import PathLike, existing_path

SUFFIXES = tuple(".jpg .jpeg .jpe .jfif .png .webp .avif .heic .heif .gif .bmp .tif .tiff".split())
OUTPUT, WRITTEN = ".sightline", "files.jsonl"  # where `sightline caption --out` lists the files that it wrote
DRAWN = ".captioned."  # in the names of the pictures that it draws there
Place = tuple[int, int]  # device and inode of a folder: the same folder by any name


class PhotoPaths(NamedTuple):
    """The photos of some names, and what is wrong with the others."""

    photos: list[Path]  # each once, in the order given; those of a folder by name
    problems: list[SightlineError]  # names that lead nowhere or cannot be written, and folders that cannot be read


def find_photos(sources: Iterable[PathLike]) -> PhotoPaths:
    """The photos that some names stand for; what cannot be found is a problem, and never stops the rest.

    A file is taken whatever it is called. Of a folder, everything below it that is called like a picture is taken, but
    for hidden files and folders, and for what `sightline caption` drew there; links to folders are followed, and each
    folder is entered once. A name with `*`, `?` or `[…]` that is no file is a pattern (`**` for any depth). `-` reads
    names from standard input, one a line, or separated by NUL bytes as `find -print0` writes them.
    """
    search = _Search()
    for source in sources:
        name = os.fspath(source)
        if name == "-":
            for line in _lines(sys.stdin.buffer.read()):
                search.add(line)
        else:
            search.add(name, patterns=True)
    return search.found


def walk_folder(folder: PathLike) -> PhotoPaths:
    """Every picture under a folder, by name, and what is wrong below it; a DataError where there is no such folder."""
    if not existing_path(folder).is_dir():
        raise DataError("this is a file, a folder was expected", where=folder, fix="name the folder it is in")
    search = _Search()
    search.add(os.fspath(folder))
    return search.found


def is_picture(name: str) -> bool:
    """True if the name ends like a picture's, and is not hidden."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


class _Search:
    def __init__(self) -> None:
        self.found = PhotoPaths([], [])
        self._folders: set[Place] = set()  # that were entered
        self._files: set[tuple[Place, str]] = set()  # that were met, by their folder and name

    def add(self, name: str, *, patterns: bool = False) -> None:
        """Add the photos that a name means, or the reason why there are none."""
        path = Path(name)
        try:
            if not name:
                raise DataError("a name is empty", fix="give a file, a folder or a pattern")
            if path.is_dir():
                self._walk(path)
            elif path.exists():
                self._take(path, _place(path.parent))
            elif patterns and glob.has_magic(name):
                matches = sorted(map(Path, glob.iglob(name, recursive=True)))  # noqa: PTH207 - Path's knows no absolute ones
                if not matches:
                    raise DataError("nothing is called like this pattern", where=name, fix="check the pattern")
                for match in matches:
                    if match.is_dir() or is_picture(match.name):
                        self.add(str(match))
            else:
                existing_path(path)
        except OSError as error:
            self._refuse(path, error)
        except SightlineError as error:
            self.found.problems.append(error)

    def _walk(self, top: Path) -> None:
        """Depth first, by name: the order in which sorting all paths would put them."""
        waiting: list[tuple[Path, Place | None]] = [(top, None)]  # pictures come with the place of their folder
        while waiting:
            path, within = waiting.pop()
            if within is not None:
                self._take(path, within)
                continue
            try:
                place = _place(path)
                if place not in self._folders:
                    self._folders.add(place)
                    waiting.extend(reversed(_inside(path, place)))
            except OSError as error:
                self._refuse(path, error)

    def _take(self, path: Path, place: Place) -> None:
        if (place, path.name) in self._files:
            return
        self._files.add((place, path.name))
        if _is_text(path):
            self.found.photos.append(path)
        else:
            what = "the name of this photo is not UTF-8 text"
            self.found.problems.append(DataError(what, where=ascii(str(path)), fix="rename it"))

    def _refuse(self, path: Path, error: OSError) -> None:
        where = str(path) if _is_text(path) else ascii(str(path))
        reason = os.strerror(error.errno) if error.errno else str(error)
        fix = "change its permissions, or leave it out"
        self.found.problems.append(DataError(f"this cannot be read ({reason})", where=where, fix=fix))


def _inside(folder: Path, place: Place) -> list[tuple[Path, Place | None]]:
    """The pictures of a folder, each with the folder's place, and the folders in it, by name."""
    with os.scandir(folder) as entries:
        shown = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    drawn = _drawn(folder, [entry.name for entry in shown if DRAWN in entry.name])
    inside: list[tuple[Path, Place | None]] = []
    for entry in shown:
        if entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and Path(entry).is_dir()):
            inside.append((folder / entry.name, None))
        elif is_picture(entry.name) and entry.name not in drawn:
            inside.append((folder / entry.name, place))
    return inside


def _drawn(folder: Path, names: Sequence[str]) -> set[str]:
    """Which of these pictures `sightline caption --out` drew into a folder: its list there begins lines with them.

    Versions before the list left the folder for it alone; there the name tells.
    """
    try:
        written = (folder / OUTPUT / WRITTEN).read_text(encoding="ascii", errors="replace") if names else ""
    except OSError:
        return set(names) if (folder / OUTPUT).is_dir() else set()
    return {name for name in names if f"[{json.dumps(name)}," in written}


def _place(folder: Path) -> Place:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _is_text(path: Path) -> bool:
    """Whether a path can be printed and stored: names of files may be any bytes."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _lines(raw: bytes) -> Iterator[str]:
    lines = raw.split(b"\0") if b"\0" in raw else (line.rstrip(b"\r") for line in raw.split(b"\n"))
    return (os.fsdecode(line) for line in lines if line.strip())
