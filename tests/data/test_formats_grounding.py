"""Formats that say where things are: COCO instances, machine boxes, GVD's reference and submissions."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caption_samples import BOXES, INSTANCES, REFERENCE, SPLIT, SUBMISSION, format_of, put, repeat
from sightline.data import boxes_jsonl, coco, gvd
from sightline.data.coco import Instance
from sightline.errors import (
    BoxError,
    CountError,
    DataError,
    DuplicateRecordError,
    MissingRecordError,
    NonFiniteError,
    TruncatedError,
)

READERS: dict[str, Callable[[Path], Any]] = {
    "coco-instances": coco.read_instances,
    "gvd-reference": gvd.REFERENCE.captions,
    "split-ids": gvd.read_split,
    "grounding-submission": gvd.read_submission,
    "boxes-jsonl": boxes_jsonl.read,
}
SAMPLES: dict[str, Any] = {
    "coco-instances": INSTANCES,
    "gvd-reference": REFERENCE,
    "split-ids": SPLIT,
    "grounding-submission": SUBMISSION,
}

CAPTION = ("annotations", 0, "captions", 0)


def written(tmp_path: Path, value: Any) -> Path:
    path = tmp_path / "sample.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_instances_are_named_and_their_boxes_normalised_corners(tmp_path: Path) -> None:
    photos = coco.read_instances(written(tmp_path, INSTANCES))
    assert photos["9"].size == (200, 100)
    assert photos["9"].instances == (
        Instance("dog", (0.1, 0.1, 1.0, 1.0), crowd=False),
        Instance("person", (0.0, 0.0, 0.5, 0.5), crowd=True),
    )
    assert photos["4"].instances == ()
    counts = coco.INSTANCES.inspect(written(tmp_path, INSTANCES)).counts
    assert counts == {"photos": 2, "boxes": 2, "crowds": 1, "categories": 2}


@given(x=st.floats(0, 199), y=st.floats(0, 99), width=st.floats(0, 201), height=st.floats(0, 101))
@settings(max_examples=100)
def test_an_instance_box_is_either_inside_the_photo_or_refused(
    x: float, y: float, width: float, height: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    value = copy.deepcopy(INSTANCES)
    put([x, y, width, height], "annotations", 0, "bbox")(value)
    path = written(tmp_path_factory.getbasetemp(), value)
    if x + width > 201 or y + height > 101:
        with pytest.raises(BoxError, match=r"annotations\[0\] \(id 1\).*leaves the 200×100 image"):
            coco.read_instances(path)
        return
    found = coco.read_instances(path)["9"].instances[0].box
    expected = (x / 200, y / 100, min((x + width) / 200, 1), min((y + height) / 100, 1))
    assert found == pytest.approx(expected)
    assert 0 <= found[0] <= found[2] <= 1


def test_machine_boxes_become_scenes_in_order_of_score(tmp_path: Path) -> None:
    boxes = boxes_jsonl.read(written(tmp_path, BOXES))
    assert (len(boxes), boxes.ids(), boxes.box_count()) == (2, ["9", "25"], 2)
    scene = boxes["9"]
    assert scene.boxes is not None
    np.testing.assert_allclose(scene.boxes, [[0, 0, 0.5, 0.25], [0.403, 0.46, 0.925, 1]], rtol=1e-6)
    assert scene.scores is not None
    np.testing.assert_allclose(scene.scores, [0.8, 0.67], rtol=1e-6)
    assert [concept.name for concept in scene.concepts] == ["person", "broccoli"]
    assert scene.concepts[0].box == (0, 0, 0.5, 0.25)
    assert [len(scene) for scene in boxes] == [2, 0]
    assert np.array_equal(boxes.rows("9")[:, 0], [50, 0])


def test_a_missing_image_of_machine_boxes_is_told(tmp_path: Path) -> None:
    boxes = boxes_jsonl.read(written(tmp_path, BOXES))
    with pytest.raises(MissingRecordError, match="image 77 among the 2 here"):
        boxes["77"]


def test_there_are_eighty_coco_classes_and_the_well_known_places_hold() -> None:
    assert len(set(boxes_jsonl.COCO_80)) == 80
    assert [boxes_jsonl.COCO_80[i] for i in (0, 2, 16, 60, 79)] == [
        "person",
        "car",
        "dog",
        "dining table",
        "toothbrush",
    ]


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ('["9",[]]', DuplicateRecordError, "line 3: 9 appears twice"),
        ('["7",[[80,0.5,0,0,1,1]]]', DataError, r"line 3 \(image 7, box 0\): class 80 is not"),
        ('["7",[[0.5,0.5,0,0,1,1]]]', DataError, r"class 0\.5 is not"),
        ('["7",[[0,1.5,0,0,1,1]]]', DataError, r"the score 1\.5"),
        ('["7",[[0,0.5,0,0,1001,1]]]', BoxError, r"box 0\): the box is \[0, 0, 1001, 1\]"),
        ('["7",[[0,0.5,9,0,1,1]]]', BoxError, "thousandths"),
        ('["7",[[0,0.5,0,0,1]]]', CountError, r"6 numbers \(class, score, x1, y1, x2, y2\), not 5"),
        ('["7",[[0,"x",0,0,1,1]]]', DataError, "list of 6 numbers"),
        ('["7",[[0,NaN,0,0,1,1]]]', NonFiniteError, "image 7, box 0"),
        ('["7",[[0,0.5,0,0,1,1' + "0" * 400 + "]]]", NonFiniteError, "image 7, box 0"),
        ('["7",[[0,0.5,0,0,1,' + "9" * 5000 + "]]]", DataError, "line 3: this JSON cannot be read"),
        ('["7",' + "[" * 100_000, DataError, "line 3: this JSON cannot be read"),
        ('["7",[3]]', DataError, "not the number 3"),
        ('["7"]', DataError, "line 3: a list of an id and its boxes"),
        ("[null,[]]", DataError, "line 3: the id must be text"),
        ('["7",[[0,0.5}]]', DataError, "line 3: not valid JSON"),
    ],
)
def test_broken_machine_boxes_are_refused_with_line_and_image(
    line: str, error: type[DataError], message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, BOXES + line + "\n")
    with pytest.raises(error, match=message) as caught:
        boxes_jsonl.read(path)
    assert str(path) in str(caught.value)
    report = boxes_jsonl.FORMAT.inspect(path)
    assert report.problems == (str(caught.value),)
    assert report.counts == {"photos": 2, "boxes": 2}


def test_cut_machine_boxes_are_truncated(tmp_path: Path) -> None:
    line = '["7",[[0,0.5,0,0,1,1]]]'
    for cut in range(1, len(line)):
        with pytest.raises(TruncatedError, match=r"line 3: the JSON ends too early.*copy or download"):
            boxes_jsonl.read(written(tmp_path, BOXES + line[:cut]))
    path = tmp_path / "boxes.jsonl.gz"
    path.write_bytes(gzip.compress(BOXES.encode())[:-5])
    assert boxes_jsonl.FORMAT.inspect(path).problem_count == 1


def test_the_grounding_reference_keeps_words_classes_and_boxes_together(tmp_path: Path) -> None:
    classes, photos = gvd.read_reference(written(tmp_path, REFERENCE))
    assert classes == ("dog", "man")
    photo = photos["1007129816"]
    assert photo.size == (333, 500)
    (caption,) = photo.sentences
    labels = [word.label for word in caption.words]
    assert [caption.tokens[word.index] for word in caption.words] == labels == ["man", "dog"]
    assert caption.words[0].boxes == ((1.0, 2.0, 30.0, 40.0),)
    plain = gvd.REFERENCE.captions(written(tmp_path, REFERENCE))["1007129816"]
    assert (plain.file, plain.sentences[0].text) == ("1007129816.jpg", "a man and a dog")


@given(box=st.tuples(*[st.integers(-3, 12)] * 4))
def test_a_reference_box_is_at_most_one_pixel_beyond_the_photo_or_refused(
    box: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    value = copy.deepcopy(REFERENCE)
    put([8, 6], "annotations", 0, "image_size")(value)
    put([box, [0, 0, 8, 6]], *CAPTION, "process_bnd_box")(value)
    path = written(tmp_path_factory.getbasetemp(), value)
    x1, y1, x2, y2 = box
    if -1 <= x1 <= x2 <= 9 and -1 <= y1 <= y2 <= 7:
        assert gvd.read_reference(path)[1]["1007129816"].sentences[0].words[0].boxes == (box,)
    else:
        with pytest.raises(BoxError, match=r"captions\[0\]: 'process_bnd_box'\[0\] is"):
            gvd.read_reference(path)


def test_splits_are_ids_by_name(tmp_path: Path) -> None:
    assert gvd.read_split(written(tmp_path, SPLIT)) == {"train": ("1", "2"), "val": ("3",), "test": ("4",)}


def test_a_submission_tells_its_mode_by_its_sentences_where_it_does_not_say(tmp_path: Path) -> None:
    assert gvd.read_submission(written(tmp_path, SUBMISSION)).mode == "gen"
    one = {"clss": [], "idx_in_sent": [], "bbox": []}
    assert gvd.read_submission(written(tmp_path, {"results": {"1": [one] * 5}})).mode == "GT"
    assert gvd.read_submission(written(tmp_path, {"results": {"1": [one]}})).mode == "gen"


def test_an_image_that_a_submission_holds_twice_is_found(tmp_path: Path) -> None:
    text = '{"results": {"1": [{"clss": [], "idx_in_sent": [], "bbox": []}], "1": []}, "eval_mode": "gen"}'
    path = written(tmp_path, text.replace('"1": []}', '"1": [{"clss": [], "idx_in_sent": [], "bbox": []}]}'))
    with pytest.raises(DuplicateRecordError, match="'1' appears twice"):
        gvd.read_submission(path)


BROKEN = [
    ("coco-instances", put([100, 50, 190, 90], "annotations", 0, "bbox"), BoxError, r"\(id 1\).*x1 y1 x2 y2"),
    (
        "coco-instances",
        put([10, 10, -5, 5], "annotations", 0, "bbox"),
        BoxError,
        r"annotations\[0\] \(id 1\).*negative",
    ),
    ("coco-instances", put([10, 10, 5], "annotations", 0, "bbox"), DataError, r"'bbox' must be a list of 4 numbers"),
    ("coco-instances", put([10, 10, 5, float("inf")], "annotations", 0, "bbox"), NonFiniteError, r"annotations\[0\]"),
    (
        "coco-instances",
        put([10, 10, 5, 10**400], "annotations", 0, "bbox"),
        NonFiniteError,
        r"annotations\[0\].*'bbox'",
    ),
    ("coco-instances", put(10**400, "images", 0, "width"), DataError, r"images\[0\].*the image size is 1000"),
    ("coco-instances", put(5, "annotations", 1, "category_id"), MissingRecordError, r"annotations\[1\].*no id 5"),
    ("coco-instances", put(5, "annotations", 1, "image_id"), MissingRecordError, r"annotations\[1\].*no image 5"),
    ("coco-instances", put("x", "annotations", 1, "iscrowd"), DataError, r"'iscrowd' must be a whole number"),
    ("coco-instances", put({"id": 9}, "images", 0), DataError, r"images\[0\] \(id 9\).*no 'width' and 'height'"),
    ("coco-instances", repeat("images"), DuplicateRecordError, r"images\[2\].*image 9 appears twice"),
    (
        "gvd-reference",
        put([1], *CAPTION, "process_idx"),
        CountError,
        r"captions\[0\].*2 'process_clss', 1 'process_idx'",
    ),
    ("gvd-reference", put([1, 5], *CAPTION, "process_idx"), CountError, r"names word 5, the caption has 5"),
    ("gvd-reference", put([1, -1], *CAPTION, "process_idx"), DataError, r"'process_idx' must hold word positions"),
    ("gvd-reference", put(["man", "cat"], *CAPTION, "process_clss"), MissingRecordError, r"annotations\[0\].*'cat'"),
    ("gvd-reference", put([[1, 2, 0, 4]] * 2, *CAPTION, "process_bnd_box"), BoxError, r"'process_bnd_box'\[0\] is"),
    (
        "gvd-reference",
        put([[1, 2, 3]] * 2, *CAPTION, "process_bnd_box"),
        DataError,
        "x1, y1, x2, y2., not 3",
    ),
    (
        "gvd-reference",
        put([[1, 2, 30, 40], [100, 200, 3000, 3700]], *CAPTION, "process_bnd_box"),
        BoxError,
        r"image 1007129816, captions\[0\]: 'process_bnd_box'\[1\] is .*outside the 333×500 photo",
    ),
    ("gvd-reference", put(["²", 5], "annotations", 0, "image_size"), DataError, r"must be \[width, height\]"),
    ("gvd-reference", put([500], "annotations", 0, "image_size"), DataError, r"1007129816.*must be \[width, height\]"),
    ("gvd-reference", repeat("annotations"), DuplicateRecordError, "image 1007129816 appears twice"),
    ("split-ids", put(["1"], "test"), DuplicateRecordError, "id 1 is in train and in test"),
    ("split-ids", put([1], "test"), DataError, r"'test'\[0\] must be text"),
    ("grounding-submission", put("test", "eval_mode"), DataError, "'eval_mode' is 'test'"),
    ("grounding-submission", put("GT", "eval_mode"), CountError, r"image 1: 1 sentences, GT mode has 5"),
    ("grounding-submission", put({}, "results", "2"), DataError, "image 2: a list of sentences"),
    ("grounding-submission", put([], "results", "1", 0, "bbox"), CountError, r"image 1\[0\].*equally many"),
    ("grounding-submission", put([2.5], "results", "1", 0, "idx_in_sent"), DataError, "word positions"),
    ("grounding-submission", put([[3, 2, 1, 4]], "results", "1", 0, "bbox"), BoxError, r"image 1\[0\]"),
    ("grounding-submission", put([], "results"), DataError, "'results' must be an object"),
    ("grounding-submission", put(3, "external_data"), DataError, "'external_data' must be an object"),
]


@pytest.mark.parametrize(("module", "change", "error", "message"), BROKEN)
def test_a_broken_file_is_refused_with_its_place_and_inspected_without_raising(
    module: str, change: Callable[[Any], None], error: type[DataError], message: str, tmp_path: Path
) -> None:
    value = copy.deepcopy(SAMPLES[module])
    change(value)
    path = written(tmp_path, value)
    with pytest.raises(error, match=message) as caught:
        READERS[module](path)
    assert str(path) in str(caught.value)
    assert str(caught.value) in format_of(module).inspect(path).problems


@pytest.mark.parametrize("module", SAMPLES)
def test_a_cut_file_is_truncated(module: str, tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(SAMPLES[module])[:-1])
    with pytest.raises(TruncatedError, match=r"sample\.json"):
        READERS[module](path)
    assert format_of(module).inspect(path).problem_count == 1
