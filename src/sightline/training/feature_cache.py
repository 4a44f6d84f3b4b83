"""Features that a vision model makes before training: in a store on disk, or in memory where it does not learn."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from sightline.batch import SceneBatch
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.data.photo_folder import photo_files
from sightline.errors import ConfigError
from sightline.files import existing_path
from sightline.models.end_to_end import EndToEnd
from sightline.training.augmentation import cut_windows, random_windows
from sightline.training.data_config import BACKBONES, DETECTOR, DataConfig
from sightline.training.tensor_tables import Pool, SceneTable
from sightline.vision.efficientnet_lite import Variant
from sightline.vision.encoder import VisionModel
from sightline.vision.feature_store import FeatureStore
from sightline.vision.fold_batch_norm import fold

BATCH = 256
KEPT = (
    "regions",
    "region_mask",
    "boxes",
    "scores",
    "grid",
    "grid_mask",
    "vector",
    "names",
    "name_scores",
    "name_boxes",
)


@torch.no_grad()
def cache_features(
    pool: Pool, vision: VisionModel, device: torch.device, budget: float, views: int = 1, window: float = 1.0
) -> Pool:
    """The pool with scenes instead of pixels, on `device`; the pool itself if they would take more than `budget` GiB.

    On a GPU, features are kept in half precision. The first of several views is the whole photo, the others are random
    windows whose sides are `window` of its sides or more: a vision model that was trained on these photos with their
    captions knows them by heart, but not their parts.
    """
    if pool.scenes is None or not len(pool):
        return pool
    mark, eyes = vision.fingerprint(), _folded(vision).to(device)
    rows = torch.split(torch.arange(len(pool)), BATCH)
    whole: dict[str, Tensor] = {}
    shapes: list[tuple[int, int] | None] = []
    with ThreadPoolExecutor(1) as reader:  # the next photos are read while these are looked at
        coming = reader.submit(pool.scenes.batch, rows[0])
        for chosen, following in zip(rows, (*rows[1:], None), strict=True):
            pixels = coming.result().to(device)
            if pixels.pixels is None:
                return pool
            if following is not None:
                coming = reader.submit(pool.scenes.batch, following)
            looks = [_look(eyes, pixels), *(_look(eyes, _part(pixels, window)) for _ in range(1, views))]
            parts = {
                name: torch.stack([getattr(seen, name) for seen in looks], 1)  # (n, views, …)
                for name in (*KEPT, "sizes")
                if isinstance(getattr(looks[0], name), Tensor)
            }
            if not whole:
                if _gigabytes(parts) / len(chosen) * len(pool) > budget:
                    return pool
                whole = {name: part.new_empty(len(pool), *part.shape[1:]) for name, part in parts.items()}
            for name, part in parts.items():
                whole[name][chosen[0] : chosen[-1] + 1] = part
            shapes += [shape for shape in looks[0].grid_shapes for _ in looks]
    flat = {name: part.flatten(0, 1) for name, part in whole.items()}
    ids = tuple(id for id in pool.ids for _ in range(views))
    table = SceneTable(SceneBatch(ids, **flat, grid_shapes=tuple(shapes), fingerprint=mark), views)
    return replace(pool, scenes=table)


def _folded(vision: VisionModel) -> VisionModel:
    return cast("VisionModel", fold(copy.deepcopy(vision).eval()))


def _part(scenes: SceneBatch, window: float) -> SceneBatch:
    pixels = scenes.part("pixels")
    windows = random_windows(pixels.new_full((len(pixels),), window, dtype=torch.float))
    upright = torch.zeros(len(pixels), dtype=torch.bool, device=pixels.device)
    return replace(scenes, pixels=cut_windows(windows, upright, pixels, pixels.shape[-1]))


def _look(vision: VisionModel, pixels: SceneBatch) -> SceneBatch:
    half = pixels.pixels is not None and pixels.pixels.is_cuda
    with torch.autocast("cuda", torch.bfloat16, enabled=half):
        seen = vision.scenes(pixels.part("pixels"), pixels.ids, "")
    kept = {name: getattr(seen, name) for name in KEPT if isinstance(getattr(seen, name), Tensor)}
    if half:
        wide = ("regions", "grid", "vector")
        kept = {name: part.half() if name in wide else part for name, part in kept.items()}
    return SceneBatch(seen.ids, **kept, sizes=pixels.sizes, grid_shapes=seen.grid_shapes)


def _gigabytes(parts: dict[str, Tensor]) -> float:
    return sum(part.numel() * part.element_size() for part in parts.values()) / (1 << 30)


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
    images, store = existing_path(config.path(config.images, base)), config.path(config.features, base)
    held = set(FeatureStore(store).ids()) if store.exists() else set()
    if not held.issuperset(photo_files(images)):
        from sightline.jobs import extract_job
        from sightline.vision.encoder import InferenceEncoder
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
        from sightline.jobs.extract_job import vision_of

        return vision_of(None if name == DETECTOR else name)
    model = find(name).model
    if not isinstance(model, EndToEnd):
        raise ConfigError(f"data.encoder is {name}, which has no vision model", fix="name one trained with `vision`")
    return model.vision
