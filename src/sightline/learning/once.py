"""A vision model that does not learn looks at each photo once; what it saw is kept for all that follows."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from sightline.batch import SceneBatch
from sightline.learning.tables import Pool, SceneTable
from sightline.vision.folded import fold
from sightline.vision.zoo import VisionModel

BATCH = 256
KEPT = ("regions", "region_mask", "boxes", "scores", "grid", "grid_mask", "vector")


@torch.no_grad()
def seen_once(pool: Pool, vision: VisionModel, device: torch.device, budget: float) -> Pool:
    """The pool with scenes instead of pixels, on `device`; the pool itself if they would take more than `budget` GiB.

    On a GPU, features are kept in half precision.
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
            seen = _look(eyes, pixels)
            parts = {name: part for name in (*KEPT, "sizes") if isinstance(part := getattr(seen, name), Tensor)}
            if not whole:
                if _gigabytes(parts) / len(chosen) * len(pool) > budget:
                    return pool
                whole = {name: part.new_empty(len(pool), *part.shape[1:]) for name, part in parts.items()}
            for name, part in parts.items():
                whole[name][chosen[0] : chosen[-1] + 1] = part
            shapes += seen.grid_shapes
    table = SceneBatch(pool.ids, **whole, grid_shapes=tuple(shapes), fingerprint=mark)
    return replace(pool, scenes=SceneTable(table))


def _folded(vision: VisionModel) -> VisionModel:
    return cast("VisionModel", fold(copy.deepcopy(vision).eval()))


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
