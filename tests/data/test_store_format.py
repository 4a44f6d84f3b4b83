"""The feature store takes part in `sightline data` like every other format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sightline.data.format import Probe
from sightline.data.store_format import FORMAT, write_scenes
from sightline.errors import DataError, DuplicateRecordError
from sightline.scene import Concept, Scene
from sightline.vision.feature_store import FeatureStore


def some(count: int) -> list[Scene]:
    return [
        Scene(f"{n}.jpg", regions=np.full((n, 4), n, np.float16), concepts=(Concept("dog"),), fingerprint="maker")
        for n in range(count)
    ]


def test_scenes_written_are_recognised_counted_and_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "scenes"
    assert FORMAT.write_scenes is not None
    assert FORMAT.scenes is not None
    assert FORMAT.write_scenes(folder, iter(some(4))) == 4
    assert FORMAT.matches(Probe(folder))
    assert list(FORMAT.scenes(folder)) == some(4)
    report = FORMAT.inspect(folder)
    assert report.counts == {"scenes": 4, "with regions": 4, "with concepts": 4, "regions per scene": "0–3"}
    assert report.notes == ("numbers are float16", "made by maker")
    assert report.problem_count == 0


def test_no_scenes_make_an_empty_store(tmp_path: Path) -> None:
    assert write_scenes(tmp_path / "scenes", []) == 0
    assert FORMAT.matches(Probe(tmp_path / "scenes"))
    assert FORMAT.inspect(tmp_path / "scenes").counts == {"scenes": 0}


def test_float32_is_kept_where_asked_for(tmp_path: Path) -> None:
    scene = Scene("a", vector=np.array([1e5], np.float32))
    write_scenes(tmp_path / "scenes", [scene], dtype="float32")
    assert FeatureStore(tmp_path / "scenes")["a"] == scene


def test_a_run_that_stops_is_continued_by_the_next(tmp_path: Path) -> None:
    def broken() -> Iterator[Scene]:
        yield from some(2)
        raise DataError("the source is cut")

    with pytest.raises(DataError, match="the source is cut"):
        write_scenes(tmp_path / "scenes", broken())
    assert list(FeatureStore(tmp_path / "scenes")) == some(2)
    assert write_scenes(tmp_path / "scenes", some(4)) == 4
    assert list(FeatureStore(tmp_path / "scenes")) == some(4)


def test_scenes_of_two_makers_do_not_become_one_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one vision model"):
        write_scenes(tmp_path / "scenes", [*some(1), Scene("b", vector=np.zeros(1, np.float16))])


def test_another_scene_under_a_held_id_is_refused(tmp_path: Path) -> None:
    write_scenes(tmp_path / "scenes", some(2))
    other = Scene("1.jpg", regions=np.full((1, 4), 9, np.float16), fingerprint="maker")
    with pytest.raises(DuplicateRecordError, match=r"another scene of image 1\.jpg"):
        write_scenes(tmp_path / "scenes", [other])
    assert list(FeatureStore(tmp_path / "scenes")) == some(2)


@pytest.mark.parametrize("lost", ["store.json", "index.jsonl", "data-00000.bin"])
def test_a_store_that_lost_a_file_is_recognised_and_its_problems_are_told(tmp_path: Path, lost: str) -> None:
    write_scenes(tmp_path / "scenes", some(3))
    (tmp_path / "scenes" / lost).unlink()
    assert FORMAT.matches(Probe(tmp_path / "scenes"))
    report = FORMAT.inspect(tmp_path / "scenes")
    assert report.problem_count == (3 if lost == "data-00000.bin" else 1)
    assert lost in report.problems[0]


def test_other_folders_are_not_taken_for_stores(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text("{}")
    assert not FORMAT.matches(Probe(tmp_path))
    assert not FORMAT.matches(Probe(tmp_path / "store.json"))
