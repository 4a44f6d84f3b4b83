"""Folders of npz and npy files: self-critical's, xmodaler's, GVD's."""

from __future__ import annotations

import io
import pickle
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_samples import assert_same_scenes, sample_scenes, scene_lists
from sightline.data.format import Probe
from sightline.data.npz_folder import FORMAT, NpzFolder, write_scenes
from sightline.errors import (
    BoxError,
    ChecksumError,
    CountError,
    DataError,
    DuplicateRecordError,
    MissingPartError,
    MissingRecordError,
    NonFiniteError,
    TruncatedError,
)
from sightline.scene import Scene

REGIONS = np.arange(6, dtype=np.float32).reshape(2, 3)
PIXELS = np.array([[10, 20, 110, 220], [0, 0, 640, 480]], dtype=np.float32)


def self_critical(parent: Path, ids: str = "78") -> Path:
    for kind in ("att", "fc", "box"):
        (parent / f"cocobu_{kind}").mkdir(parents=True)
    for id in ids:
        np.savez_compressed(parent / "cocobu_att" / f"{id}.npz", feat=REGIONS + int(id))
        np.save(parent / "cocobu_fc" / f"{id}.npy", REGIONS.mean(0))
        np.save(parent / "cocobu_box" / f"{id}.npy", PIXELS)
    return parent


@settings(max_examples=25)
@given(data=st.data())
def test_what_is_written_is_read_from_the_parent_and_from_the_folder(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scenes = data.draw(scene_lists(boxes=data.draw(st.booleans())))
    path = tmp_path_factory.mktemp("npz") / "features"
    assert write_scenes(path, scenes) == len(scenes)
    for place in (path, path / "cocobu_att"):
        source = NpzFolder(place)
        assert_same_scenes(list(source), scenes)
        assert_same_scenes([source[scene.id] for scene in scenes], scenes)
        for scene in scenes:
            np.testing.assert_array_equal(source[scene.id].vector, scene.regions.mean(axis=0))


def test_a_global_vector_is_written_as_it_is(tmp_path: Path) -> None:
    write_scenes(tmp_path / "x", sample_scenes(1, vector=np.array([1, 2], np.float32)))
    np.testing.assert_array_equal(NpzFolder(tmp_path / "x")["11"].vector, [1, 2])


def test_boxes_need_the_image_size_and_the_report_says_so(tmp_path: Path) -> None:
    folder = self_critical(tmp_path / "x")
    assert NpzFolder(folder)["7"].boxes is None
    report = FORMAT.inspect(folder)
    assert report.problem_count == 0
    assert report.counts["images"] == 2
    assert report.counts["with a global vector"] == 2
    assert any(note.startswith("boxes of 2 images left out") for note in report.notes)
    np.savez(folder / "cocobu_att" / "7.npz", feat=REGIONS, image_w=640, image_h=480)
    np.testing.assert_allclose(NpzFolder(folder)["7"].pixel_boxes(), PIXELS, atol=1e-4)


@pytest.mark.parametrize("key", ["feat", "z", "features"])
def test_features_have_any_of_three_names(key: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "5.npz", **{key: REGIONS})
    np.testing.assert_array_equal(NpzFolder(tmp_path)["5"].regions, REGIONS)


def test_xmodaler_files_hold_size_and_boxes_and_scores_in_descending_order(tmp_path: Path) -> None:
    size = {"image_w": [640], "image_h": [480]}
    probabilities = np.array([[0.1, 0.2, 0.7], [0.9, 0.06, 0.04]], np.float32)  # background first
    np.savez(tmp_path / "5.npz", features=REGIONS, boxes=PIXELS, cls_prob=probabilities, **size)
    np.savez(tmp_path / "6.npz", features=REGIONS, boxes=PIXELS, cls_prob=probabilities[::-1], **size)
    source = NpzFolder(tmp_path)
    np.testing.assert_allclose(source["5"].pixel_boxes(), PIXELS, atol=1e-4)
    np.testing.assert_array_equal(source["5"].scores, np.array([0.7, 0.06], np.float32))
    assert source["6"].scores is None
    np.testing.assert_array_equal(source["6"].regions, REGIONS)
    report = FORMAT.inspect(tmp_path)
    assert report.counts["with scores"] == 1
    assert report.notes == ("scores of 1 image left out: the stored order of the regions is not by descending score",)


def test_an_array_is_a_vector_regions_or_a_grid_by_its_dimensions(tmp_path: Path) -> None:
    np.save(tmp_path / "1.npy", np.ones(4, np.float16))
    np.save(tmp_path / "2.npy", np.ones((100, 4), np.float16))
    np.save(tmp_path / "3.npy", np.arange(24, dtype=np.float16).reshape(2, 3, 4))
    source = NpzFolder(tmp_path)
    assert source["1"].vector is not None
    assert source["1"].vector.dtype == np.float16
    assert len(source["2"]) == 100
    assert source["3"].grid_shape == (2, 3)
    np.testing.assert_array_equal(source["3"].grid[4], [16, 17, 18, 19])
    assert FORMAT.inspect(tmp_path).problem_count == 0


def test_arrays_in_another_byte_or_axis_order_are_read_as_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "1.npy", np.asfortranarray(REGIONS.astype(">f4")))
    found = NpzFolder(tmp_path)["1"].regions
    np.testing.assert_array_equal(found, REGIONS)
    assert found.dtype == np.float32


