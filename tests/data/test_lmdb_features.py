"""self-critical's LMDB files."""

from __future__ import annotations

import io
import mmap
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_samples import assert_same_scenes, read_in_forked_process, sample_scenes, scene_lists
from sightline.data import lmdb_features
from sightline.data.format import Probe
from sightline.data.lmdb_features import FORMAT, LmdbFeatures, write_scenes
from sightline.errors import (
    DataError,
    DuplicateRecordError,
    MissingExtraError,
    MissingPartError,
    MissingRecordError,
    NonFiniteError,
    TruncatedError,
)
from sightline.scene import Scene

lmdb = pytest.importorskip("lmdb")
REGIONS = np.arange(6, dtype=np.float32).reshape(2, 3)


def saved(array: np.ndarray, key: str | None = "feat") -> bytes:
    file = io.BytesIO()
    np.save(file, array) if key is None else np.savez(file, **{key: array})
    return file.getvalue()


def database(path: Path, values: dict[bytes, bytes], folder: bool = False) -> Path:
    environment = lmdb.open(str(path), subdir=folder, map_size=1 << 22, lock=folder)
    with environment.begin(write=True) as transaction:
        for key, value in values.items():
            transaction.put(key, value)
    environment.close()
    return path


@settings(max_examples=20)
@given(data=st.data())
def test_what_is_written_is_read_by_iteration_and_by_id(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scenes = [scene for scene in data.draw(scene_lists()) if not (scene.id[:2] == scene.id[-2:] == "__")]
    path = tmp_path_factory.mktemp("lmdb") / "x.lmdb"
    assert write_scenes(path, scenes) == len(scenes)
    assert [entry.name for entry in path.parent.iterdir()] == ["x.lmdb"]
    source = LmdbFeatures(path)
    assert_same_scenes(list(source), scenes)
    assert_same_scenes([source[scene.id] for scene in scenes], scenes)


def test_the_map_grows_with_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_features, "_FIRST_MAP", 32768)
    scenes = sample_scenes(20, regions=5, width=512)
    write_scenes(tmp_path / "x.lmdb", scenes)
    found = list(LmdbFeatures(tmp_path / "x.lmdb"))
    assert [scene.id for scene in found] == [scene.id for scene in scenes]
    np.testing.assert_array_equal(found[-1].regions, scenes[-1].regions)


@pytest.mark.parametrize("folder", [False, True])
def test_files_and_folders_with_npz_and_npy_values_are_read(folder: bool, tmp_path: Path) -> None:
    values = {b"1": saved(REGIONS), b"2": saved(REGIONS, "z"), b"3": saved(REGIONS, None), b"__len__": b"3"}
    path = database(tmp_path / "x.lmdb", values, folder)
    assert FORMAT.matches(Probe(path))
    source = LmdbFeatures(path)
    assert source.ids() == ["1", "2", "3"]
    assert all(np.array_equal(scene.regions, REGIONS) for scene in source)
    report = FORMAT.inspect(path)
    assert report.counts["images"] == 3
    assert report.problem_count == 0


def test_a_vector_is_read_as_a_vector(tmp_path: Path) -> None:
    path = database(tmp_path / "fc.lmdb", {b"1": saved(REGIONS[0], None)})
    np.testing.assert_array_equal(LmdbFeatures(path)["1"].vector, REGIONS[0])


BROKEN: dict[str, tuple[type[DataError], bytes]] = {
    "empty": (TruncatedError, b""),
    "cut npz": (TruncatedError, saved(REGIONS)[:100]),
    "cut npy": (TruncatedError, saved(REGIONS, None)[:-1]),
    "neither": (DataError, b"hello"),
    "no features": (MissingRecordError, saved(REGIONS, "bogus")),
    "NaN": (NonFiniteError, saved(REGIONS * np.nan)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_value_is_named_by_reading_and_listed_by_inspection(name: str, tmp_path: Path) -> None:
    kind, value = BROKEN[name]
    path = database(tmp_path / "x.lmdb", {b"1": saved(REGIONS), b"2": value})
    with pytest.raises(DataError) as caught:
        LmdbFeatures(path)["2"]
    assert type(caught.value) is kind
    assert f"{path}, image 2" in str(caught.value)
    report = FORMAT.inspect(path)
    assert report.problems == (str(caught.value),)
    assert report.counts["images"] == 1


@pytest.mark.parametrize("keep", [10, 5000, 12000])
def test_a_cut_database_is_refused_before_it_can_crash_python(keep: int, tmp_path: Path) -> None:
    path = database(tmp_path / "x.lmdb", {b"%d" % n: saved(np.ones((9, 99), np.float32)) for n in range(9)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"x\.lmdb"):
        LmdbFeatures(path).ids()
    assert FORMAT.matches(Probe(path))
    assert FORMAT.inspect(path).problem_count == 1


def _spoil_leaves(path: Path) -> None:
    with path.open("r+b") as file:
        for start in range(2 * mmap.PAGESIZE, path.stat().st_size, mmap.PAGESIZE):
            file.seek(start + 10)  # the flags of a page
            if file.read(2) == b"\x02\x00":
                file.seek(start + 10)
                file.write(bytes(2))


def test_a_damaged_page_is_told_as_damage(tmp_path: Path) -> None:
    path = database(tmp_path / "x.lmdb", {b"1": saved(REGIONS)})
    _spoil_leaves(path)
    with pytest.raises(DataError, match=r"x\.lmdb: damaged LMDB"):
        LmdbFeatures(path).ids()
    assert FORMAT.inspect(path).problem_count == 1


def test_a_page_damaged_after_the_ids_were_read_is_told_with_the_image(tmp_path: Path) -> None:
    path = database(tmp_path / "x.lmdb", {b"1": saved(REGIONS)})
    source = LmdbFeatures(path)
    assert source.ids() == ["1"]
    _spoil_leaves(path)
    with pytest.raises(DataError, match=r"x\.lmdb, image 1: damaged LMDB"):
        source["1"]


def test_a_folder_without_a_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.mdb: no such file"):
        LmdbFeatures(tmp_path).ids()


def test_a_missing_id_names_the_file_and_the_id(tmp_path: Path) -> None:
    source = LmdbFeatures(database(tmp_path / "x.lmdb", {b"1": saved(REGIONS)}))
    with pytest.raises(MissingRecordError, match=r"x\.lmdb: no features of image 2 "):
        source["2"]


@pytest.mark.parametrize(
    ("scenes", "error"),
    [
        (sample_scenes(1) * 2, DuplicateRecordError),
        ([Scene("1", vector=REGIONS[0])], MissingPartError),
        ([Scene("", regions=REGIONS)], DataError),
        ([Scene("__len__", regions=REGIONS)], DataError),
    ],
)
def test_a_scene_that_does_not_fit_leaves_no_file(scenes: list[Scene], error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        write_scenes(tmp_path / "x.lmdb", scenes)
    assert list(tmp_path.iterdir()) == []


def test_a_source_goes_to_worker_processes(tmp_path: Path) -> None:
    source = LmdbFeatures(database(tmp_path / "x.lmdb", {b"1": saved(REGIONS)}))
    assert pickle.loads(pickle.dumps(source))["1"] == source["1"]
    assert read_in_forked_process(source, "1") == source["1"]


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = database(tmp_path / "x.lmdb", {b"1": saved(REGIONS)})
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(MissingExtraError, match=r"sightline\[train\]"):
        LmdbFeatures(path).ids()
    with pytest.raises(MissingExtraError, match="lmdb"):
        write_scenes(tmp_path / "y.lmdb", [])
