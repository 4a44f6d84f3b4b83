"""The talk pair: words and photos in JSON, captions as word ids in HDF5."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from caption_samples import GVD_CAPTIONS, LABELS, TALK, write_labels
from sightline.data import gvd, talk
from sightline.data.records import CaptionSet, GroundedWord
from sightline.errors import BoxError, CountError, DataError, MissingExtraError, MissingRecordError, TruncatedError


def write_talk(folder: Path, name: str = "cocotalk.json", **changes: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({key: value for key, value in {**TALK, **changes}.items() if value is not None}))
    return path


def read_captions(path: Path) -> CaptionSet:
    return talk.read_talk(path)[1]


def test_words_come_in_id_order_and_captions_are_decoded_rows(tmp_path: Path) -> None:
    path = write_talk(tmp_path, ix_to_word={"10": "k", **{str(i): f"w{i}" for i in range(1, 10)}})
    write_labels(tmp_path / "cocotalk_label.h5", labels=[[1, 10], [2, 0], [3, 4]], label_length=[2, 1, 2])
    found_words, captions = talk.read_talk(path)
    assert found_words == (*(f"w{i}" for i in range(1, 10)), "k")
    assert [[s.text for s in photo.sentences] for photo in captions] == [["w1 k", "w2"], ["w3 w4"]]
    assert [s.id for s in captions.sentences()] == ["1", "2", "3"]
    assert captions["11"].sentences[0].tokens == ("w1", "k")


def test_every_row_is_decoded_as_a_plain_loop_would(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    words = [f"w{i}" for i in range(1, 51)]
    lengths = rng.integers(1, 17, size=60)
    rows = np.zeros((60, 16), dtype=int)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = rng.integers(1, 51, size=length)
    path = write_talk(
        tmp_path,
        ix_to_word={str(i): word for i, word in enumerate(words, 1)},
        images=[{"id": i, "split": "train"} for i in range(12)],
    )
    write_labels(
        tmp_path / "cocotalk_label.h5",
        labels=rows,
        label_length=lengths,
        label_start_ix=np.arange(0, 60, 5) + 1,
        label_end_ix=np.arange(0, 60, 5) + 5,
    )
    for number, photo in enumerate(read_captions(path)):
        for k, sentence in enumerate(photo.sentences):
            assert sentence.text.split() == [words[i - 1] for i in rows[5 * number + k] if i]


def test_photos_without_labels_have_no_captions(tmp_path: Path) -> None:
    captions = read_captions(write_talk(tmp_path))
    assert [photo.sentences for photo in captions] == [(), ()]
    assert [photo.size for photo in captions] == [(4, 3), None]


def test_byte_pairs_are_joined_in_the_text_and_kept_in_the_tokens(tmp_path: Path) -> None:
    path = write_talk(tmp_path, ix_to_word={"1": "do@@", "2": "g", "3": "runs"}, bpe="#version: 0.2")
    write_labels(tmp_path / "cocotalk_label.h5", labels=[[1, 2, 3], [3, 0, 0], [3, 3, 0]], label_length=[3, 1, 2])
    first = next(iter(read_captions(path).sentences()))
    assert (first.text, first.tokens) == ("dog runs", ("do@@", "g", "runs"))


@pytest.mark.parametrize("name", ["cocotalk_label.h5", "cocotalk.h5"])
def test_either_file_of_the_pair_leads_to_the_captions(name: str, tmp_path: Path) -> None:
    path = write_talk(tmp_path)
    pixels = {} if name.endswith("_label.h5") else {"images": np.zeros((2, 3, 4, 4))}
    labels = write_labels(tmp_path / name, **pixels)
    assert read_captions(labels).photos == read_captions(path).photos
    assert [s.text for s in read_captions(path).sentences()] == ["a dog", "dog", "a UNK dog a"]
    expected = {"words": 3, "photos": 2, "captions": 3, "photos of split train": 1, "photos of split val": 1}
    for file in (path, labels):
        report = talk.FORMAT.inspect(file)
        assert expected.items() <= report.counts.items()
        assert report.problem_count == 0


def test_json_without_labels_and_labels_without_json_are_inspected_with_a_note(tmp_path: Path) -> None:
    path = write_talk(tmp_path)
    assert talk.FORMAT.inspect(path).notes == ("no label file is beside it: words and photos only",)
    labels = write_labels(tmp_path / "alone_label.h5")
    report = talk.FORMAT.inspect(labels)
    assert report.counts == {"photos": 2, "captions": 3}
    assert report.notes == ("the json with the words is not beside it",)
    with pytest.raises(MissingRecordError, match=r"put alone\.json"):
        read_captions(labels)


BROKEN_LABELS = [
    ({"labels": None}, DataError, "no dataset 'labels'"),
    ({"labels": [1, 2, 3]}, DataError, r"shape \(3,\)"),
    ({"labels": np.full((3, 4), b"a")}, DataError, r"`labels` has type \|S1 and shape \(3, 4\), whole numbers"),
    ({"labels": np.ones((3, 4))}, DataError, "`labels` has type float64"),
    ({"label_length": [[2], [1], [4]]}, DataError, r"`label_length` has type uint32 and shape \(3, 1\)"),
    ({"label_start_ix": 1}, DataError, r"`label_start_ix` has type uint32 and shape \(\)"),
    ({"label_length": [2, 1]}, CountError, "3 rows of `labels`, 2 of `label_length`"),
    ({"label_start_ix": [1]}, CountError, "1 of `label_start_ix`, 2 of `label_end_ix`"),
    ({"label_start_ix": [0, 3]}, CountError, "photo 0 has the rows 0 to 2 of 3"),
    ({"label_end_ix": [2, 4]}, CountError, "photo 1 has the rows 3 to 4 of 3"),
    ({"label_end_ix": [1, 2]}, CountError, "photo 1 has the rows 3 to 2 of 3, after row 1"),
    ({"label_end_ix": [1, 3]}, CountError, "photo 1 has the rows 3 to 3 of 3, after row 1"),
    ({"label_start_ix": [1, 3], "label_end_ix": [2, 2]}, CountError, "the rows 3 to 3 belong to no photo"),
    ({"label_start_ix": [1, 2]}, CountError, "photo 1 has the rows 2 to 3 of 3, after row 2"),
    ({"label_start_ix": [1, 5], "label_end_ix": [2, 3]}, CountError, "photo 1 has the rows 5 to 3"),
    ({"label_length": [2, 2, 4]}, CountError, "row 2 has `label_length` 2 and 1 words"),
    ({"label_length": [2, 1, 5]}, CountError, "row 3 has `label_length` 5 and 4 words"),
    ({"labels": [[1, 0, 2, 0], [2, 0, 0, 0], [1, 3, 2, 1]]}, CountError, "row 1 has"),
    ({"labels": [[1, 9, 0, 0], [2, 0, 0, 0], [1, 3, 2, 1]]}, DataError, "row 1 holds word 9, the json has 3 words"),
]


@pytest.mark.parametrize(("changes", "error", "message"), BROKEN_LABELS)
def test_inconsistent_labels_are_refused_by_row_or_photo(
    changes: dict[str, Any], error: type[DataError], message: str, tmp_path: Path
) -> None:
    path = write_talk(tmp_path)
    labels = write_labels(tmp_path / "cocotalk_label.h5", **changes)
    with pytest.raises(error, match=message) as caught:
        read_captions(path)
    assert str(labels) in str(caught.value)
    assert str(caught.value) in talk.FORMAT.inspect(path).problems


def test_an_exclusive_end_loses_no_caption_silently(tmp_path: Path) -> None:
    path = write_talk(tmp_path, images=[{"id": i} for i in range(4)])
    starts = np.array([1, 3, 4, 8])
    ends = np.array([2, 3, 7, 9])
    rows = {"labels": np.ones((9, 2), dtype=int), "label_length": [2] * 9}
    labels = write_labels(tmp_path / "cocotalk_label.h5", label_start_ix=starts, label_end_ix=ends, **rows)
    assert [len(photo.sentences) for photo in read_captions(path)] == [2, 1, 4, 2]
    write_labels(labels, label_start_ix=starts, label_end_ix=ends - 1, **rows)
    report = talk.FORMAT.inspect(path)
    told = [f"photo {image} has the rows" for image in (1, 2, 3)] + ["the rows 9 to 9 belong to no photo"]
    assert [expected in problem for expected, problem in zip(told, report.problems, strict=True)] == [True] * 4


def test_labels_that_are_a_group_are_no_dataset(tmp_path: Path) -> None:
    labels = write_labels(tmp_path / "x_label.h5", labels=None)
    with h5py.File(labels, "r+") as file:
        file.create_group("labels")
    with pytest.raises(DataError, match="there is no dataset 'labels'"):
        talk.read_labels(labels)


def test_a_damaged_chunk_of_labels_is_told(tmp_path: Path) -> None:
    labels = write_labels(tmp_path / "x_label.h5", labels=None, label_length=[300] * 3)
    packed = np.random.default_rng(0).integers(1, 4, (3, 300))
    with h5py.File(labels, "r+") as file:
        file.create_dataset("labels", data=packed, compression="gzip")
        chunk = file["labels"].id.get_chunk_info(0)
    assert np.array_equal(talk.read_labels(labels).rows, packed)
    with labels.open("r+b") as raw:
        raw.seek(chunk.byte_offset + 20)
        raw.write(b"\xff" * 40)
    with pytest.raises(DataError, match="damaged HDF5"):
        talk.read_labels(labels)
    assert talk.FORMAT.inspect(labels).problem_count == 1


BROKEN_WORDS = [
    ({"ix_to_word": {"0": "a", "1": "b"}}, CountError, "2 words, but none under '2'"),
    ({"ix_to_word": {"1": 5}}, CountError, "none under '1'"),
    ({"ix_to_word": None}, DataError, "'ix_to_word' is missing"),
    ({"images": None}, DataError, "'images' is missing"),
    ({"images": [{"split": "train"}, {"id": 3}]}, DataError, r"images\[0\].*'id' is missing"),
    ({"images": [{"id": 3}]}, CountError, "2 photos have labels"),
]


@pytest.mark.parametrize(("changes", "error", "message"), BROKEN_WORDS)
def test_broken_words_and_photos_are_refused(
    changes: dict[str, Any], error: type[DataError], message: str, tmp_path: Path
) -> None:
    path = write_talk(tmp_path, **changes)
    write_labels(tmp_path / "cocotalk_label.h5")
    with pytest.raises(error, match=message) as caught:
        read_captions(path)
    assert str(path) in str(caught.value)
    assert str(caught.value) in talk.FORMAT.inspect(path).problems


def test_a_cut_label_file_is_truncated(tmp_path: Path) -> None:
    labels = write_labels(tmp_path / "cocotalk_label.h5", labels=np.ones((3, 5000), int), label_length=[5000] * 3)
    labels.write_bytes(labels.read_bytes()[:-20_000])
    with pytest.raises(TruncatedError, match="copy or download it again"):
        talk.read_labels(labels)
    assert talk.FORMAT.inspect(labels).problem_count == 1


def test_without_h5py_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_talk(tmp_path)
    write_labels(tmp_path / "cocotalk_label.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sightline\[train\]'"):
        read_captions(path)
    (note,) = talk.FORMAT.inspect(path).notes
    assert "h5py" in note


def test_gvd_captions_take_ids_and_splits_from_the_dictionary_beside_them(tmp_path: Path) -> None:
    write_talk(tmp_path, "dic_flickr30k.json")
    path = tmp_path / "cap_flickr30k.json"
    path.write_text(json.dumps(GVD_CAPTIONS))
    one, two = gvd.read_gvd_captions(path)
    assert (one.id, one.split, two.id) == ("11", "train", "12")
    assert one.sentences[0].words == (GroundedWord(1, "dog", ((1.0, 2.0, 3.0, 4.0),)),)
    assert [s.text for s in gvd.CAPTIONS.captions(path).sentences()] == ["a dog", "a"]


def test_gvd_boxes_outside_the_photo_of_the_dictionary_are_refused(tmp_path: Path) -> None:
    write_talk(tmp_path, "dic_flickr30k.json")
    path = tmp_path / "cap_flickr30k.json"
    path.write_text(json.dumps(GVD_CAPTIONS).replace("[1, 2, 3, 4]", "[1, 2, 3, 5]"))
    with pytest.raises(BoxError, match=r"image 11, captions\[0\]: 'bbox'\[0\] is .* outside the 4×3 photo"):
        gvd.read_gvd_captions(path)


def test_gvd_captions_without_their_dictionary_or_of_another_run_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cap_flickr30k.json"
    path.write_text(json.dumps(GVD_CAPTIONS))
    with pytest.raises(MissingRecordError, match=r"add dic_flickr30k\.json"):
        gvd.read_gvd_captions(path)
    write_talk(tmp_path, "dic_flickr30k.json", images=[{"id": 1}])
    with pytest.raises(CountError, match="2 images here, 1 in"):
        gvd.read_gvd_captions(path)
    write_talk(tmp_path, "dic_flickr30k.json")
    path.write_text(json.dumps([{"caption": ["a"], "clss": [], "idx": []}, []]))
    report = gvd.CAPTIONS.inspect(path)
    assert report.problem_count == 1
    assert "[0]: a list of captions was expected" in report.problems[0]


def test_the_sample_is_what_prepro_would_make() -> None:
    assert [sum(bool(id) for id in row) for row in LABELS["labels"]] == LABELS["label_length"]  # type: ignore[union-attr]
