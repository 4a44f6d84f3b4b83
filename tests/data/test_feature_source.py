"""What holds for every feature format: each knows its own files, and inspection survives any damage."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feature_samples import assert_same_scenes, sample_scenes
from sightline.data import bottom_up_tsv, hdf5_features, lmdb_features, npz_folder, precomp, store_format
from sightline.data.feature_source import score_parts
from sightline.data.format import Format, Probe
from sightline.errors import CountError, DataError, MissingRecordError, NonFiniteError
from sightline.scene import SUPPLIERS, Concept, Scene

pytest.importorskip("h5py")
pytest.importorskip("lmdb")

NAMES = {
    "bottom-up-tsv": "x.tsv",
    "m2-hdf5": "x.hdf5",
    "lmdb": "x.lmdb",
    "npz-folder": "x",
    "precomp": "x_precomp",
    "sightline-store": "store",
}
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
    assert score_parts(table, 2)["scores"].tolist() == [0.06, 0.015]
    assert score_parts(np.array([0.9, 0.9, 0.1]), 3)["scores"].tolist() == [0.9, 0.9, 0.1]
    assert score_parts(np.array([[0.9], [0.1]]), None)["scores"].tolist() == [0.9, 0.1]
    assert score_parts(np.array([0.1, 0.9]), 2) == {}
    assert score_parts(np.array([1, 0]), 2)["scores"].dtype.kind == "f"


@pytest.mark.parametrize(
    ("probabilities", "error"),
    [
        (np.full((2, 3), np.nan), NonFiniteError),
        (np.array([0.1, np.inf]), NonFiniteError),
        (np.ones((3, 4)), CountError),
        (np.array(5.0), DataError),
        (np.array(["a", "b"]), DataError),
        (np.ones((2, 0)), DataError),
    ],
)
def test_probabilities_are_checked_before_scores_are_left_out(
    probabilities: np.ndarray, error: type[DataError]
) -> None:
    with pytest.raises(DataError, match="`cls_prob`") as caught:
        score_parts(probabilities, 2)
    assert type(caught.value) is error


@pytest.mark.parametrize("format", [*FORMATS, store_format.FORMAT], ids=lambda format: format.name)
def test_a_round_trip_loses_exactly_the_parts_that_the_format_does_not_keep(format: Format, tmp_path: Path) -> None:
    (plain,) = sample_scenes(1)
    whole = replace(
        plain,
        scores=np.array([0.9, 0.1], np.float32),
        grid=np.ones((6, 4), np.float32),
        grid_shape=(2, 3),
        vector=np.ones(4, np.float32),
        concepts=(Concept("dog"),),
    )
    assert set(whole.parts()) == set(SUPPLIERS)
    assert format.scenes is not None
    assert set(format.scenes(written(format, tmp_path, [whole]))[whole.id].parts()) == set(format.keeps)


@pytest.mark.parametrize("format", [*FORMATS, store_format.FORMAT], ids=lambda format: format.name)
def test_a_round_trip_gains_no_part_but_self_criticals_mean_vector(format: Format, tmp_path: Path) -> None:
    assert format.scenes is not None
    (plain,) = sample_scenes(1)
    back = format.scenes(written(format, tmp_path, [plain]))[plain.id]
    assert set(back.parts()) - set(plain.parts()) == ({"vector"} if format.name == "npz-folder" else set())


@pytest.mark.parametrize("format", [hdf5_features.FORMAT, npz_folder.FORMAT], ids=lambda format: format.name)
def test_a_size_without_boxes_comes_back(format: Format, tmp_path: Path) -> None:
    assert format.scenes is not None
    (plain,) = sample_scenes(1)
    assert format.scenes(written(format, tmp_path, [replace(plain, boxes=None)]))["11"].size == plain.size


@pytest.mark.parametrize(
    "format", [hdf5_features.FORMAT, lmdb_features.FORMAT, npz_folder.FORMAT], ids=lambda format: format.name
)
def test_features_of_two_widths_in_one_file_are_a_problem(format: Format, tmp_path: Path) -> None:
    scenes = [Scene(str(width), regions=np.ones((3, width), np.float32)) for width in (8, 9)]
    path = written(format, tmp_path, scenes)
    assert format.scenes is not None
    with pytest.raises(CountError, match="9 wide, those of the first image 8") as caught:
        list(format.scenes(path))
    report = format.inspect(path)
    assert str(caught.value) in report.problems
    assert report.counts["images"] == 1


@every_format
def test_a_scene_without_any_region_is_not_written(format: Format, tmp_path: Path) -> None:
    nothing = Scene("1", np.empty((0, 4), np.float32), regions=np.empty((0, 2), np.float32), size=(1, 1))
    with pytest.raises(CountError, match="no region"):
        written(format, tmp_path, [nothing])
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def _disk_of(size: int) -> Iterator[None]:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@every_format
@pytest.mark.parametrize("size", [100, 5000, 40_000])
def test_a_full_disk_is_told_with_the_destination_and_leaves_nothing(format: Format, size: int, tmp_path: Path) -> None:
    path = tmp_path / NAMES[format.name]
    scenes = sample_scenes(3, regions=8, width=2048)
    with _disk_of(size), pytest.raises(DataError) as caught:
        written(format, tmp_path, scenes)
    assert str(caught.value).startswith(f"{path}: cannot write: ")
    assert "make room" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@every_format
def test_a_place_that_cannot_be_written_is_told(format: Format, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file/x.*: cannot write: "):
        written(format, tmp_path / "file")


def test_an_empty_file_is_no_images(tmp_path: Path) -> None:
    (tmp_path / "features.tsv").touch()
    assert bottom_up_tsv.FORMAT.inspect(tmp_path / "features.tsv").counts == {"images": 0}