def test_a_missing_id_names_the_folder_and_the_id(tmp_path: Path) -> None:
    with pytest.raises(MissingRecordError, match=r"x: no features of image 9 "):
        NpzFolder(self_critical(tmp_path / "x"))["9"]


def _bytes(make: Any, *args: Any, **arrays: Any) -> Any:
    return lambda path: make(path, *args, **arrays)


def _cut(path: Path, keep: float) -> None:
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[200] ^= 0xFF  # inside the stored numbers
    path.write_bytes(raw)


def _garble(path: Path) -> None:
    np.savez_compressed(path, feat=np.random.default_rng(0).random((9, 9)))
    raw = path.read_bytes()
    path.write_bytes(raw[:60] + b"\xff" * 20 + raw[80:])


def _negative(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"(3,), ", b"(-3,),"))


NAN = np.where(REGIONS == 4, np.nan, REGIONS)
ATT, FC, BOX = "cocobu_att/8.npz", "cocobu_fc/8.npy", "cocobu_box/8.npy"
BROKEN: dict[str, tuple[type[DataError], str, Any]] = {
    "cut npz": (TruncatedError, ATT, lambda path: _cut(path, 0.5)),
    "npz cut to three bytes": (TruncatedError, ATT, lambda path: path.write_bytes(b"PK\x03")),
    "empty npz": (TruncatedError, ATT, lambda path: path.write_bytes(b"")),
    "changed bytes": (ChecksumError, ATT, lambda path: (np.savez(path, feat=REGIONS), _flip(path))),
    "another kind of file": (DataError, ATT, lambda path: path.write_bytes(b"<html>not found</html>")),
    "changed compressed bytes": (DataError, ATT, _garble),
    "no features": (MissingRecordError, ATT, _bytes(np.savez, bogus=REGIONS)),
    "boxes without features": (MissingRecordError, ATT, _bytes(np.savez, boxes=PIXELS)),
    "pickled objects": (DataError, ATT, _bytes(np.savez, feat=np.array([{}, None], dtype=object))),
    "whole numbers": (DataError, ATT, _bytes(np.savez, feat=np.ones((2, 3), np.int32))),
    "five dimensions": (DataError, ATT, _bytes(np.savez, feat=np.ones((1, 1, 1, 1, 3)))),
    "NaN": (NonFiniteError, ATT, _bytes(np.savez, feat=NAN)),
    "missing vector": (MissingRecordError, FC, Path.unlink),
    "cut vector": (TruncatedError, FC, lambda path: _cut(path, 0.95)),
    "cut header": (TruncatedError, FC, lambda path: _cut(path, 0.3)),
    "header of nonsense": (DataError, FC, lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x04\x00nope")),
    "header of a negative shape": (DataError, FC, _negative),
    "missing boxes": (MissingRecordError, BOX, Path.unlink),
    "one box for two regions": (CountError, BOX, lambda path: np.save(path, PIXELS[:1])),
    "x y width height": (BoxError, BOX, lambda path: np.save(path, PIXELS[:, [2, 3, 0, 1]])),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_file_is_named_by_reading_and_listed_by_inspection(name: str, tmp_path: Path) -> None:
    kind, place, damage = BROKEN[name]
    folder = self_critical(tmp_path / "x")
    damage(folder / place)
    with pytest.raises(DataError) as caught:
        NpzFolder(folder)["8"]
    assert type(caught.value) is kind
    assert "8.np" in str(caught.value)
    assert str(folder) in str(caught.value)
    assert FORMAT.matches(Probe(folder))
    report = FORMAT.inspect(folder)
    assert report.problems == (str(caught.value),)
    assert report.counts["images"] == 1


PLACED = {"boxes": PIXELS, "image_w": 640, "image_h": 480}
STORED: dict[str, tuple[type[DataError], dict[str, Any]]] = {
    "more boxes than regions": (CountError, {"boxes": np.tile(PIXELS, (2, 1))}),
    "NaN boxes": (NonFiniteError, {"boxes": PIXELS * np.nan}),
    "x y width height": (BoxError, {"boxes": PIXELS[:, [2, 3, 0, 1]]}),
    "boxes of five numbers": (BoxError, {"boxes": np.ones((2, 5))}),
    "text for boxes": (DataError, {"boxes": np.array(["a", "b"])}),
    "text for boxes with a size": (DataError, PLACED | {"boxes": np.array(["a", "b"])}),
    "a size of NaN": (DataError, PLACED | {"image_w": np.nan}),
    "an empty size": (DataError, PLACED | {"image_w": np.array([])}),
    "text for a size": (DataError, PLACED | {"image_h": "480"}),
    "text for probabilities": (DataError, {"cls_prob": np.array(["a", "b"])}),
    "one probability": (DataError, {"cls_prob": 0.5}),
    "NaN probabilities": (NonFiniteError, {"cls_prob": np.full((2, 3), np.nan)}),
    "no region at all": (CountError, {"features": np.ones((0, 3), np.float32)}),
}


@pytest.mark.parametrize("name", STORED)
def test_what_a_scene_cannot_have_is_checked_all_the_same(name: str, tmp_path: Path) -> None:
    kind, arrays = STORED[name]
    np.savez(tmp_path / "5.npz", **{"features": REGIONS} | arrays)
    with pytest.raises(DataError) as caught:
        NpzFolder(tmp_path)["5"]
    assert type(caught.value) is kind
    assert str(tmp_path / "5.npz") in str(caught.value)
    report = FORMAT.inspect(tmp_path)
    assert report.problems == (str(caught.value),)
    assert report.notes == ()


@pytest.mark.parametrize("vector", [np.array(["x"]), REGIONS, np.ones(3, np.int64)])
def test_a_global_vector_that_is_none_is_refused(vector: np.ndarray, tmp_path: Path) -> None:
    folder = self_critical(tmp_path / "x")
    np.save(folder / FC, vector)
    with pytest.raises(DataError, match=r"cocobu_fc/8\.npy"):
        NpzFolder(folder)["8"]
    assert FORMAT.inspect(folder).problem_count == 1


def test_an_npz_member_is_unpacked_only_as_far_as_its_header_says(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, REGIONS)
    with zipfile.ZipFile(tmp_path / "5.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("feat.npy", array.getvalue() + bytes(50 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"5\.npz: feat\.npy holds more than the 24 bytes"):
            NpzFolder(tmp_path)["5"]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("header", ["(0, 1" + "0" * 30 + ")", "(1" + "0" * 30 + ", 0)"])
def test_a_header_of_an_impossible_shape_is_refused(header: str, tmp_path: Path) -> None:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {header}, }}\n".encode()
    (tmp_path / "5.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(DataError, match=r"5\.npy: its npy header says"):
        NpzFolder(tmp_path)["5"]


def test_files_of_other_kinds_are_passed_over_and_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "5.npz", feat=REGIONS)
    np.savez(tmp_path / "6.npz", feat=REGIONS)
    (tmp_path / "LICENSE").touch()
    assert FORMAT.matches(Probe(tmp_path))
    assert NpzFolder(tmp_path).ids() == ["5", "6"]
    assert FORMAT.inspect(tmp_path).notes == ("other files here, to be named one by one: LICENSE",)


@pytest.mark.parametrize("other", ["cocotalk.json", "cocotest_att", "notes_fc"])
def test_a_parent_is_taken_for_features_only_where_it_holds_nothing_else(other: str, tmp_path: Path) -> None:
    folder = self_critical(tmp_path / "x")
    assert FORMAT.matches(Probe(folder))
    (folder / other).mkdir()
    assert not FORMAT.matches(Probe(folder))
    assert FORMAT.matches(Probe(folder / "cocobu_att"))


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "5.npz", feat=REGIONS)
    with pytest.raises(DataError, match="a folder was expected"):
        NpzFolder(tmp_path / "5.npz")


