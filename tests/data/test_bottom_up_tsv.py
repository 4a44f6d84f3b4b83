"""Bottom-up TSV: read as the usual loop reads it, found by id, and refused with file and line when damaged."""

from __future__ import annotations

import base64
import csv
import gzip
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_samples import assert_same_scenes, sample_scenes, scene_lists
from sightline.data import bottom_up_tsv
from sightline.data.bottom_up_tsv import FORMAT, BottomUpTsv, decode_base64, write_scenes
from sightline.data.format import Probe
from sightline.errors import (
    BoxError,
    ByteStringError,
    CountError,
    DataError,
    DuplicateRecordError,
    MissingPartError,
    MissingRecordError,
    NonFiniteError,
    TruncatedError,
)
from sightline.scene import Scene


def packed(*values: float) -> bytes:
    return base64.b64encode(np.array(values, dtype="<f4").tobytes())


BOXES = packed(10, 20, 110, 220, 0, 0, 640, 480)
FEATURES = packed(1, 2, 3, 4, 5, 6)
GOOD = b"\t".join([b"7", b"640", b"480", b"2", BOXES, FEATURES]) + b"\n"


def file_of(folder: Path, *lines: bytes, name: str = "x.tsv") -> Path:
    path = folder / name
    path.write_bytes(b"".join(lines))
    return path


def line(**changed: bytes) -> bytes:
    fields = {"id": b"8", "w": b"640", "h": b"480", "n": b"2", "boxes": BOXES, "features": FEATURES}
    return b"\t".join((fields | changed).values()) + b"\n"


