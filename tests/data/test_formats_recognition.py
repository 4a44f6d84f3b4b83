"""Every format of captions and annotations recognises its own files, whole or damaged, and no other's."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caption_samples import COCO, INSTANCES, KARPATHY, NAMES, TALK, format_of, write_labels, write_samples
from sightline.data.format import Probe
from sightline.errors import DataError, TruncatedError

FORMATS = {name: format_of(name) for name in NAMES}
TEXT_NAMES = [name for name in NAMES if name not in ("flickr30k-entities", "photo-folder")]
LINE_NAMES = (
    "captions-csv conceptual-captions flickr-token flickr8k-judgements image-list word-counts class-names corpus"
).split()


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_samples(tmp_path_factory.mktemp("samples"))


def claimed(path: Path) -> list[str]:
    probe = Probe(path)
    return [name for name, format in FORMATS.items() if format.matches(probe)]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_claimed_by_its_own_format_alone(name: str, samples: dict[str, Path]) -> None:
    assert claimed(samples[name]) == [name]


@pytest.mark.parametrize("name", NAMES)
def test_a_valid_file_is_inspected_without_problems_and_with_counts(name: str, samples: dict[str, Path]) -> None:
    report = FORMATS[name].inspect(samples[name])
    assert report.problems == ()
    assert report.format == FORMATS[name].name
    assert all(count for count in report.counts.values())


@pytest.mark.parametrize("name", [m for m in TEXT_NAMES if m not in ("cocotalk", "gvd-captions")])
def test_a_gzipped_file_is_claimed_and_inspected_like_the_plain_one(
    name: str, samples: dict[str, Path], tmp_path: Path
) -> None:
    packed = tmp_path / (samples[name].name + ".gz")
    packed.write_bytes(gzip.compress(samples[name].read_bytes()))
    if name in ("captions-csv", "captions-jsonl"):
        packed = packed.replace(samples[name].with_name(packed.name))
    assert claimed(packed) == [name]
    assert FORMATS[name].inspect(packed).counts == FORMATS[name].inspect(samples[name]).counts


def cut_copy(sample: Path, content: bytes, suffix: str = "") -> Path:
    cut = sample.with_name("cut_" + sample.name.replace("cap_", "caps_") + suffix)
    cut.write_bytes(content)
    return cut


@pytest.mark.parametrize("name", [name for name in TEXT_NAMES if name not in LINE_NAMES])
def test_cut_json_is_still_claimed_and_its_cut_is_reported(name: str, samples: dict[str, Path]) -> None:
    whole = samples[name].read_bytes()
    assert whole[:1] in (b"{", b"[")
    cut = cut_copy(samples[name], whole[:-6])
    assert claimed(cut) == [name]
    (problem,) = FORMATS[name].inspect(cut).problems
    assert "copy or download it again" in problem


@pytest.mark.parametrize("name", LINE_NAMES)
def test_a_cut_in_the_last_line_is_still_claimed_and_spoils_no_line_before_it(
    name: str, samples: dict[str, Path]
) -> None:
    # Where a caption, a name or a number may be any shorter one, no reader can notice the cut itself.
    whole = samples[name].read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    before = FORMATS[name].inspect(cut_copy(samples[name], whole[:last])).counts
    for end in range(last + 1, len(whole)):
        cut = cut_copy(samples[name], whole[:end])
        assert claimed(cut)[0] == name  # the first has it; half of these few lines may look like another's
        report = FORMATS[name].inspect(cut)
        assert report.problem_count <= 1
        assert all(int(report.counts[name]) >= int(count) for name, count in before.items())
        assert report.problem_count or report.counts != before
        assert all(f"line {len(whole.splitlines())}" in problem for problem in report.problems)


@pytest.mark.parametrize("name", TEXT_NAMES)
def test_a_cut_gzip_stream_is_truncated(name: str, samples: dict[str, Path]) -> None:
    packed = gzip.compress(samples[name].read_bytes())
    for kept in (len(packed) - 5, len(packed) // 2):
        cut = cut_copy(samples[name], packed[:kept], ".gz")
        (problem,) = FORMATS[name].inspect(cut).problems
        assert "the gzip stream ends too early" in problem
        if (read := FORMATS[name].captions or FORMATS[name].scenes) is not None:
            with pytest.raises(TruncatedError, match="the gzip stream ends too early"):
                read(cut)


def test_names_formats_and_sentences_of_the_formats_are_distinct() -> None:
    assert len({format.name for format in FORMATS.values()}) == len(NAMES)
    assert len({format.about for format in FORMATS.values()}) == len(NAMES)


@pytest.mark.parametrize(("value", "name"), [(COCO, "coco-captions"), (INSTANCES, "coco-instances")])
def test_coco_files_of_unusual_names_are_told_apart_by_their_far_away_annotations(
    value: dict[str, object], name: str, tmp_path: Path
) -> None:
    many = [{"id": i, "file_name": f"{i:012}.jpg", "width": 640, "height": 480} for i in range(30_000)]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"images": many, "annotations": value["annotations"], "categories": []}))
    assert claimed(path) == [name]


@pytest.mark.parametrize("first", ["images", "wtol", "ix_to_word"])
def test_talk_files_are_claimed_in_any_key_order(first: str, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps({first: TALK[first], **TALK}))
    assert claimed(path) == ["cocotalk"]


def test_label_files_are_claimed_by_content_and_broken_ones_by_name(tmp_path: Path) -> None:
    path = write_labels(tmp_path / "anything.h5")
    assert claimed(path) == ["cocotalk"]
    broken = tmp_path / "cocotalk_label.h5"
    broken.write_bytes(path.read_bytes()[:100])
    assert claimed(broken) == ["cocotalk"]


def test_lists_of_ids_are_claimed_unless_they_are_those_of_a_precomp_folder(tmp_path: Path) -> None:
    for name in ("train.txt", "ids.txt", "val.txt.gz", "train_ids.txt"):
        text = b"1000092795\n36979\n"
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        assert claimed(tmp_path / name) == ([] if name == "train_ids.txt" else ["image-list"])


def test_foreign_files_are_claimed_by_nobody(tmp_path: Path) -> None:
    foreign = {
        "empty.txt": "",
        "empty.json": "",
        "train_ids.txt": "391895\n60623\n",
        "vocab.json": json.dumps({"word2idx": {"a": 1}, "idx2word": {"1": "a"}, "idx": 2}),
        "mixed.json": json.dumps({"about": "a file of scores", "sets": {"a": [1, 2]}}),
        "config.json": json.dumps({"name": "a model of ours", "layers": 3}),
        "numbers.json": "[1, 2, 3]",
        "features.tsv": "391895\t640\t480\t36\tAAAA\tBBBB\n",
        "model.bin": "\0\1\2",
    }
    for name, text in foreign.items():
        (tmp_path / name).write_text(text)
        assert claimed(tmp_path / name) == [], name
    assert claimed(tmp_path) == []


def test_a_karpathy_file_with_its_name_first_is_not_taken_for_captions_by_id(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"dataset": "my own photos", "images": KARPATHY["images"]}))
    assert claimed(path) == ["karpathy"]


@settings(max_examples=300)
@given(data=st.data(), name=st.sampled_from([m for m in NAMES if m != "photo-folder"]))
def test_no_damage_makes_a_reader_fail_with_anything_but_a_data_error(
    data: st.DataObject, name: str, samples: dict[str, Path]
) -> None:
    whole = samples[name].read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 30)))
    damaged = samples[name].with_name("cap_damaged_" + samples[name].name)
    damaged.write_bytes(whole[:start] + data.draw(st.binary(max_size=8)) + whole[end:])
    FORMATS[name].matches(Probe(damaged))
    report = FORMATS[name].inspect(damaged)
    read = FORMATS[name].captions or FORMATS[name].scenes
    refused = None
    try:
        if read is not None:
            read(damaged)
    except DataError as error:
        refused = str(error)
    assert refused is None or refused in report.problems
    assert read is None or (refused is None) == (report.problem_count == 0)
