"""What the writers write, the readers read back: any caption, any id, any number of photos."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caption_samples import ID, TEXT, WORD, caption_sets
from sightline.data import caption_table, coco, gvd, json_captions
from sightline.data.format import Format
from sightline.data.gvd import Submission
from sightline.data.records import CaptionedPhoto, CaptionSet, GroundedPrediction, Sentence
from sightline.errors import ConfigError, CountError, DuplicateRecordError, MissingRecordError

SOME = CaptionSet(
    (CaptionedPhoto("1", (Sentence("a"),), "same.jpg"), CaptionedPhoto("2", (Sentence("b"),), "same.jpg"))
)
BARE = CaptionSet((CaptionedPhoto("1", (Sentence("a"),)), CaptionedPhoto("2")), "some.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("written")


def texts(captions: CaptionSet) -> list[tuple[str, list[str]]]:
    return [(photo.id, [sentence.text for sentence in photo.sentences]) for photo in captions]


@settings(max_examples=25)
@given(captions=caption_sets())
def test_coco_captions_keep_ids_files_sizes_and_texts(captions: CaptionSet, folder: Path) -> None:
    path = folder / "captions_any.json"
    assert coco.write_captions(path, captions) == len(captions)
    back = coco.read_captions(path)
    assert texts(back) == texts(captions)
    assert [(p.file, p.size) for p in back] == [(p.file, p.size) for p in captions]


@settings(max_examples=25)
@given(captions=caption_sets(tokens=True))
def test_karpathy_files_keep_everything_but_sentence_ids(captions: CaptionSet, folder: Path) -> None:
    path = folder / "dataset_any.json"
    assert json_captions.write_karpathy(path, captions) == len(captions)
    back = json_captions.read_karpathy(path)
    assert texts(back) == texts(captions)
    assert [s.tokens for s in back.sentences()] == [s.tokens for s in captions.sentences()]
    assert [(p.file, p.size, p.split) for p in back] == [(p.file, p.size, p.split) for p in captions]


@given(text=TEXT)
def test_karpathy_tokens_are_lower_case_words_without_ascii_punctuation(text: str, folder: Path) -> None:
    json_captions.write_karpathy(folder / "one.json", CaptionSet((CaptionedPhoto("1", (Sentence(text),)),)))
    (sentence,) = json_captions.read_karpathy(folder / "one.json").sentences()
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    assert sentence.tokens == tuple(kept.split())


@settings(max_examples=10)
@given(ids=st.lists(st.integers(0, 10**9), unique=True, min_size=2, max_size=5))
@pytest.mark.parametrize("format", [coco.CAPTIONS, json_captions.KARPATHY])
def test_distinct_numbers_of_sentences_are_kept(format: Format, ids: list[int], folder: Path) -> None:
    captions = CaptionSet((CaptionedPhoto("5", tuple(Sentence("x", id=str(id)) for id in ids)),))
    format.write_captions(folder / "numbered.json", captions)  # type: ignore[misc]
    back = format.captions(folder / "numbered.json")  # type: ignore[misc]
    assert [sentence.id for sentence in back.sentences()] == list(map(str, ids))


@given(results=st.dictionaries(ID, TEXT))
def test_results_keep_every_id_and_caption(results: dict[str, str], folder: Path) -> None:
    path = folder / "results.json"
    assert coco.write_results(path, results) == len(results)
    assert texts(coco.read_results(path)) == [(id, [caption]) for id, caption in results.items()]


def test_results_hold_numbers_where_ids_are_numbers(folder: Path) -> None:
    coco.write_results(folder / "r.json", {"42": "a", "007": "b", "x": "c"})
    assert [row["image_id"] for row in json.loads((folder / "r.json").read_text())] == [42, "007", "x"]


@settings(max_examples=25)
@given(captions=caption_sets(most=1))
def test_photos_with_one_caption_become_results(captions: CaptionSet, folder: Path) -> None:
    assert coco.RESULTS.write_captions(folder / "r1.json", captions) == len(captions)  # type: ignore[misc]
    assert texts(coco.read_results(folder / "r1.json")) == texts(captions)


@pytest.mark.parametrize("name", ["any.csv", "any.tsv", "any.jsonl"])
@settings(max_examples=25)
@given(captions=caption_sets())
def test_tables_keep_every_caption_under_its_file(name: str, captions: CaptionSet, folder: Path) -> None:
    named = [(photo.file or photo.id, [s.text for s in photo.sentences]) for photo in captions]
    write = caption_table.write_jsonl if name.endswith("jsonl") else caption_table.write_csv
    if len({file for file, _ in named}) < len(named):
        with pytest.raises(DuplicateRecordError):
            write(folder / name, captions)
        return
    assert write(folder / name, captions) == len(captions)
    assert texts(caption_table.read(folder / name)) == named


def predicted() -> st.SearchStrategy[tuple[GroundedPrediction, ...]]:
    number = st.floats(0, 1000, width=32)
    box = st.tuples(number, number, number, number).map(
        lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3]))
    )
    return st.lists(st.builds(GroundedPrediction, st.integers(0, 40), WORD, box), max_size=4).map(tuple)


@settings(max_examples=25)
@given(data=st.data(), mode=st.sampled_from(["GT", "gen"]), details=TEXT)
def test_submissions_come_back_equal(data: st.DataObject, mode: str, details: str, folder: Path) -> None:
    count = {"GT": 5, "gen": 1}[mode]
    sentences = st.lists(predicted(), min_size=count, max_size=count).map(tuple)
    submission = Submission(data.draw(st.dictionaries(ID, sentences, max_size=4)), mode, details)
    path = folder / "submission.json"
    assert gvd.write_submission(path, submission) == len(submission.results)
    assert gvd.read_submission(path) == submission


@pytest.mark.parametrize(
    "format", [coco.CAPTIONS, json_captions.KARPATHY, coco.RESULTS, caption_table.CSV, caption_table.JSONL]
)
def test_a_photo_without_caption_is_refused_and_the_old_file_stays(format: Format, tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text("old")
    with pytest.raises(MissingRecordError, match="image 2 has no caption"):
        format.write_captions(path, BARE)  # type: ignore[misc]
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept.json"]


@pytest.mark.parametrize("format", [caption_table.CSV, caption_table.JSONL])
def test_two_photos_of_one_file_are_refused(format: Format, tmp_path: Path) -> None:
    with pytest.raises(DuplicateRecordError, match=r"same\.jpg"):
        format.write_captions(tmp_path / "t.csv", SOME)  # type: ignore[misc]


def test_results_refuse_a_second_caption(tmp_path: Path) -> None:
    with pytest.raises(CountError, match="image 1 has 2 captions"):
        coco.RESULTS.write_captions(
            tmp_path / "r.json", CaptionSet((CaptionedPhoto("1", (Sentence("a"), Sentence("b"))),))
        )


def test_a_submission_of_the_wrong_number_of_sentences_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(CountError, match="image 8"):
        gvd.write_submission(tmp_path / "s.json", Submission({"8": ((),)}, "GT"))
    assert not (tmp_path / "s.json").exists()


def test_a_submission_has_one_of_two_modes() -> None:
    with pytest.raises(ConfigError, match="neither GT nor gen"):
        Submission({}, "test")
