"""A vision model that does not learn looks at each photo once, or a few times; what it saw is kept for what follows."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from sightline.batch import SceneBatch
from sightline.training.augmentation import cut_windows, random_windows
from sightline.training.tensor_tables import Pool, SceneTable, SceneViews
from sightline.vision.fold_batch_norm import fold
from sightline.vision.vision_models import VisionModel

BATCH = 256
KEPT = ("regions", "region_mask", "boxes", "scores", "grid", "grid_mask", "vector")


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
    table = SceneTable(SceneBatch(ids, **flat, grid_shapes=tuple(shapes), fingerprint=mark))
    return replace(pool, scenes=table if views == 1 else SceneViews(table, views))


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