def test_two_files_of_one_image_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "5.npz", feat=REGIONS)
    np.save(tmp_path / "5.npy", REGIONS)
    with pytest.raises(DuplicateRecordError, match=r"5\.npy and 5\.npz"):
        list(NpzFolder(tmp_path))
    assert FORMAT.inspect(tmp_path).problem_count == 1


def test_several_feature_folders_must_be_told_apart(tmp_path: Path) -> None:
    for name in ("cocobu", "cocotalk"):
        (tmp_path / f"{name}_att").mkdir()
        np.savez(tmp_path / f"{name}_att" / "1.npz", feat=REGIONS)
    with pytest.raises(DataError, match="cocobu_att, cocotalk_att"):
        NpzFolder(tmp_path)
    assert FORMAT.inspect(tmp_path).problem_count == 1
    assert NpzFolder(tmp_path / "cocobu_att").ids() == ["1"]


def test_a_folder_with_something_in_it_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.mkdir()
    write_scenes(target, sample_scenes(1))
    with pytest.raises(DataError, match="something here already"):
        write_scenes(target, sample_scenes(1))
    assert NpzFolder(target).ids() == ["11"]


@pytest.mark.parametrize(
    ("scenes", "error"),
    [
        ([Scene("../x", regions=REGIONS)], DataError),
        ([Scene("1", vector=REGIONS[0])], MissingPartError),
        ([*sample_scenes(1), Scene("2", regions=REGIONS)], MissingPartError),
        ([Scene("2", regions=REGIONS), *sample_scenes(1)], CountError),
        (sample_scenes(1) * 2, DuplicateRecordError),
    ],
)
def test_a_scene_that_does_not_fit_leaves_nothing_behind(
    scenes: list[Scene], error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        write_scenes(tmp_path / "x", scenes)
    assert list(tmp_path.iterdir()) == []


def test_a_source_goes_to_worker_processes(tmp_path: Path) -> None:
    source = NpzFolder(self_critical(tmp_path / "x"))
    assert pickle.loads(pickle.dumps(source))["7"] == source["7"]


def test_other_folders_are_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    assert not FORMAT.matches(Probe(tmp_path))
    np.save(tmp_path / "train_ims.npy", REGIONS)
    np.save(tmp_path / "test_ims.npy", REGIONS)
    assert not FORMAT.matches(Probe(tmp_path))
    assert not FORMAT.matches(Probe(tmp_path / "a.jpg"))
    (tmp_path / "sub" / "x_att").mkdir(parents=True)
    (tmp_path / "sub" / "y_att").touch()
    assert not FORMAT.matches(Probe(tmp_path / "sub"))
