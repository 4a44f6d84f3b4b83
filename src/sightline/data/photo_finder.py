"""Where below a folder a photo is that captions name, by whatever path they know it: one rule for all commands."""

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePath

from sightline.errors import MissingRecordError, some
from sightline.vision.find_photos import PhotoPaths, walk_folder


class PhotoFinder:
    """The photos below a folder, by the names that captions give them.

    The longest end of a name that leads to a photo from here decides: of `holiday/sub/cat.jpg` the whole, then
    `sub/cat.jpg`; then `sub/cat.jpg` in any folder. A bare `cat.jpg` says little: it counts where the folder before it
    is this one, where it is the whole name and one photo alone is called so, and for a photo of this folder itself that
    no other is called like.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def paths(self) -> PhotoPaths:
        """Every picture below the folder, and what is wrong there. It is walked only when asked for."""
        return walk_folder(self.folder)

    @cached_property
    def files(self) -> list[str]:
        """Every picture, from the folder on and sorted; hidden ones are left out, links to folders are followed."""
        return sorted(path.relative_to(self.folder).as_posix() for path in self.paths.photos)

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        files: dict[str, list[str]] = {}
        for file in self.files:
            files.setdefault(PurePath(file).name, []).append(file)
        return files

    def find(self, name: str) -> str | None:
        """The path of the photo from the folder on, None if there is none; an error if several fit equally well."""
        end = next((end for end in self._ends(name) if is_file(self.folder / end)), None)
        if end is not None:
            return self._from_here(end)
        path = PurePath(name)
        candidates = self._by_name.get(path.name, [])
        if len(path.parts) > 1:  # a photo of another folder is not meant
            known = [PurePath(file).parent.name for file in candidates]
            same = [file for file, folder in zip(candidates, known, strict=True) if folder == path.parent.name]
            candidates = same or (candidates if path.name in candidates else [])
        if len(candidates) > 1:
            fix = "give the name its folders, so that it fits one of them"
            raise MissingRecordError(f"{name!r} may be any of {some(candidates)} in {self.folder}", fix=fix)
        return candidates[0] if candidates else None

    def require(self, name: str) -> str:
        """`find`; an error if there is none."""
        if (file := self.find(name)) is None:
            fix = "names are relative to the folder of photos; correct the name, or remove the row"
            raise MissingRecordError(f"there is no photo {name!r} in {self.folder}", fix=fix)
        return file

    def _ends(self, name: str) -> Iterator[str]:
        """The whole name, and what is left of it without its first folders: all that says more than the bare name."""
        yield name
        path = PurePath(name)
        parts = [part for part in path.parts if part not in (path.anchor, "..")]
        yield from ("/".join(parts[start:]) for start in range(len(parts) - 1))
        if len(parts) > 1 and parts[-2] in (self.folder.name, self.folder.resolve().name):
            yield parts[-1]

    def _from_here(self, end: str) -> str:
        """`../photos/a.jpg` and `/home/me/photos/a.jpg` are `a.jpg` in the folder `photos`."""
        if not Path(end).is_absolute() and ".." not in Path(end).parts:
            return end
        inside = os.path.relpath(self.folder / end, self.folder)
        return end if inside.startswith("..") else Path(inside).as_posix()


def is_file(path: Path) -> bool:
    """Whether there is such a file; what is too long to be a name, such as a caption in the wrong column, is none."""
    try:
        return path.is_file()
    except OSError:
        return False
