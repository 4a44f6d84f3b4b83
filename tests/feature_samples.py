"""Scenes for the tests of feature files."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sightline.data.feature_source import FeatureSource
from sightline.scene import Scene


def sample_scenes(count: int = 3, regions: int = 2, width: int = 4, **parts: Any) -> list[Scene]:
    """Scenes "11", "12", ... with boxes and size, the same at every call."""
    rng = np.random.default_rng(7)
    return [
        Scene(
            str(11 + number),
            boxes=sample_boxes(rng, regions),
            regions=rng.standard_normal((regions, width)).astype(np.float32),
            size=(640, 480),
            **parts,
        )
        for number in range(count)
    ]


def sample_boxes(rng: np.random.Generator, regions: int) -> np.ndarray:
    corners = rng.random((regions, 2, 2), dtype=np.float32)
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)


@st.composite
def scene_lists(draw: st.DrawFn, *, boxes: bool = False, same_count: bool = False, scores: bool = False) -> list[Scene]:
    """1 to 4 scenes with 1 to 5 regions of one width 1 to 8 and one type; ids are words of digits and letters."""
    width = draw(st.integers(1, 8))
    dtype = draw(st.sampled_from([np.float16, np.float32]))
    counts = st.just(draw(st.integers(1, 5))) if same_count else st.integers(1, 5)
    ids = draw(st.lists(st.text("0123456789abé_-", min_size=1, max_size=8), min_size=1, max_size=4, unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scenes = []
    for id in ids:
        count = draw(counts)
        parts: dict[str, Any] = {"regions": (100 * rng.standard_normal((count, width))).astype(dtype)}
        if boxes:
            size = (draw(st.integers(1, 4000)), draw(st.integers(1, 4000)))
            parts |= {"boxes": sample_boxes(rng, count), "size": size}
        if scores:
            parts["scores"] = np.sort(rng.random(count, dtype=np.float32))[::-1].copy()
        scenes.append(Scene(id, **parts))
    return scenes


def assert_same_scenes(found: list[Scene], expected: list[Scene], *, float32: bool = False) -> None:
    """The same ids with the same values; boxes went through pixels, so to within float32's precision.

    `float32` is for formats that hold nothing else; values are the same all the same.
    """
    assert sorted(scene.id for scene in found) == sorted(scene.id for scene in expected)
    by_id = {scene.id: scene for scene in found}
    for scene in expected:
        twin = by_id[scene.id]
        assert twin.regions is not None
        assert scene.regions is not None
        assert twin.regions.dtype == (np.float32 if float32 else scene.regions.dtype)
        np.testing.assert_array_equal(twin.regions, scene.regions)
        assert (twin.boxes is None) == (scene.boxes is None)
        assert (twin.scores is None) == (scene.scores is None)
        if scene.scores is not None:
            np.testing.assert_array_equal(twin.scores, scene.scores)
        if scene.boxes is not None:
            assert twin.size == scene.size
            np.testing.assert_allclose(twin.boxes, scene.boxes, atol=2e-7)


def read_in_forked_process(source: FeatureSource, id: str) -> Scene:
    """What a forked worker reads from a source that its parent has already opened and read from."""
    source[id]
    global _forked
    _forked = source  # reaches the worker through the fork, not through pickle
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        return pool.submit(_read_forked, id).result(timeout=60)


_forked: FeatureSource


def _read_forked(id: str) -> Scene:
    return _forked[id]
