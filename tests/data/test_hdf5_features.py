"""HDF5 feature files: M2's, self-critical's, POS-SCAN's and GVD's."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_samples import assert_same_scenes, read_in_forked_process, sample_scenes, scene_lists
from sightline.data.format import Probe
from sightline.data.hdf5_features import FORMAT, Hdf5Features, Hdf5File, write_scenes
from sightline.errors import (
    BoxError,
    CountError,
    DataError,
    DuplicateRecordError,
    MissingExtraError,
    MissingPartError,
    MissingRecordError,
    NonFiniteError,
    TruncatedError,
)
from sightline.scene import Scene

h5py = pytest.importorskip("h5py")
REGIONS = np.arange(6, dtype=np.float32).reshape(2, 3)
PIXELS = np.array([[10, 20, 110, 220], [0, 0, 640, 480]], dtype=np.float32)


def file_of(folder: Path, size: tuple[int, int] | None = None, **datasets: Any) -> Path:
    path = folder / "x.hdf5"
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name] = values
            if name.endswith("_features") and size is not None:
                file[name].attrs["size"] = size
    return path


def m2(**changed: Any) -> dict[str, Any]:
    parts = {"7_features": REGIONS, "7_boxes": PIXELS, "8_features": REGIONS + 1, "8_boxes": PIXELS}
    return {name: values for name, values in (parts | changed).items() if values is not None}


@settings(max_examples=25)
@given(data=st.data())
def test_what_is_written_is_read_by_iteration_and_by_id(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scenes = data.draw(scene_lists(boxes=data.draw(st.booleans()), scores=data.draw(st.booleans())))
    path = tmp_path_factory.mktemp("h5") / "x.hdf5"
    assert write_scenes(path, scenes) == len(scenes)
    source = Hdf5Features(path)
    assert_same_scenes(list(source), scenes)
    assert_same_scenes([source[scene.id] for scene in scenes], scenes)


def test_m2_boxes_need_the_image_size_and_the_notes_say_so(tmp_path: Path) -> None:
    path = file_of(tmp_path, **m2())
    assert Hdf5Features(path)["7"].boxes is None
    assert any(note.startswith("boxes of 2 images left out") for note in FORMAT.inspect(path).notes)
    bare = file_of(tmp_path, **{"7_features": REGIONS})
    assert FORMAT.inspect(bare).notes == ("layout: <id>_features",)
    path = file_of(tmp_path, (640, 480), **m2())
    np.testing.assert_allclose(Hdf5Features(path)["7"].pixel_boxes(), PIXELS, atol=1e-4)


def test_m2_probabilities_become_scores_only_in_descending_order(tmp_path: Path) -> None:
    table = np.array([[0.0, 0.9, 0.1], [0.8, 0.1, 0.1]], np.float32)  # background first
    path = file_of(tmp_path, **m2(**{"7_cls_prob": table, "8_cls_prob": table[::-1]}))
    source = Hdf5Features(path)
    np.testing.assert_array_equal(source["7"].scores, np.array([0.9, 0.1], np.float32))
    assert source["8"].scores is None
    np.testing.assert_array_equal(source["8"].regions, REGIONS + 1)
    assert any(note.startswith("scores of 1 image left out") for note in FORMAT.inspect(path).notes)


def test_an_image_with_probabilities_and_no_features_is_missing_not_absent(tmp_path: Path) -> None:
    path = file_of(tmp_path, **m2(**{"9_cls_prob": np.ones((2, 3), np.float32)}))
    source = Hdf5Features(path)
    assert source.ids() == ["7", "8", "9"]
    with pytest.raises(MissingRecordError, match="image 9: 9_cls_prob without 9_features") as caught:
        list(source)
    report = FORMAT.inspect(path)
    assert report.problems == (str(caught.value),)
    assert report.counts["images"] == 2


UNPLACED: dict[str, tuple[type[DataError], dict[str, Any]]] = {
    "more boxes than regions": (CountError, {"8_boxes": np.tile(PIXELS, (2, 1))}),
    "NaN boxes": (NonFiniteError, {"8_boxes": PIXELS * np.nan}),
    "more probabilities than regions": (CountError, {"8_cls_prob": np.ones((5, 4), np.float32)}),
    "NaN probabilities": (NonFiniteError, {"8_cls_prob": np.full((2, 4), np.nan, np.float32)}),
    "text for features": (DataError, {"8_features": "text"}),
}


@pytest.mark.parametrize("name", UNPLACED)
def test_what_a_scene_cannot_have_is_checked_all_the_same(name: str, tmp_path: Path) -> None:
    kind, changed = UNPLACED[name]
    path = file_of(tmp_path, **m2(**changed))
    with pytest.raises(DataError) as caught:
        Hdf5Features(path)["8"]
    assert type(caught.value) is kind
    assert FORMAT.inspect(path).problems == (str(caught.value),)


@pytest.mark.parametrize("size", [(640,), (640, np.nan), "wide", (640, 480, 3)])
def test_a_stored_size_that_is_none_is_refused(size: Any, tmp_path: Path) -> None:
    path = file_of(tmp_path, **m2())
    with h5py.File(path, "r+") as file:
        file["8_features"].attrs["size"] = size
    with pytest.raises(DataError, match="image 8: the stored image size is"):
        Hdf5Features(path)["8"]
    assert FORMAT.inspect(path).problem_count == 1


def test_a_dataset_per_id_is_read(tmp_path: Path) -> None:
    path = file_of(tmp_path, a=REGIONS.astype(np.float16), b=REGIONS.mean(0))
    source = Hdf5Features(path)
    assert source.ids() == ["a", "b"]
    assert source["a"].regions.dtype == np.float16
    np.testing.assert_array_equal(source["b"].vector, REGIONS.mean(0))
    assert FORMAT.inspect(path).counts["images"] == 2


def test_rows_without_ids_are_numbered_and_their_boxes_left_out(tmp_path: Path) -> None:
    path = file_of(tmp_path, image_features=np.stack([REGIONS, REGIONS + 1]), image_bb=np.stack([PIXELS, PIXELS]))
    scene = Hdf5Features(path)["1"]
    np.testing.assert_array_equal(scene.regions, REGIONS + 1)
    assert scene.boxes is None
    layout, boxes = FORMAT.inspect(path).notes
    assert "known by their row only" in layout
    assert boxes == "boxes left out: they are in pixels, and no image size is stored"


def test_a_number_where_rows_should_be_is_told(tmp_path: Path) -> None:
    path = file_of(tmp_path, image_features=np.float32(3))
    with pytest.raises(DataError, match=r"x\.hdf5: no rows in a dataset 'image_features'"):
        Hdf5Features(path).ids()
    (problem,) = FORMAT.inspect(path).problems
    assert "no rows in a dataset 'image_features'" in problem


def test_damage_that_only_the_notes_meet_is_reported_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(tmp_path, image_features=np.stack([REGIONS, REGIONS + 1]))

    def has(self: Hdf5File, name: str) -> bool:
        if name == "image_bb":
            raise DataError("damaged HDF5: no such link")
        return name == "image_features"

    monkeypatch.setattr(Hdf5File, "has", has)
    report = FORMAT.inspect(path)
    assert report.problems == (f"{path}: damaged HDF5: no such link.",)
    assert report.counts["images"] == 2


def test_gvd_detections_are_counted_and_have_no_features(tmp_path: Path) -> None:
    path = file_of(tmp_path, dets_labels=np.ones((3, 100, 6)), nms_num=np.ones(3))
    assert FORMAT.matches(Probe(path))
    with pytest.raises(DataError, match=r"GVD.*\.npy"):
        Hdf5Features(path)
    report = FORMAT.inspect(path)
    assert (report.counts, report.problems) == ({"images": 3, "boxes per image": 100}, ())
    assert "<image id>.npy" in report.notes[0]


def test_gvd_detections_of_another_shape_are_a_problem(tmp_path: Path) -> None:
    path = file_of(tmp_path, dets_labels=np.ones((3, 100)), nms_num=np.ones(3))
    assert "dets_labels" in FORMAT.inspect(path).problems[0]


NAN = np.where(REGIONS == 4, np.nan, REGIONS)
BROKEN: dict[str, tuple[type[DataError], dict[str, Any]]] = {
    "NaN": (NonFiniteError, {"8_features": NAN}),
    "whole numbers": (DataError, {"8_features": np.ones((2, 3), np.int64)}),
    "one box for two regions": (CountError, {"8_boxes": PIXELS[:1]}),
    "x y width height": (BoxError, {"8_boxes": PIXELS[:, [2, 3, 0, 1]]}),
    "boxes outside the image": (BoxError, {"8_boxes": 2 * PIXELS}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_image_is_named_by_reading_and_listed_by_inspection(name: str, tmp_path: Path) -> None:
    kind, changed = BROKEN[name]
    path = file_of(tmp_path, (640, 480), **m2(**changed))
    with pytest.raises(DataError) as caught:
        Hdf5Features(path)["8"]
    assert type(caught.value) is kind
    assert f"{path}, image 8" in str(caught.value)
    report = FORMAT.inspect(path)
    assert report.problems == (str(caught.value),)
    assert report.counts["images"] == 1


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9, 0.99])
def test_a_cut_file_is_a_truncation(keep: float, tmp_path: Path) -> None:
    path = file_of(tmp_path, **{f"{n}_features": np.ones((9, 64), np.float32) for n in range(40)})
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    with pytest.raises(TruncatedError, match=r"x\.hdf5"):
        Hdf5Features(path)
    assert FORMAT.matches(Probe(path))
    report = FORMAT.inspect(path)
    assert report.problem_count == 1
    assert "ends too early" in report.problems[0]


@given(place=st.integers(0), value=st.integers(0, 255))
def test_a_changed_byte_never_escapes_as_another_kind_of_error(
    place: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = file_of(tmp_path_factory.mktemp("h5"), **m2())
    raw = bytearray(path.read_bytes())
    raw[8 + place % (len(raw) - 8)] = value
    path.write_bytes(raw)
    if FORMAT.matches(Probe(path)):
        FORMAT.inspect(path)


def test_a_file_that_is_no_hdf5_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    path.write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(DataError, match="not a readable HDF5"):
        Hdf5Features(path)
    assert not FORMAT.matches(Probe(path))


@pytest.mark.parametrize(
    "datasets",
    [
        {"labels": np.ones((3, 16), np.uint32), "label_length": np.ones(3, np.uint32)},
        {"feats": np.ones((2, 3, 4), np.float32)},
        {"boxes": np.ones((2, 3, 4), np.float32)},
        {},
    ],
)
def test_labels_and_parts_of_precomp_folders_are_not_taken_for_it(datasets: dict[str, Any], tmp_path: Path) -> None:
    path = file_of(tmp_path, **datasets)
    assert not FORMAT.matches(Probe(path))
    with pytest.raises(DataError, match="neither"):
        Hdf5Features(path)


def test_a_missing_id_names_the_file_and_the_id(tmp_path: Path) -> None:
    with pytest.raises(MissingRecordError, match=r"x\.hdf5: no features of image 000007 .*calls it 7"):
        Hdf5Features(file_of(tmp_path, **m2()))["000007"]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: sample_scenes(1) * 2, DuplicateRecordError),
        (lambda: [Scene("1", vector=REGIONS[0])], MissingPartError),
        (lambda: [Scene("test\\1", regions=REGIONS)], DataError),
        (lambda: [Scene("1", boxes=PIXELS / 640, regions=REGIONS)], MissingPartError),
    ],
)
def test_a_scene_that_does_not_fit_leaves_no_file(
    make: Callable[[], list[Scene]], error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        write_scenes(tmp_path / "x.hdf5", make())
    assert list(tmp_path.iterdir()) == []


def test_a_source_goes_to_worker_processes(tmp_path: Path) -> None:
    source = Hdf5Features(file_of(tmp_path, **m2()))
    assert pickle.loads(pickle.dumps(source))["7"] == source["7"]
    assert read_in_forked_process(source, "7") == source["7"]


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_of(tmp_path, **m2())
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert FORMAT.matches(Probe(path))
    with pytest.raises(MissingExtraError, match=r"sightline\[train\]"):
        Hdf5Features(path)
    with pytest.raises(MissingExtraError, match="h5py"):
        write_scenes(tmp_path / "y.hdf5", [])
