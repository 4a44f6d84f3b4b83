"""Features of photos that have none yet, where a recipe names the encoder that makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.data.photo_folder import photo_files
from sightline.errors import ConfigError
from sightline.files import existing
from sightline.models.end_to_end import EndToEnd
from sightline.training.data_config import BACKBONES, DETECTOR, DataConfig
from sightline.vision.efficientnet_lite import Variant
from sightline.vision.feature_store import FeatureStore

if TYPE_CHECKING:
    from sightline.vision.vision_models import VisionModel

Progress = Callable[[Sequence[Path]], Iterable[Path]]
SIZE = 224  # pixels of a side for ImageNet's backbones; photos are squashed to squares
POOL = 2  # a detector's grid of 10 · 10 cells is kept as 5 · 5 means: 110,000 photos are 12 GB instead of 33


def extract(
    config: DataConfig,
    base: Path,
    device: torch.device,
    find: Callable[[str], Checkpoint] | None = None,
    progress: Progress = iter,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Extract what is missing, and tell how pictures are prepared: what a checkpoint says about its preprocessing.

    Files that cannot be read are left out, and `say` is told of them at the end, once unless they change.

    Args:
        config: names photos, store and encoder; without an encoder there is nothing to do.
        base: what paths are relative to.
        device: where the encoder computes.
        find: gives the trained model that `config.encoder` names.
        progress: wraps the photos.
        say: is told a sentence about photos that were left out.
    """
    if not config.encoder or config.images is None or config.features is None:
        return {}
    images, store = existing(config.path(config.images, base)), config.path(config.features, base)
    held = set(FeatureStore(store).ids()) if store.exists() else set()
    if not held.issuperset(photo_files(images)):
        from sightline.jobs import extract_job
        from sightline.vision.inference_encoder import InferenceEncoder
        from sightline.vision.photo_reader import left_out

        pool = 1 if config.encoder in BACKBONES else POOL
        encoder = InferenceEncoder(_vision(config.encoder, find), pool=pool)
        report = extract_job.extract(images, store, encoder, device=device, progress=progress)
        if report.news:
            say(left_out(report.news))
    if config.encoder in BACKBONES:
        return {"encoder": "grid", "variant": config.encoder, "size": SIZE, "resize": "squash"}
    return {"encoder": config.encoder, "pool": POOL, "resize": "squash"}


def _vision(name: str, find: Callable[[str], Checkpoint] | None) -> VisionModel:
    """The vision model that `data.encoder` names."""
    if name in BACKBONES:
        from sightline.vision.grid_encoder import GridEncoder

        return GridEncoder.imagenet(cast("Variant", name), SIZE)
    if name == DETECTOR or find is None:
        from sightline.jobs.vision_by_name import vision_of

        return vision_of(None if name == DETECTOR else name)
    model = find(name).model
    if not isinstance(model, EndToEnd):
        raise ConfigError(f"data.encoder is {name}, which has no vision model", fix="name one trained with `vision`")
    return model.vision
