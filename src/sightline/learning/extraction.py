"""Features of photos that have none yet, where a recipe names the encoder that makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from sightline.data.photo_folder import photo_files
from sightline.files import existing
from sightline.learning.data_config import DataConfig
from sightline.vision.store import FeatureStore

Progress = Callable[[Sequence[Path]], Iterable[Path]]
SIZE = 224  # pixels of a side; photos are squashed to squares


def extract(
    config: DataConfig,
    base: Path,
    device: torch.device,
    progress: Progress = iter,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Extract what is missing, and tell how pictures are prepared: what a checkpoint says about its preprocessing.

    Files that cannot be read are left out, and `say` is told of them at the end, once unless they change.
    """
    if not config.encoder or config.images is None or config.features is None:
        return {}
    images, store = existing(config.path(config.images, base)), config.path(config.features, base)
    held = set(FeatureStore(store).ids()) if store.exists() else set()
    if not held.issuperset(photo_files(images)):
        from sightline.jobs import extraction
        from sightline.vision.grid_encoder import GridEncoder
        from sightline.vision.reading import left_out

        encoder = GridEncoder.imagenet(config.encoder, SIZE)
        report = extraction.extract(images, store, encoder, device=device, progress=progress)
        if report.news:
            say(left_out(report.news))
    return {"encoder": "grid", "variant": config.encoder, "size": SIZE, "resize": "squash"}
