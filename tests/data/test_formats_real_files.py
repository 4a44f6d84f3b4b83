"""The real files: every count their sources state, and no problem found in them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from caption_samples import NAMES, format_of
from sightline.data import boxes_jsonl, coco, entities, image_list, json_captions, text_lists
from sightline.data.format import Probe
from sightline.data.records import CaptionSet

pytestmark = pytest.mark.data

CLAIMED = {
    "coco/captions_val2014.json.gz": "coco-captions",
    "coco/karpathy_train.txt.gz": "image-list",
    "coco/pseudo_boxes.jsonl.gz": "boxes-jsonl",
    "corpora/conceptual_captions_val.txt.gz": "corpus",
    "corpora/flickr30k_captions.txt.gz": "corpus",
    "corpora/senticap.json.gz": "senticap",
    "flickr8k/ExpertAnnotations.txt": "flickr8k-judgements",
    "flickr8k/Flickr8k.token.txt": "flickr-token",
    "flickr8k/Flickr_8k.devImages.txt": "image-list",
    "flickr8k/flickr30k_entities_8091.tar.gz": "flickr30k-entities",
    "flickr8k/images": "photo-folder",
    "metrics/captions_val2014_fakecap_results.json": "coco-results",
}


@pytest.fixture(scope="module")
def flickr8k(data_dir: Path) -> CaptionSet:
    return text_lists.read_flickr(data_dir / "flickr8k/Flickr8k.token.txt")


@pytest.fixture(scope="module")
def photos(data_dir: Path) -> dict[str, entities.EntitiesPhoto]:
    return entities.read_photos(data_dir / "flickr8k/flickr30k_entities_8091.tar.gz")


@pytest.mark.parametrize("name", CLAIMED)
def test_real_files_are_claimed_by_one_format(name: str, data_dir: Path) -> None:
    probe = Probe(data_dir / name)
    assert [module for module in NAMES if format_of(module).matches(probe)] == [CLAIMED[name]]


@pytest.mark.parametrize("name", ["metrics/reference.json", "flickr8k", "coco"])
def test_other_real_files_and_folders_of_several_formats_are_claimed_by_none(name: str, data_dir: Path) -> None:
    assert not [module for module in NAMES if format_of(module).matches(Probe(data_dir / name))]


def test_coco_captions_and_karpathys_split_agree(data_dir: Path) -> None:
    train = coco.read_captions(data_dir / "coco/captions_train2014.json.gz")
    val = coco.read_captions(data_dir / "coco/captions_val2014.json.gz")
    assert (len(train), len(val)) == (82_783, 40_504)
    assert sum(1 for half in (train, val) for _ in half.sentences()) == 616_767
    both = CaptionSet(train.photos + val.photos)
    names = ("train", "val", "test")
    split = image_list.with_splits(both, {name: data_dir / f"coco/karpathy_{name}.txt.gz" for name in names})
    assert split.splits() == {"train": 113_287, "val": 5_000, "test": 5_000}


def test_machine_boxes_cover_train2017(data_dir: Path) -> None:
    boxes = boxes_jsonl.read(data_dir / "coco/pseudo_boxes.jsonl.gz")
    assert (len(boxes), boxes.box_count()) == (118_287, 667_314)
    assert boxes["9"].concepts[0].name == "broccoli"


def test_corpora_have_their_sentences(data_dir: Path) -> None:
    assert len(text_lists.read_sentences(data_dir / "corpora/flickr30k_captions.txt.gz")) == 118_460
    assert len(text_lists.read_sentences(data_dir / "corpora/conceptual_captions_val.txt.gz")) == 15_833


def test_senticap_has_its_sentiments(data_dir: Path) -> None:
    captions = json_captions.read_senticap(data_dir / "corpora/senticap.json.gz")
    found = Counter(map(json_captions.sentiment_of, captions.sentences()))
    assert found == {"positive": 4_892, "negative": 3_977}


def test_flickr8k_captions_name_one_photo_that_does_not_exist(flickr8k: CaptionSet, data_dir: Path) -> None:
    assert sum(1 for _ in flickr8k.sentences()) == 40_460
    held = {path.name for path in (data_dir / "flickr8k/images").iterdir()}
    assert len(held) == 8_091
    assert {photo.id for photo in flickr8k} - held == {"2258277193_586949ec62.jpg.1"}
    names = ("train", "dev", "test")
    lists = {name: data_dir / f"flickr8k/Flickr_8k.{name}Images.txt" for name in names}
    assert image_list.with_splits(flickr8k, lists).splits() == {"train": 6_000, "dev": 1_000, "test": 1_000}


def test_judgements_are_about_captions_that_exist(flickr8k: CaptionSet, data_dir: Path) -> None:
    found = text_lists.read_judgements(data_dir / "flickr8k/ExpertAnnotations.txt")
    assert len(found) == 5_822
    captions = {sentence.id for sentence in flickr8k.sentences()}
    assert all(judgement.caption in captions and judgement.image in flickr8k for judgement in found)


def test_entities_have_their_phrases_and_boxes(photos: dict[str, entities.EntitiesPhoto]) -> None:
    assert len(photos) == 8_091
    assert sum(photo.box_count for photo in photos.values()) == 52_311
    assert sum(len(sentence.phrases) for photo in photos.values() for sentence in photo.sentences) == 125_930
    chains = [boxes for photo in photos.values() for boxes in photo.boxes.values()]
    assert (len(chains), sum(len(boxes) > 1 for boxes in chains)) == (39_596, 8_714)


def test_entities_captions_are_flickr8k_captions_of_the_same_photo(
    photos: dict[str, entities.EntitiesPhoto], flickr8k: CaptionSet
) -> None:
    by_number = {image_list.photo_number(photo.id): photo for photo in flickr8k if photo.id.endswith(".jpg")}
    assert by_number.keys() == photos.keys()
    same = 0
    for id, photo in photos.items():
        written = {"".join(s.text.lower().split()) for s in by_number[id].sentences}
        same += sum("".join(sentence.tokens).lower() in written for sentence in photo.sentences)
    assert same / 40_455 > 0.9  # Entities corrected the spelling of some


def test_results_of_the_reference_tool_are_read(data_dir: Path) -> None:
    assert len(coco.read_results(data_dir / "metrics/captions_val2014_fakecap_results.json")) == 1_000
