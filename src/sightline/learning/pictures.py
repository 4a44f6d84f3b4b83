"""Photos of a split as pixels, read when a batch asks for them: what a model that looks for itself is trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sightline.batch import SceneBatch
from sightline.data.photo_folder import photo_files
from sightline.data.records import Photo
from sightline.errors import ConfigError, CountError, MissingRecordError
from sightline.files import existing
from sightline.learning.data_config import DataConfig
from sightline.learning.features import Seen, match
from sightline.learning.photos import plural, some
from sightline.vision.grid_encoder import cell_boxes
from sightline.vision.pixels import Pixels, read_pixels

READERS = 8  # photos that are decoded at the same time


class Pictures:
    """Scenes that hold pixels, and the boxes of the cells that a grid backbone will make of them.

    Args:
        paths: of the photos.
        ids: of the photos.
        size: photos are squashed to squares of so many pixels.
        keep: keep pixels in memory once they were read (size² · 3 bytes a photo).
        fingerprint: of the backbone that will look at them; "" while its weights change.
    """

    def __init__(
        self, paths: Sequence[Path], ids: Sequence[str], size: int, *, keep: bool = False, fingerprint: str = ""
    ) -> None:
        if len(paths) != len(ids):
            raise CountError(f"{len(paths)} paths for {len(ids)} photos")
        self.paths, self.ids, self.size, self.fingerprint = tuple(paths), tuple(ids), size, fingerprint
        self._kept: dict[int, tuple[Pixels, tuple[int, int]]] | None = {} if keep else None
        self._readers = ThreadPoolExecutor(READERS)

    def __len__(self) -> int:
        """How many photos there are."""
        return len(self.ids)

    def batch(self, rows: Tensor) -> SceneBatch:
        """The photos of `rows`: pixels (B, 3, size, size), uint8."""
        chosen = rows.tolist()
        read = list(self._readers.map(self._read, chosen))
        side = -(-self.size // 32)
        boxes = torch.from_numpy(cell_boxes(side, side)).expand(len(chosen), -1, -1)
        everywhere = torch.ones(boxes.shape[:2], dtype=torch.bool)
        return SceneBatch(
            ids=tuple(self.ids[row] for row in chosen),
            pixels=torch.from_numpy(np.stack([pixels for pixels, _ in read])).permute(0, 3, 1, 2),
            boxes=boxes,
            region_mask=everywhere,
            grid_mask=everywhere,
            grid_shapes=((side, side),) * len(chosen),
            sizes=torch.tensor([size for _, size in read]),
            fingerprint=self.fingerprint,
        )

    def _read(self, row: int) -> tuple[Pixels, tuple[int, int]]:
        if self._kept is None:
            return read_pixels(self.paths[row], self.size)
        if row not in self._kept:
            self._kept[row] = read_pixels(self.paths[row], self.size)
        return self._kept[row]


def see_pictures(
    config: DataConfig, base: Path, photos: Mapping[str, Sequence[Photo]], size: int, told: list[str]
) -> dict[str, Seen]:
    """The photos of each split as pixels. Photos that are not in `data.images` are an error, unless allowed."""
    if config.images is None:
        raise ConfigError("a backbone that sees photos at every step needs them", fix="give data.images")
    folder = existing(config.path(config.images, base))
    listed = [photo for part in photos.values() for photo in part]
    file_of = match(listed, photo_files(folder), folder)
    missing = [photo.id for photo in listed if photo.id not in file_of]
    if missing and (not file_of or not (config.allow_missing or config.max_photos)):
        raise MissingRecordError(
            f"{len(missing):,} of {plural(len(listed), 'photo')} are not there: {some(missing)}",
            where=folder,
            fix="check that captions and photos are named alike, or say --allow-missing",
        )
    if missing:
        told.append(f"{len(missing):,} of {plural(len(listed), 'photo')} are not in {folder}. They are left out.")
    kept = {
        role: tuple(photo for photo in part if photo.id in file_of)[: config.max_photos or None]
        for role, part in photos.items()
    }
    gigabytes = sum(map(len, kept.values())) * 3 * size**2 / (1 << 30)
    keep = config.cache == "memory" or (config.cache == "auto" and gigabytes <= config.budget)
    told.append(
        f"Photos are read at {size} × {size} pixels"
        + (f", and kept in memory: {gigabytes:.2f} GiB." if keep else ", from disk as they are needed.")
    )
    return {
        role: Seen(part, Pictures([folder / file_of[p.id] for p in part], [p.id for p in part], size, keep=keep))
        for role, part in kept.items()
        if part
    }
