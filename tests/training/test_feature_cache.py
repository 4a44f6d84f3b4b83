"""A vision model that does not learn looks at each photo once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sightline.batch import SceneBatch
from sightline.training import feature_cache
from sightline.training.feature_cache import cache_features
from sightline.training.tensor_tables import Pool, SceneTable
from sightline.vision.detector import DetectorConfig
from sightline.vision.grid_encoder import GridEncoder

SIZE = 64


class Photos:
    """Pixels by row, and how often they were asked for."""

    def __init__(self, count: int) -> None:
        self.pixels = np.random.default_rng(0).integers(0, 256, (count, 3, SIZE, SIZE), dtype=np.uint8)
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, rows: torch.Tensor) -> SceneBatch:
        self.asked += rows.tolist()
        pixels = torch.from_numpy(self.pixels[rows.numpy()])
        return SceneBatch(
            tuple(f"photo {row}" for row in rows.tolist()), pixels=pixels, sizes=torch.tensor([[9, 5]] * len(rows))
        )


def pool_of(count: int) -> Pool:
    return Pool(tuple(f"photo {i}" for i in range(count)), Photos(count))


@pytest.fixture(params=["detector", "grid"])
def vision(request):
    torch.manual_seed(0)
    if request.param == "grid":
        return GridEncoder("lite0", SIZE).train()
    return (
        DetectorConfig(variant="lite0", size=SIZE, channels=8, region_width=6, names=("dog",), boxes=4).build().train()
    )


@torch.no_grad()
def test_scenes_are_those_of_the_vision_model_in_evaluation_and_each_photo_is_read_once(vision, monkeypatch):
    monkeypatch.setattr(feature_cache, "BATCH", 2)
    pool = pool_of(5)
    seen = cache_features(pool, vision, torch.device("cpu"), budget=1.0)
    assert isinstance(seen.scenes, SceneTable)
    assert sorted(pool.scenes.asked) == list(range(5))
    assert vision.training
    found = seen.scenes.batch(torch.tensor([3, 0]))
    expected = vision.eval().scenes(torch.from_numpy(pool.scenes.pixels[[3, 0]]), ("photo 3", "photo 0"))
    assert found.ids == expected.ids
    assert found.pixels is None
    assert found.fingerprint == vision.fingerprint()
    assert found.grid_shapes == expected.grid_shapes
    assert found.sizes.tolist() == [[9, 5], [9, 5]]
    for name in ("regions", "boxes", "grid", "vector"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), atol=1e-3, rtol=1e-3)


def test_scenes_that_would_take_too_much_memory_are_not_kept(vision):
    pool = pool_of(4)
    assert cache_features(pool, vision, torch.device("cpu"), budget=1e-9) is pool


def test_pools_without_pixels_stay_as_they_are(vision):
    device = torch.device("cpu")
    seen = cache_features(pool_of(2), vision, device, budget=1.0)
    assert cache_features(seen, vision, device, budget=1.0) is seen
    blind = replace(seen, scenes=None)
    assert cache_features(blind, vision, device, budget=1.0) is blind


@torch.no_grad()
def test_of_several_views_the_first_is_the_whole_photo_and_the_others_are_parts_of_it(vision, monkeypatch):
    monkeypatch.setattr(feature_cache, "BATCH", 2)
    torch.manual_seed(1)
    pool = pool_of(5)
    seen = cache_features(pool, vision, torch.device("cpu"), budget=1.0, views=3, window=0.5).scenes
    assert isinstance(seen, SceneTable)
    assert len(seen) == 5
    assert sorted(pool.scenes.asked) == list(range(5))
    every = seen.batch(torch.tensor([2, 2, 2]), torch.arange(3))
    assert every.ids == ("photo 2",) * 3
    whole = vision.eval().scenes(torch.from_numpy(pool.scenes.pixels[[2]]), ("photo 2",))
    torch.testing.assert_close(every.vector[:1], whole.vector, atol=1e-3, rtol=1e-3)
    assert len({tuple(vector.tolist()) for vector in every.vector}) == 3
    assert torch.equal(seen.batch(torch.tensor([2])).vector, every.vector[:1])
    chosen = seen.batch(torch.tensor([2, 4, 2]), torch.tensor([1, 0, 2]))
    assert chosen.ids == ("photo 2", "photo 4", "photo 2")
    assert torch.equal(chosen.vector[[0, 2]], every.vector[1:])


def test_views_count_towards_the_memory_they_take(vision):
    pool, device = pool_of(4), torch.device("cpu")
    whole = cache_features(pool, vision, device, budget=1.0).scenes.scenes
    parts = [getattr(whole, name) for name in (*feature_cache.SCENE_PARTS, "sizes")]
    budget = 2 * sum(part.numel() * part.element_size() for part in parts if part is not None) / (1 << 30)
    assert cache_features(pool, vision, device, budget, views=2) is not pool
    assert cache_features(pool, vision, device, budget, views=3) is pool