def test_a_line_becomes_a_scene_with_normalised_boxes(tmp_path: Path) -> None:
    (scene,) = BottomUpTsv(file_of(tmp_path, GOOD))
    assert (scene.id, scene.size, scene.scores) == ("7", (640, 480), None)
    np.testing.assert_array_equal(scene.regions, np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    np.testing.assert_allclose(scene.boxes, [[10 / 640, 20 / 480, 110 / 640, 220 / 480], [0, 0, 1, 1]], rtol=1e-6)


def test_the_arrays_are_those_of_the_usual_loop(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    write_scenes(path, sample_scenes(5, regions=36, width=64))
    with path.open() as file:
        rows = list(csv.DictReader(file, fieldnames=bottom_up_tsv.FIELDS, delimiter="\t"))
    for row, scene in zip(rows, BottomUpTsv(path), strict=True):
        boxes, features = (
            np.frombuffer(base64.b64decode(row[name]), np.float32).reshape(int(row["num_boxes"]), -1)
            for name in ("boxes", "features")
        )
        np.testing.assert_array_equal(scene.regions, features)
        np.testing.assert_allclose(scene.pixel_boxes(), boxes, atol=1e-3)


@pytest.mark.parametrize("name", ["x.tsv", "x.tsv.0", "x.tsv.gz"])
@settings(max_examples=20)
@given(data=st.data())
def test_what_is_written_is_read_by_iteration_and_by_id(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scenes = data.draw(scene_lists(boxes=True))
    path = tmp_path_factory.mktemp("tsv") / name
    assert write_scenes(path, scenes) == len(scenes)
    source = BottomUpTsv(path)
    assert source.ids() == [scene.id for scene in scenes]
    assert len(source) == len(scenes)
    assert_same_scenes(list(source), scenes, float32=True)
    assert_same_scenes([source[scene.id] for scene in reversed(scenes)], scenes, float32=True)


def test_a_missing_id_names_the_file_and_the_id(tmp_path: Path) -> None:
    source = BottomUpTsv(file_of(tmp_path, GOOD))
    with pytest.raises(MissingRecordError, match=r"x\.tsv: no features of image 9 "):
        source["9"]
    assert "7" in source
    assert "9" not in source


def test_a_coco_file_name_is_answered_with_the_id_the_file_uses(tmp_path: Path) -> None:
    source = BottomUpTsv(file_of(tmp_path, GOOD))
    with pytest.raises(MissingRecordError, match="this file calls it 7"):
        source["COCO_val2014_000000000007.jpg"]


def test_blank_lines_and_windows_line_ends_are_no_records(tmp_path: Path) -> None:
    path = file_of(tmp_path, GOOD.replace(b"\n", b"\r\n"), b"\r\n", line(), b"\n")
    assert BottomUpTsv(path).ids() == ["7", "8"]
    assert [scene.id for scene in BottomUpTsv(path)] == ["7", "8"]


def test_the_last_line_break_may_be_missing(tmp_path: Path) -> None:
    source = BottomUpTsv(file_of(tmp_path, GOOD, line()[:-1]))
    np.testing.assert_array_equal(source["8"].regions, source["7"].regions)


BROKEN: dict[str, tuple[type[DataError], bytes]] = {
    "fewer fields": (TruncatedError, b"8\t640\t480\n"),
    "cut base64": (TruncatedError, line(features=FEATURES[:-3])),
    "cut at a whole number": (TruncatedError, line(features=packed(1, 2, 3, 4))),
    "cut at a part of a row": (TruncatedError, line(features=packed(1, 2, 3))),
    "no features": (TruncatedError, line(features=b"")),
    "characters outside base64": (TruncatedError, line(features=b"*" + FEATURES[1:])),
    "wider features": (CountError, line(features=packed(*range(8)))),
    "one box for two": (CountError, line(boxes=packed(1, 2, 3, 4))),
    "no boxes": (CountError, line(n=b"0", boxes=b"", features=b"")),
    "x y width height": (BoxError, line(boxes=packed(100, 200, 50, 60, 0, 0, 1, 1))),
    "width and height exchanged": (BoxError, line(w=b"480", h=b"640")),
    "NaN": (NonFiniteError, line(features=packed(1, 2, 3, 4, np.nan, 6))),
    "infinite box": (BoxError, line(boxes=packed(0, 0, np.inf, 4, 0, 0, 1, 1))),
    "an id twice": (DuplicateRecordError, GOOD),
    "printed bytes": (ByteStringError, line(features=b"b'" + FEATURES + b"'")),
    "a word for a number": (DataError, line(w=b"wide")),
    "ten columns": (DataError, line(features=b"\t".join([FEATURES] * 5))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_line_is_named_by_reading_and_listed_by_inspection(name: str, tmp_path: Path) -> None:
    kind, damaged = BROKEN[name]
    path = file_of(tmp_path, GOOD, damaged, line(id=b"9"))
    with pytest.raises(DataError) as caught:
        list(BottomUpTsv(path))
    assert type(caught.value) is kind
    assert f"{path}, line 2" in str(caught.value)
    assert FORMAT.matches(Probe(path))
    report = FORMAT.inspect(path)
    assert report.problem_count == 1
    assert report.problems == (str(caught.value),)
    assert report.counts["images"] == 2


@pytest.mark.parametrize("name", [n for n in BROKEN if n not in ("an id twice", "fewer fields")])
def test_random_access_meets_the_same_error(name: str, tmp_path: Path) -> None:
    kind, damaged = BROKEN[name]
    source = BottomUpTsv(file_of(tmp_path, GOOD, damaged))
    with pytest.raises(kind, match="line 2"):
        source["8"]


def test_a_file_cut_after_it_was_indexed_is_noticed(tmp_path: Path) -> None:
    source = BottomUpTsv(file_of(tmp_path, GOOD, line()))
    source.ids()
    file_of(tmp_path, GOOD)
    with pytest.raises(TruncatedError, match="image 8 was at byte"):
        source["8"]


def test_an_index_refuses_an_id_that_comes_twice(tmp_path: Path) -> None:
    with pytest.raises(DuplicateRecordError, match="line 2"):
        BottomUpTsv(file_of(tmp_path, GOOD, GOOD)).ids()


@given(keep=st.integers(1, 2 * len(GOOD) - 2))
def test_a_file_cut_anywhere_gives_whole_scenes_and_then_a_truncation(
    keep: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = GOOD + line()
    path = file_of(tmp_path_factory.mktemp("cut"), whole[:keep])
    first, second = GOOD.rstrip(), line().rstrip()
    if whole[:keep].rstrip() in (first, first + b"\n" + second):
        assert all(len(scene) == 2 for scene in BottomUpTsv(path))
    else:
        with pytest.raises(TruncatedError, match=r"line [12]"):
            list(BottomUpTsv(path))
        assert FORMAT.inspect(path).problem_count == 1


def test_gzip_is_read_whatever_the_file_is_called(tmp_path: Path) -> None:
    plain, packed = file_of(tmp_path, GOOD), file_of(tmp_path, gzip.compress(GOOD), name="packed.tsv")
    assert [scene.id for scene in FORMAT.scenes(packed)] == [scene.id for scene in FORMAT.scenes(plain)] != []


def test_a_cut_gzip_stream_is_a_truncation(tmp_path: Path) -> None:
    path = file_of(tmp_path, gzip.compress(GOOD * 3)[:-20], name="x.tsv.gz")
    with pytest.raises(TruncatedError, match="gzip"):
        list(BottomUpTsv(path))
    assert FORMAT.inspect(path).problem_count == 1


def test_a_source_goes_to_worker_processes(tmp_path: Path) -> None:
    source = BottomUpTsv(file_of(tmp_path, GOOD))
    source.ids()
    assert pickle.loads(pickle.dumps(source))["7"] == source["7"]


def test_inspection_counts_images_regions_and_width(tmp_path: Path) -> None:
    path = file_of(tmp_path, GOOD, line(n=b"1", boxes=packed(0, 0, 1, 1), features=packed(1, 2, 3)))
    counts = FORMAT.inspect(path).counts
    assert counts["images"] == 2
    assert counts["regions"] == 3
    assert counts["regions per image"] == "1–2"
    assert counts["features"] == "3 × float32"
    assert counts["with boxes"] == 2


def test_an_empty_file_has_no_scenes(tmp_path: Path) -> None:
    path = file_of(tmp_path)
    assert list(BottomUpTsv(path)) == []
    assert not FORMAT.matches(Probe(path))


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bottom_up_tsv, "_LONGEST", 1000)
    path = file_of(tmp_path, GOOD, line(features=packed(*range(600))), GOOD)
    with pytest.raises(DataError, match="line 2: the line is longer than"):
        list(BottomUpTsv(path))
    assert FORMAT.inspect(path).problem_count == 1


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: [Scene("1", regions=np.ones((1, 2), np.float32))], MissingPartError),
        (lambda: sample_scenes(1) * 2, DuplicateRecordError),
        (lambda: [Scene("a\tb", np.array([[0, 0, 1, 1.0]]), regions=np.ones((1, 2)), size=(1, 1))], DataError),
        (lambda: [Scene("a", np.empty((0, 4)), regions=np.empty((0, 2)), size=(1, 1))], CountError),
    ],
)
def test_a_scene_that_does_not_fit_leaves_no_file(
    make: Callable[[], list[Scene]], error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        write_scenes(tmp_path / "x.tsv", make())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [b"caption\turl\n", b"a,b,c\n", b"1\t2\t3\n", b'{"images": []}', b"\x80\x02}q"])
def test_other_files_are_not_taken_for_it(text: bytes, tmp_path: Path) -> None:
    assert not FORMAT.matches(Probe(file_of(tmp_path, text)))


@given(st.binary(max_size=300))
def test_any_bytes_decode_as_the_standard_library_decodes_them(raw: bytes) -> None:
    assert decode_base64(base64.b64encode(raw)).tobytes() == raw


@pytest.mark.parametrize("size", [0, 1, 49151, 49152, 49153, 100_000])
def test_texts_longer_than_a_block_decode_whole(size: int) -> None:
    raw = np.random.default_rng(size).bytes(size)
    assert decode_base64(memoryview(base64.b64encode(raw))).tobytes() == raw


@given(st.binary(min_size=12, max_size=60), st.integers(0), st.sampled_from(b" \n\t-_=*\x00\xff"))
def test_a_foreign_character_is_refused_wherever_it_stands(raw: bytes, place: int, character: int) -> None:
    text = bytearray(base64.b64encode(raw))
    place %= len(text) - 4  # padding is allowed in the last four
    text[place] = character
    with pytest.raises(ValueError, match="base64"):
        decode_base64(bytes(text))


def test_a_length_that_is_no_multiple_of_four_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of four"):
        decode_base64(b"AAAAA")
