"""Features that a vision model makes before training: in a store on disk, or in memory where it does not learn."""

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
from sightline.training.data_config import BACKBONES, DETECTOR, DataConfig
from sightline.training.tensor_tables import PARTS, Pool, SceneTable
from sightline.training.training_photos import cut_windows, random_windows
from sightline.vision.efficientnet_lite import Variant
from sightline.vision.encoder import VisionModel
from sightline.vision.feature_store import FeatureStore
from sightline.vision.fold_batch_norm import fold

BATCH = 256  # photos that are looked at together
SCENE_PARTS = (*PARTS, "region_mask", "grid_mask", "names", "name_scores", "name_boxes")  # that are kept


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
    folded = cast("VisionModel", fold(copy.deepcopy(vision).eval())).to(device)
    rows = torch.split(torch.arange(len(pool)), BATCH)
    tables: dict[str, Tensor] = {}
    shapes: list[tuple[int, int] | None] = []
    with ThreadPoolExecutor(1) as reader:  # the next photos are read while these are looked at
        coming = reader.submit(pool.scenes.batch, rows[0])
        for chosen, following in zip(rows, (*rows[1:], None), strict=True):
            photos = coming.result().to(device)
            if photos.pixels is None:
                return pool
            if following is not None:
                coming = reader.submit(pool.scenes.batch, following)
            scenes = [_encode(folded, photos), *(_encode(folded, _crop(photos, window)) for _ in range(1, views))]
            parts = {
                name: torch.stack([getattr(view, name) for view in scenes], 1)  # (n, views, …)
                for name in (*SCENE_PARTS, "sizes")
                if isinstance(getattr(scenes[0], name), Tensor)
            }
            if not tables:
                size = sum(part.nbytes for part in parts.values()) / len(chosen) * len(pool)
                if size > budget * (1 << 30):
                    return pool
                tables = {name: part.new_empty(len(pool), *part.shape[1:]) for name, part in parts.items()}
            for name, part in parts.items():
                tables[name][chosen[0] : chosen[-1] + 1] = part
            shapes += [shape for shape in scenes[0].grid_shapes for _ in scenes]
    flat = {name: part.flatten(0, 1) for name, part in tables.items()}
    ids = tuple(id for id in pool.ids for _ in range(views))
    batch = SceneBatch(ids, **flat, grid_shapes=tuple(shapes), fingerprint=vision.fingerprint())
    return replace(pool, scenes=SceneTable(batch, views))


def _crop(scenes: SceneBatch, window: float) -> SceneBatch:
    pixels = scenes.part("pixels")
    windows = random_windows(pixels.new_full((len(pixels),), window, dtype=torch.float))
    upright = torch.zeros(len(pixels), dtype=torch.bool, device=pixels.device)
    return replace(scenes, pixels=cut_windows(windows, upright, pixels, pixels.shape[-1]))


def _encode(vision: VisionModel, photos: SceneBatch) -> SceneBatch:
    pixels = photos.part("pixels")
    with torch.autocast("cuda", torch.bfloat16, enabled=pixels.is_cuda):
        scenes = vision.scenes(pixels, photos.ids, "")
    parts = {name: getattr(scenes, name) for name in SCENE_PARTS if isinstance(getattr(scenes, name), Tensor)}
    for name in ("regions", "grid", "vector"):
        if pixels.is_cuda and name in parts:
            parts[name] = parts[name].half()
    return SceneBatch(scenes.ids, **parts, sizes=photos.sizes, grid_shapes=scenes.grid_shapes)


Progress = Callable[[Sequence[Path]], Iterable[Path]]
SIZE = 224  # pixels of a side for ImageNet's backbones; photos are squashed to squares
POOL = 2  # a detector's grid of 10 · 10 cells is kept as 5 · 5 means: 110,000 photos are 12 GB instead of 33


def extract(
    config: DataConfig,
    base: Path,
    device: torch.device,
    find: Callable[[str], Checkpoint],
    progress: Progress = iter,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Extract features that are missing; gives what a checkpoint says about its preprocessing.

    The config names photos, store and encoder; without an encoder there is nothing to do. `find` gives the trained
    model that it may name, `progress` wraps the photos. Files that cannot be read are left out; at the
    end `say` lists those that no earlier run has listed.
    """
    if not config.encoder or config.images is None or config.features is None:
        return {}
    images, store = existing_path(config.path(config.images, base)), config.path(config.features, base)
    extracted = set(FeatureStore(store).ids()) if store.exists() else set()
    if not extracted.issuperset(photo_files(images)):
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


def _vision(name: str, find: Callable[[str], Checkpoint]) -> VisionModel:
    if name in BACKBONES:
        from sightline.vision.grid_encoder import ImageNetEncoder

        return ImageNetEncoder.imagenet(cast("Variant", name), SIZE)
    if name == DETECTOR:
        from sightline.jobs.extract_job import vision_of

        return vision_of(None)
    model = find(name).model
    if not isinstance(model, EndToEnd):
        raise ConfigError(f"data.encoder is {name}, which has no vision model", fix="name one trained with `vision`")
    return model.vision
