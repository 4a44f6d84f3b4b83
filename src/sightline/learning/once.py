"""A vision model that does not learn looks at each photo once; what it saw is kept for all that follows."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
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
    parts: list[SceneBatch] = []
    with ThreadPoolExecutor(1) as reader:  # the next photos are read while these are looked at
        coming = reader.submit(pool.scenes.batch, rows[0])
        for following in (*rows[1:], None):
            pixels = coming.result().to(device)
            if pixels.pixels is None:
                return pool
            if following is not None:
                coming = reader.submit(pool.scenes.batch, following)
            parts.append(_look(eyes, pixels))
            if len(parts) == 1 and _gigabytes(parts[0]) * len(rows) > budget:
                return pool
    whole = {name: torch.cat([getattr(part, name) for part in parts]) for name in KEPT if _has(parts[0], name)}
    sizes = None if parts[0].sizes is None else torch.cat([part.sizes for part in parts])  # type: ignore[misc]
    shapes = tuple(shape for part in parts for shape in part.grid_shapes)
    table = SceneBatch(pool.ids, **whole, sizes=sizes, grid_shapes=shapes, fingerprint=mark)
    return replace(pool, scenes=SceneTable(table))


def _folded(vision: VisionModel) -> VisionModel:
    return cast("VisionModel", fold(copy.deepcopy(vision).eval()))


def _look(vision: VisionModel, pixels: SceneBatch) -> SceneBatch:
    half = pixels.pixels is not None and pixels.pixels.is_cuda
    with torch.autocast("cuda", torch.bfloat16, enabled=half):
        seen = vision.scenes(pixels.part("pixels"), pixels.ids, "")
    kept = {name: getattr(seen, name) for name in KEPT if _has(seen, name)}
    if half:
        wide = ("regions", "grid", "vector")
        kept = {name: part.half() if name in wide else part for name, part in kept.items()}
    return SceneBatch(seen.ids, **kept, sizes=pixels.sizes, grid_shapes=seen.grid_shapes)


def _has(scenes: SceneBatch, name: str) -> bool:
    return isinstance(getattr(scenes, name), Tensor)


def _gigabytes(scenes: SceneBatch) -> float:
    tensors = (getattr(scenes, item.name) for item in fields(scenes))
    return sum(part.numel() * part.element_size() for part in tensors if isinstance(part, Tensor)) / (1 << 30)
