"""Every format of captions and annotations recognises its own files, whole or damaged, and no other's."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caption_samples import COCO, INSTANCES, KARPATHY, MODULES, TALK, format_of, write_labels, write_samples
from sightline.data.format import Probe
from sightline.errors import DataError, TruncatedError

FORMATS = {module: format_of(module) for module in MODULES}
TEXT_MODULES = [module for module in MODULES if module not in ("entities", "photo_folder")]
LINE_MODULES = (
    "captions_csv conceptual_captions flickr_token judgements image_list word_counts class_names corpus".split()
)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_samples(tmp_path_factory.mktemp("samples"))


def claimed(path: Path) -> list[str]:
    probe = Probe(path)
    return [module for module, format in FORMATS.items() if format.matches(probe)]


@pytest.mark.parametrize("module", MODULES)
def test_a_file_is_claimed_by_its_own_format_alone(module: str, samples: dict[str, Path]) -> None:
    assert claimed(samples[module]) == [module]


@pytest.mark.parametrize("module", MODULES)
def test_a_valid_file_is_inspected_without_problems_and_with_counts(module: str, samples: dict[str, Path]) -> None:
    report = FORMATS[module].inspect(samples[module])
    assert report.problems == ()
    assert report.format == FORMATS[module].name
    assert all(count for count in report.counts.values())


@pytest.mark.parametrize("module", [m for m in TEXT_MODULES if m not in ("cocotalk", "gvd_captions")])
def test_a_gzipped_file_is_claimed_and_inspected_like_the_plain_one(
    module: str, samples: dict[str, Path], tmp_path: Path
) -> None:
    packed = tmp_path / (samples[module].name + ".gz")
    packed.write_bytes(gzip.compress(samples[module].read_bytes()))
    if module in ("captions_csv", "captions_jsonl"):
        packed = packed.replace(samples[module].with_name(packed.name))
    assert claimed(packed) == [module]
    assert FORMATS[module].inspect(packed).counts == FORMATS[module].inspect(samples[module]).counts


def cut_copy(sample: Path, content: bytes, suffix: str = "") -> Path:
    cut = sample.with_name("cut_" + sample.name.replace("cap_", "caps_") + suffix)
    cut.write_bytes(content)
    return cut


@pytest.mark.parametrize("module", [module for module in TEXT_MODULES if module not in LINE_MODULES])
def test_cut_json_is_still_claimed_and_its_cut_is_reported(module: str, samples: dict[str, Path]) -> None:
    whole = samples[module].read_bytes()
    assert whole[:1] in (b"{", b"[")
    cut = cut_copy(samples[module], whole[:-6])
    assert claimed(cut) == [module]
    (problem,) = FORMATS[module].inspect(cut).problems
    assert "copy or download it again" in problem


@pytest.mark.parametrize("module", LINE_MODULES)
def test_a_cut_in_the_last_line_is_still_claimed_and_spoils_no_line_before_it(
    module: str, samples: dict[str, Path]
) -> None:
    # Where a caption, a name or a number may be any shorter one, no reader can notice the cut itself.
    whole = samples[module].read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    before = FORMATS[module].inspect(cut_copy(samples[module], whole[:last])).counts
    for end in range(last + 1, len(whole)):
        cut = cut_copy(samples[module], whole[:end])
        assert claimed(cut)[0] == module  # the first has it; half of these few lines may look like another's
        report = FORMATS[module].inspect(cut)
        assert report.problem_count <= 1
        assert all(int(report.counts[name]) >= int(count) for name, count in before.items())
        assert report.problem_count or report.counts != before
        assert all(f"line {len(whole.splitlines())}" in problem for problem in report.problems)


@pytest.mark.parametrize("module", TEXT_MODULES)
def test_a_cut_gzip_stream_is_truncated(module: str, samples: dict[str, Path]) -> None:
    packed = gzip.compress(samples[module].read_bytes())
    for kept in (len(packed) - 5, len(packed) // 2):
        cut = cut_copy(samples[module], packed[:kept], ".gz")
        (problem,) = FORMATS[module].inspect(cut).problems
        assert "the gzip stream ends too early" in problem
        if (read := FORMATS[module].captions or FORMATS[module].scenes) is not None:
            with pytest.raises(TruncatedError, match="the gzip stream ends too early"):
                read(cut)


def test_names_formats_and_sentences_of_the_formats_are_distinct() -> None:
    assert len({format.name for format in FORMATS.values()}) == len(MODULES)
    assert len({format.about for format in FORMATS.values()}) == len(MODULES)


@pytest.mark.parametrize(("value", "module"), [(COCO, "coco_captions"), (INSTANCES, "coco_instances")])
def test_coco_files_of_unusual_names_are_told_apart_by_their_far_away_annotations(
    value: dict[str, object], module: str, tmp_path: Path
) -> None:
    many = [{"id": i, "file_name": f"{i:012}.jpg", "width": 640, "height": 480} for i in range(30_000)]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"images": many, "annotations": value["annotations"], "categories": []}))
    assert claimed(path) == [module]


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
        assert claimed(tmp_path / name) == ([] if name == "train_ids.txt" else ["image_list"])


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
@given(data=st.data(), module=st.sampled_from([m for m in MODULES if m != "photo_folder"]))
def test_no_damage_makes_a_reader_fail_with_anything_but_a_data_error(
    data: st.DataObject, module: str, samples: dict[str, Path]
) -> None:
    whole = samples[module].read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 30)))
    damaged = samples[module].with_name("cap_damaged_" + samples[module].name)
    damaged.write_bytes(whole[:start] + data.draw(st.binary(max_size=8)) + whole[end:])
    FORMATS[module].matches(Probe(damaged))
    report = FORMATS[module].inspect(damaged)
    read = FORMATS[module].captions or FORMATS[module].scenes
    refused = None
    try:
        if read is not None:
            read(damaged)
    except DataError as error:
        refused = str(error)
    assert refused is None or refused in report.problems
    assert read is None or (refused is None) == (report.problem_count == 0)
