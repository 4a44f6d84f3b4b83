"""Captioned photos as pictures in a folder, on the screen, or as a table of words and boxes."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.errors import NameTooLongError, SightlineError
from sightline.files import atomic_write

if TYPE_CHECKING:
    from sightline.caption import PhotoCaption
    from sightline.grounding.evidence import Grounding

OPENERS = {"Darwin": "open", "Windows": "explorer"}


class Pictures:
    """A folder of photos with their boxes and captions; `written` are the files, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, list[Path]()
        self._names: dict[str, int] = {}

    def draw(self, said: PhotoCaption, bad: Callable[[SightlineError], None]) -> None:
        """Write the picture of one photo, under its name; those of photos of the same name are numbered."""
        path = self.folder / self._name(Path(said.path).stem)
        if draw_picture(said, path, bad):
            self.written.append(path)

    def _name(self, stem: str) -> str:
        count = self._names[stem] = self._names.get(stem, 0) + 1
        return f"{stem}{'' if count == 1 else f'-{count}'}.captioned.jpg"


def draw_picture(said: PhotoCaption, path: Path, bad: Callable[[SightlineError], None]) -> bool:
    """Write the picture of one photo, and tell whether it is there; one that can not be read or named goes to `bad`."""
    from sightline.draw.photo_boxes import words_on_boxes
    from sightline.vision.images import open_image

    try:
        photo = open_image(said.path)
    except SightlineError as error:
        bad(error)
        return False
    picture = words_on_boxes(photo, said)
    try:
        with atomic_write(path) as file:
            picture.save(file, "JPEG", quality=92, subsampling=0)  # PNG would take longer than the caption
    except NameTooLongError as error:
        bad(error)
        return False
    return True


def viewer() -> str | None:
    """The program that opens a picture or folder on the screen; None where there is no screen."""
    system = platform.system()
    if system not in OPENERS and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return None
    return shutil.which(OPENERS.get(system, "xdg-open"))


def open_with(program: str, path: Path) -> None:
    """Open a picture or folder, and do not wait for it."""
    nowhere = subprocess.DEVNULL
    subprocess.Popen([program, str(path)], stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)


def box_table(said: PhotoCaption | Grounding, none: str = "no word points at a box", indent: str = "  ") -> str:
    """A line for each word that points somewhere: the word, its box in pixels, how sure that is.

    Further boxes of a plural follow, each on a line of its own.
    """
    found = [word for word in said.to_json()["words"] if word["box"] is not None]
    if not found:
        return indent + none
    width = max(len(word["word"]) for word in found)
    lines = []
    for word in found:
        first, *others = (" ".join(f"{round(v):>5}" for v in box) for box in word["boxes"])
        lines.append(f"{indent}{word['word']:<{width}}  {first}  {word['score']:.2f}")
        lines += [f"{indent}{'':<{width}}  {box}" for box in others]
    return "\n".join(lines)
