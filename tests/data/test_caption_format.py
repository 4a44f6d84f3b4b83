"""Caption formats in JSON: what a good file gives, and how a broken one is told."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caption_samples import (
    BLIP,
    CLIPSCORE,
    COCO,
    EVALUATION,
    KARPATHY,
    NEURALTALK,
    RESULTS,
    SENTICAP,
    drop,
    format_of,
    put,
    repeat,
)
from sightline.data import coco, json_captions
from sightline.data.records import CaptionSet
from sightline.errors import (
    ByteStringError,
    CountError,
    DataError,
    DuplicateRecordError,
    MissingRecordError,
    TruncatedError,
)

SAMPLES: dict[str, Any] = {
    "karpathy": KARPATHY,
    "senticap": SENTICAP,
    "neuraltalk-raw": NEURALTALK,
    "coco-captions": COCO,
    "coco-results": RESULTS,
    "coco-evaluation": EVALUATION,
    "blip-json": BLIP,
    "clipscore-json": CLIPSCORE,
}


def written(tmp_path: Path, value: Any) -> Path:
    path = tmp_path / "sample.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def texts(captions: CaptionSet) -> dict[str, list[str]]:
    return {photo.id: [sentence.text for sentence in photo.sentences] for photo in captions}


def test_karpathy_gives_cocoid_or_imgid_files_splits_and_tokens(tmp_path: Path) -> None:
    captions = json_captions.read_karpathy(written(tmp_path, KARPATHY))
    assert texts(captions) == {"391895": ["A man.", "A moped."], "7": ["Two dogs "]}
    assert captions.splits() == {"test": 1, "train": 1}
    assert [photo.file for photo in captions] == ["val2014/COCO_val2014_000000391895.jpg", "1000092795.jpg"]
    assert captions["7"].sentences[0].tokens == ("two", "dogs")
    assert [s.id for s in captions.sentences()] == ["770337", "771687", "35"]


def test_karpathy_sentences_without_raw_text_are_their_joined_tokens(tmp_path: Path) -> None:
    path = written(tmp_path, {"images": [{"imgid": 0, "sentences": [{"tokens": ["a", "dog"]}]}]})
    assert texts(json_captions.read_karpathy(path)) == {"0": ["a dog"]}


def test_senticap_joins_a_photo_listed_for_each_sentiment(tmp_path: Path) -> None:
    path = written(tmp_path, SENTICAP)
    captions = json_captions.read_senticap(path)
    assert texts(captions) == {"5": ["Nice food.", "Bad food."]}
    assert [json_captions.sentiment_of(sentence) for sentence in captions.sentences()] == ["positive", "negative"]
    assert json_captions.SENTICAP.inspect(path).counts["negative captions"] == 1


def test_words_with_sentiment_are_the_adjectives_that_senticap_marks(tmp_path: Path) -> None:
    def sentence(text: str, sentiment: int) -> dict[str, object]:
        """Words in capitals are marked."""
        words = text.split()
        return {
            "tokens": text.lower().split(),
            "word_sentiment": [float(w.isupper()) for w in words],
            "sentiment": sentiment,
        }

    told = [
        sentence("a NICE DOG and a dog", 1),
        sentence("the NICE BIG CAT sits", 1),
        sentence("a big house and a big car", 1),  # big is seldom marked
        sentence("a BAD DOG bites a nice cat", 0),
    ]
    path = written(tmp_path, {"images": [{"imgid": 5, "filename": "a.jpg", "split": "test", "sentences": told}]})
    assert json_captions.sentiment_words(path) == {"positive": {"nice"}, "negative": {"bad"}}


def test_neuraltalk_lists_use_the_path_where_there_is_no_id(tmp_path: Path) -> None:
    captions = json_captions.read_neuraltalk(written(tmp_path, NEURALTALK))
    assert texts(captions) == {"4": ["one dog", "a dog"], "b.jpg": ["x"]}
    assert captions["4"].file == "a/1.jpg"


def test_coco_captions_keep_the_order_of_images_and_of_annotations(tmp_path: Path) -> None:
    captions = coco.read_captions(written(tmp_path, COCO))
    assert list(texts(captions).items()) == [("9", ["Some food\n"]), ("4", ["A bear.", "A brown bear"])]
    assert captions["4"].size == (500, 375)
    assert captions["4"].sentences[1].id == "32"


def test_references_made_without_file_names_are_read(tmp_path: Path) -> None:
    bare = {"images": [{"id": 1}], "annotations": [{"id": 0, "image_id": 1, "caption": "x"}]}
    assert texts(coco.read_captions(written(tmp_path, bare))) == {"1": ["x"]}


def test_results_are_captions_by_id(tmp_path: Path) -> None:
    assert texts(coco.read_results(written(tmp_path, RESULTS))) == {"404464": ["a man"], "5": ["snow"]}


def test_an_evaluation_gives_the_captions_that_its_scores_belong_to(tmp_path: Path) -> None:
    assert texts(coco.read_evaluation(written(tmp_path, EVALUATION))) == {"42": ["a dog"]}


def test_blip_rows_of_one_photo_are_joined(tmp_path: Path) -> None:
    captions = json_captions.read_blip(written(tmp_path, BLIP))
    assert texts(captions) == {"coco_1": ["a dog", "one dog"], "coco_2": ["a cat", "the cat"]}
    assert captions["coco_2"].file == "val2014/b.jpg"


def test_blip_photos_without_id_are_called_after_their_file(tmp_path: Path) -> None:
    path = written(tmp_path, [{"image": "a.jpg", "caption": ["x"]}])
    assert texts(json_captions.read_blip(path)) == {"a.jpg": ["x"]}


def test_clipscore_takes_one_caption_or_several(tmp_path: Path) -> None:
    path = written(tmp_path, {"a": "one dog", "b": ["two dogs", "three"]})
    assert texts(json_captions.read_clipscore(path)) == {"a": ["one dog"], "b": ["two dogs", "three"]}


def test_empty_captions_are_read_as_they_are_and_counted(tmp_path: Path) -> None:
    path = written(
        tmp_path, [{"image_id": 1, "caption": ""}, {"image_id": 2, "caption": " "}, {"image_id": 3, "caption": "x"}]
    )
    assert texts(coco.read_results(path))["1"] == [""]
    report = coco.RESULTS.inspect(path)
    assert report.notes == ("2 captions are empty",)
    assert report.problem_count == 0


BYTES = "b'a dog'"
BROKEN = [
    ("karpathy", drop("images"), DataError, "'images' is missing"),
    ("karpathy", drop("images", 1, "imgid"), DataError, r"images\[1\].*'imgid' is missing"),
    ("karpathy", put(True, "images", 0, "cocoid"), DataError, r"images\[0\].*'cocoid' must be an id"),
    ("karpathy", put(3, "images", 0), DataError, r"images\[0\]: an object .* not the number 3"),
    ("karpathy", put(7, "images", 0, "sentences", 1, "raw"), DataError, r"391895, sentences\[1\].*'raw' must be text"),
    (
        "karpathy",
        put(["a", None], "images", 0, "sentences", 0, "tokens"),
        DataError,
        r"'tokens'\[1\] must be text, not null",
    ),
    ("karpathy", put(BYTES, "images", 0, "sentences", 0, "raw"), ByteStringError, r"sentences\[0\].*printed bytes"),
    ("karpathy", put([1], "images", 0, "sentids"), CountError, r"images\[0\].*lists 1 sentences, `sentences` holds 2"),
    ("karpathy", put([1, 2], "images", 0, "sentids"), CountError, r"images\[0\].*differ"),
    ("karpathy", put([], "images", 0, "sentences"), DataError, "391895"),
    ("karpathy", repeat("images"), DuplicateRecordError, "image 391895 appears twice"),
    ("senticap", put(2, "images", 0, "sentences", 0, "sentiment"), DataError, r"image 5, sentences\[0\].*positive"),
    ("senticap", drop("images", 1, "sentences", 0, "tokens"), DataError, r"'tokens' is missing"),
    ("neuraltalk-raw", drop(0, "file_path"), DataError, r"\[0\].*'file_path' is missing"),
    ("neuraltalk-raw", put("one", 0, "captions"), DataError, r"\[0\] \(id 4\).*'captions' must be a list"),
    ("neuraltalk-raw", put([], 1, "captions"), MissingRecordError, r"image b\.jpg has no caption"),
    ("neuraltalk-raw", put([BYTES], 1, "captions"), ByteStringError, r"\[1\]"),
    ("neuraltalk-raw", repeat(), DuplicateRecordError, "image 4 appears twice"),
    ("coco-captions", drop("annotations"), DataError, "'annotations' is missing"),
    (
        "coco-captions",
        drop("annotations", 1, "caption"),
        DataError,
        r"annotations\[1\] \(id 31\).*'caption' is missing",
    ),
    ("coco-captions", put(None, "annotations", 1, "caption"), DataError, r"'caption' must be text, not null"),
    ("coco-captions", put(BYTES, "annotations", 2, "caption"), ByteStringError, r"annotations\[2\] \(id 32\)"),
    ("coco-captions", put(77, "annotations", 0, "image_id"), MissingRecordError, r"annotations\[0\].*no image 77"),
    ("coco-captions", put(31, "annotations", 2, "id"), DuplicateRecordError, "annotation id 31 appears twice"),
    ("coco-captions", drop("annotations", 1), MissingRecordError, "image 9 has no caption"),
    ("coco-captions", repeat("images"), DuplicateRecordError, "image 9 appears twice"),
    ("coco-captions", put("", "images", 0, "id"), DataError, r"images\[0\].*'id' must be an id"),
    ("coco-captions", put(0, "images", 0, "width"), DataError, r"images\[0\].*image size is 0×480"),
    ("coco-captions", put(4.5, "images", 0, "height"), DataError, r"'height' must be a whole number"),
    ("coco-captions", put("\ud83d", "annotations", 0, "caption"), DataError, r"annotations\[0\].*surrogate"),
    ("coco-results", put({"a": 1}, 1, "caption"), DataError, r"\[1\] \(image_id 5\).*must be text, not an object of 1"),
    ("coco-results", put([1, 2], 1, "caption"), DataError, r"not a list of 2"),
    ("coco-results", drop(0, "image_id"), DataError, r"\[0\].*'image_id' is missing"),
    ("coco-results", repeat(), DuplicateRecordError, "image 404464 appears twice"),
    ("coco-results", put(BYTES, 0, "caption"), ByteStringError, "404464"),
    ("coco-evaluation", drop("imgToEval", "42", "caption"), DataError, r"imgToEval\['42'\].*'caption' is missing"),
    ("coco-evaluation", put([], "imgToEval"), DataError, r"'imgToEval' must be an object"),
    ("blip-json", drop(1, "image"), DataError, r"\[1\].*'image' is missing"),
    (
        "blip-json",
        put("val2014/c.jpg", 2, "image"),
        DuplicateRecordError,
        r"\[2\].*coco_2 is val2014/b\.jpg and val2014/c",
    ),
    ("blip-json", put([], 0, "caption"), MissingRecordError, "image coco_1 has no caption"),
    ("blip-json", put(False, 0, "caption"), DataError, r"\[0\].*'caption' must be text, not false"),
    ("clipscore-json", put(3, "photo two"), DataError, "'photo two' must be text"),
    ("clipscore-json", put([], "photo two"), MissingRecordError, "photo two has no caption"),
    ("clipscore-json", put(BYTES, "photo two"), ByteStringError, "photo two"),
]


@pytest.mark.parametrize(("module", "change", "error", "message"), BROKEN)
def test_a_broken_file_is_refused_with_its_place_and_inspected_without_raising(
    module: str, change: Callable[[Any], None], error: type[DataError], message: str, tmp_path: Path
) -> None:
    value = copy.deepcopy(SAMPLES[module])
    change(value)
    path = written(tmp_path, value)
    format = format_of(module)
    assert format.captions is not None
    with pytest.raises(error, match=message) as caught:
        format.captions(path)
    assert str(path) in str(caught.value)
    report = format.inspect(path)
    assert str(caught.value) in report.problems


@pytest.mark.parametrize("module", SAMPLES)
def test_a_file_cut_in_the_middle_of_a_text_is_truncated(module: str, tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    whole = json.dumps(SAMPLES[module])
    cut = whole.rindex('"', 0, 2 * len(whole) // 3) + 1
    path.write_text(whole[: cut + (whole[:cut].count('"') % 2 == 0)])
    format = format_of(module)
    assert format.captions is not None
    with pytest.raises(TruncatedError, match=r"cut\.json"):
        format.captions(path)
    assert format.inspect(path).problem_count == 1


@pytest.mark.parametrize("module", SAMPLES)
def test_a_file_of_the_wrong_kind_of_json_says_what_was_expected(module: str, tmp_path: Path) -> None:
    wrong: Any = [] if isinstance(SAMPLES[module], dict) else {}
    with pytest.raises(DataError, match="was expected, not"):
        format_of(module).captions(written(tmp_path, wrong))  # type: ignore[misc]


def test_all_problems_of_a_file_are_counted_and_the_good_records_too(tmp_path: Path) -> None:
    value = copy.deepcopy(COCO)
    notes = value["annotations"]
    assert isinstance(notes, list)
    notes += [{"id": 100 + i, "image_id": 999, "caption": "x"} for i in range(50)]
    report = coco.CAPTIONS.inspect(written(tmp_path, value))
    assert report.problem_count == 50
    assert len(report.problems) == 20
    assert report.counts == {"photos": 2, "captions": 3}


def test_a_key_that_json_would_silently_drop_is_found(tmp_path: Path) -> None:
    path = tmp_path / "twice.json"
    path.write_text('{"a": "one dog", "b": "a cat", "a": "two dogs"}')
    with pytest.raises(DuplicateRecordError, match="'a' appears twice"):
        json_captions.read_clipscore(path)
    assert json_captions.CLIPSCORE.inspect(path).problem_count == 1
