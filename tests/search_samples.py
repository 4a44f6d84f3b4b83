"""Photos of plain colours, and eyes that see nothing else: red, green and blue are the axes of their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from sightline.caption import PhotoCaption
from sightline.photo import Photo, PhotoEmbedding
from sightline.search.engine import Row
from sightline.search.sync import SyncReport, sync

NAMES = ("red", "green", "blue")


def paint(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (8, 6)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


class Eyes:
    """Looks at photos, and remembers which."""

    def __init__(self, captions: bool = True) -> None:
        self.captions, self.seen = captions, list[str]()

    def __call__(self, photos: Sequence[Photo]) -> list[PhotoEmbedding]:
        self.seen += [Path(photo.path).name for photo in photos]
        return [self._look(photo) for photo in photos]

    def _look(self, photo: Photo) -> PhotoEmbedding:
        colour = photo.pixels.reshape(-1, 3).mean(0).astype(np.float32) + 1
        said = PhotoCaption(("a", NAMES[int(colour.argmax())], "wall"), path=str(photo.path), size=photo.size)
        return PhotoEmbedding(
            str(photo.path), photo.size, colour / np.linalg.norm(colour), said if self.captions else None
        )


def bring(folder: Path, store: Path | str, eyes: Eyes | None = None, **options) -> tuple[SyncReport, list[str]]:
    """Index a folder; the report, and which photos were looked at."""
    look = eyes or Eyes(options.get("captions", True))
    report = sync(folder, store, look, **{"maker": "eyes", "size": 4, **options})
    return report, look.seen


def row(name: str, vector: Sequence[float] | np.ndarray, caption: str | None = None, **changes) -> Row:
    """A row of a photo that there is not."""
    own = np.asarray(vector, np.float32)
    told = {"path": f"/photos/{name}", "root": "/photos", "mark": (100, 7), "content": f"c-{name}", "size": (640, 480)}
    return Row(caption=caption, vector=own / np.linalg.norm(own), **{**told, **changes})


def unit_vectors(count: int, width: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
