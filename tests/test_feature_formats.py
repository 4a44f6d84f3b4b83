"""What holds for every feature format: each knows its own files, and inspection survives any damage."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from feature_samples import assert_same_scenes, sample_scenes
from sightline.data import bottom_up_tsv, hdf5_features, lmdb_features, npz_folder, precomp
from sightline.data.feature_source import Tally, score_parts
from sightline.data.format import Format, Probe
from sightline.errors import DataError, MissingRecordError
from sightline.scene import Scene

pytest.importorskip("h5py")
pytest.importorskip("lmdb")

NAMES = {"bottom-up-tsv": "x.tsv", "m2-hdf5": "x.hdf5", "lmdb": "x.lmdb", "npz-folder": "x", "precomp": "x_precomp"}
FORMATS = [module.FORMAT for module in (bottom_up_tsv, hdf5_features, lmdb_features, npz_folder, precomp)]
every_format = pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)


def written(format: Format, folder: Path, scenes: Iterable[Scene] | None = None) -> Path:
    path = folder / NAMES[format.name]
    assert format.write_scenes is not None
    format.write_scenes(path, sample_scenes() if scenes is None else scenes)
    return path


@every_format
def test_a_written_file_is_recognised_by_its_own_format_only(format: Format, tmp_path: Path) -> None:
    path = written(format, tmp_path)
    assert [other.name for other in FORMATS if other.matches(Probe(path))] == [format.name]


@every_format
def test_a_sound_file_is_reported_without_problems(format: Format, tmp_path: Path) -> None:
    report = format.inspect(written(format, tmp_path))
    assert report.format == format.name
    assert report.problems == ()
    assert report.counts["images"] == 3
    assert report.counts["regions"] == 6
    assert report.counts["regions per image"] == "2"
    assert report.counts["features"] == "4 × float32"


@every_format
def test_regions_keep_their_order(format: Format, tmp_path: Path) -> None:
    regions = np.array([[3, 0], [1, 0], [2, 0]], np.float32)
    boxes = np.array([[0, 0, 1, 1]] * 3, np.float32)
    path = written(format, tmp_path, [Scene("1", boxes, regions=regions, size=(2, 2))])
    assert format.scenes is not None
    np.testing.assert_array_equal(format.scenes(path)["1"].regions, regions)


@every_format
def test_a_missing_id_is_never_made_up(format: Format, tmp_path: Path) -> None:
    path = written(format, tmp_path)
    assert format.scenes is not None
    with pytest.raises(MissingRecordError) as caught:
        format.scenes(path)["99"]
    assert str(path) in str(caught.value)
    assert "image 99" in str(caught.value)


@every_format
def test_converting_to_any_other_format_keeps_the_regions(format: Format, tmp_path: Path) -> None:
    scenes = [Scene(scene.id, regions=scene.regions) for scene in sample_scenes()]
    assert format.scenes is not None
    source = format.scenes(written(format, tmp_path, sample_scenes()))
    for other in FORMATS:
        if other.name != "bottom-up-tsv":  # which needs boxes
            plain = (Scene(scene.id, regions=scene.regions) for scene in source)
            target = written(other, tmp_path / f"to-{other.name}", plain)
            assert other.scenes is not None
            assert_same_scenes(list(other.scenes(target)), scenes)


@every_format
def test_a_failed_write_leaves_what_was_there(format: Format, tmp_path: Path) -> None:
    path = written(format, tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(DataError):
        written(format, tmp_path, sample_scenes(1) * 2)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    assert path.exists()


def _cut(raw: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw))]


def _changed(raw: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(raw))
    return raw[:place] + bytes([rng.randrange(256)]) + raw[place + 1 :]


@pytest.mark.parametrize("damage", [_cut, _changed])
@pytest.mark.parametrize(
    "format", [format for format in FORMATS if format.name != "lmdb"], ids=lambda format: format.name
)  # LMDB itself crashes on changed pages; a cut file is tested with its reader
def test_inspection_survives_any_damage(
    format: Format, damage: Callable[[bytes, random.Random], bytes], tmp_path: Path
) -> None:
    sound = written(format, tmp_path / "sound")
    rng = random.Random(0)
    for turn in range(25):
        copy = tmp_path / f"{turn}" / sound.name
        copy.parent.mkdir()
        shutil.copytree(sound, copy) if sound.is_dir() else shutil.copy(sound, copy)
        victim = rng.choice(sorted(file for file in [copy, *copy.rglob("*")] if file.is_file()))
        victim.write_bytes(damage(victim.read_bytes(), rng))
        report = format.inspect(copy)
        assert len(report.problems) == min(report.problem_count, 20)


def test_scores_are_the_best_class_that_is_not_background() -> None:
    table = np.array([[0.9, 0.05, 0.06], [0.98, 0.015, 0.005]])
    assert score_parts(table)["scores"].tolist() == [0.06, 0.015]
    assert score_parts(np.array([0.9, 0.9, 0.1]))["scores"].tolist() == [0.9, 0.9, 0.1]
    assert score_parts(np.array([[0.9], [0.1]]))["scores"].tolist() == [0.9, 0.1]
    assert score_parts(np.array([0.1, 0.9])) == {}
    assert score_parts(None) == {}


def test_a_tally_of_nothing_is_no_images() -> None:
    assert Tally().counts() == {"images": 0}
