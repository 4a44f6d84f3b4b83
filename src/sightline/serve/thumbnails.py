"""Photos of the index, as the page may see them: by an id that says nothing, and only those that were found."""

from __future__ import annotations

import hashlib
import io
import secrets
from collections import OrderedDict
from pathlib import Path

from PIL import Image

from sightline.serve.refusal import Refusal
from sightline.vision.images import open_image

REMEMBERED = 20_000  # hits whose photos can be asked for


class Thumbnails:
    """Ids for paths. A path that no search has found has no id, so nothing else of the disk can be asked for."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(16)
        self._photos: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def id_of(self, path: str, name: str) -> str:
        """The id of a photo that was found; clients know it by `name`."""
        raw = path.encode("utf-8", "surrogateescape")
        found = hashlib.blake2b(raw, key=self._secret, digest_size=16).hexdigest()
        self._photos[found] = path, name
        self._photos.move_to_end(found)
        while len(self._photos) > REMEMBERED:
            self._photos.popitem(last=False)
        return found

    def photo_of(self, id: str) -> tuple[str, str]:
        """The path and the name of an id that was given out."""
        if id not in self._photos:
            raise Refusal(404, "no photo has this id", "search again: ids hold until the server is stopped")
        return self._photos[id]


def thumbnail(path: str, side: int, most_pixels: int) -> bytes:
    """A JPEG of a photo, upright, no side longer than `side`; made anew, so that no byte of the file itself leaves."""
    image = open_image(Path(path), max_pixels=most_pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return file.getvalue()
