"""The model that comes with the package: small, whole, with its terms, and it sees what is in a photo."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import sightline
from bundle_samples import EXAMPLES
from sightline.checkpoint.bundle import default_bundle, load_bundle
from sightline.data.entities import read_photos as read_entities
from sightline.data.image_list import read_names
from sightline.decoding.rules import rules_of, word_limits
from sightline.scene import box_iou
from sightline.text.tagger import Tagger
from sightline.training.training_photos import of_entities

torch.set_num_threads(1)
DATA = os.environ.get("SIGHTLINE_DATA")
FROZEN = "1a9e93f62956d302"  # docs/model.md


@pytest.fixture(scope="module")
def pipeline():
    return sightline.load()


def test_all_in_the_folder_is_at_most_25_mebibytes_and_the_terms_are_there():
    folder = default_bundle().parent
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 25 * 2**20
    terms = (folder / "LICENSE").read_text("utf-8")
    assert "COCO" in terms
    assert "Flickr30k Entities" in terms


def test_its_card_tells_what_it_learned_from_and_how_good_it_is():
    card = load_bundle(default_bundle()).card
    assert card["captioner"]["data"]["counts"]["train"]["photos"] == 115_488
    assert {"CIDEr-D", "BLEU-4", "METEOR 1.5", "caption R@1", "boxes covered by 36"} <= card["metrics"].keys()


def test_its_vision_model_is_the_frozen_one_that_scenes_and_models_trained_on_them_name():
    assert load_bundle(default_bundle()).vision.fingerprint() == FROZEN


@pytest.mark.parametrize(("name", "thing"), [("cat.jpg", "cat"), ("coffee.jpg", "coffee")])
def test_it_names_the_thing_in_a_photo_and_puts_a_box_on_it(pipeline, name, thing):
    said = pipeline.caption(EXAMPLES / name).to_json()
    assert thing in said["caption"].split()
    box = next(word["box"] for word in said["words"] if word["word"] == thing)
    width, height = said["size"]
    x1, y1, x2, y2 = box
    assert 0 <= x1 < x2 <= width
    assert 0 <= y1 < y2 <= height
    assert x1 < 0.55 * width < x2  # both lie in the middle
    assert y1 < 0.55 * height < y2
    assert 0 < said["confidence"] < 1


@pytest.mark.parametrize(
    ("name", "sentence", "things"),
    [
        ("coffee.jpg", "a giraffe behind a cup", ["giraffe", "cup"]),
        ("photographer.jpg", "a man with a cell phone", ["man", "phone"]),
        ("coffee.jpg", "a group of cups in the background", ["cups"]),
    ],
)
def test_only_things_have_boxes_and_two_things_have_two(pipeline, name, sentence, things):
    found = pipeline.ground(EXAMPLES / name, sentence)
    boxes = {word: trace.box for word, trace in zip(found.words, found.trace, strict=True) if trace.box is not None}
    assert list(boxes) == things
    assert len(set(boxes.values())) == len(things)


@pytest.mark.parametrize("length", ["5", "6", "7", "8", "10", "short"])
def test_captions_with_little_room_are_whole(pipeline, length):
    for said in pipeline.caption(sorted(EXAMPLES.glob("*.jpg")), rules=rules_of(length)):
        assert 2 <= len(said) <= word_limits(length)[1]
        whole = said.words[-2:] == ("each", "other") or Tagger.default().tag(said.words)[-1] in {"NN", "NNS", "PRP"}
        assert whole, said.text
        assert said.words[-1] not in ("front", "top", "next", "group", "pair")


def test_a_close_up_is_not_flagged(pipeline):
    (audit,) = pipeline.audit(EXAMPLES / "cat.jpg", "a close up of a cat")
    assert [noun.word for noun in audit.nouns] == ["cat"]
    assert not audit.flagged_nouns


def test_a_sentence_about_a_photo_is_nearer_to_it_than_to_the_others(pipeline):
    photos = [EXAMPLES / "cat.jpg", EXAMPLES / "coffee.jpg"]
    told = pipeline.text_vectors(["a close up of the face of a cat", "a cup of coffee with a spoon on a table"])
    near = pipeline.vectors(photos) @ told.T
    assert near.argmax(0).tolist() == [0, 1]
    assert near.argmax(1).tolist() == [0, 1]


@pytest.mark.data
@pytest.mark.skipif(DATA is None, reason="SIGHTLINE_DATA is not set")
def test_its_boxes_cover_what_people_drew(pipeline):
    folder = Path(str(DATA)) / "flickr8k"
    names = read_names(folder / "Flickr_8k.testImages.txt")[:120]
    truth = read_entities(folder / "flickr30k_entities_8091.tar.gz")
    covered: list[bool] = []
    for first in range(0, len(names), 8):
        some = names[first : first + 8]
        boxes = pipeline.scenes([pipeline.read(folder / "images" / name) for name in some]).part("boxes").numpy()
        for own, name in zip(boxes, some, strict=True):
            drawn = np.asarray(of_entities(truth[name.split("_")[0]], {}).boxes, np.float64).reshape(-1, 4)
            covered += (box_iou(own.astype(np.float64), drawn).max(0) > 0.5).tolist()
    assert np.mean(covered) > 0.75
