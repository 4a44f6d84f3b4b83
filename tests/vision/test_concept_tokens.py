"""Names of photos as a fixed number of tokens: those of regions and ImageNet's in one list."""

from __future__ import annotations

import pytest
import torch

from sightline.batch import SceneBatch
from sightline.scene import Concept, Scene
from sightline.vision.concept_names import CLASSES, concept_names, imagenet_classes
from sightline.vision.concept_tokens import (
    AHEAD,
    LEAST,
    MOST,
    concept_tokens,
    hedged_probabilities,
    imagenet_forest,
    stored_names,
    token_names,
)
from sightline.vision.detector import Detector, DetectorConfig

KINDS = len(concept_names())
PLACE = {name: place for place, name in enumerate(token_names())}


def logits_of(name: str, strength: float = 12.0) -> torch.Tensor:
    values = torch.zeros(CLASSES)
    values[next(number for number, one in enumerate(imagenet_classes()) if one.name == name)] = strength
    return values


def test_a_name_stands_once_and_regions_names_keep_their_places():
    assert len(set(token_names())) == len(token_names())
    assert token_names()[:KINDS] == concept_names()


def test_tokens_are_the_surest_names_with_the_box_of_the_region_that_bears_each():
    sure = torch.zeros(1, 2, KINDS)
    sure[0, 0, PLACE["dog"]], sure[0, 1, PLACE["dog"]], sure[0, 1, PLACE["car"]] = 0.4, 0.9, LEAST - 0.01
    boxes = torch.tensor([[[0.0, 0.0, 0.5, 0.5], [0.2, 0.2, 0.9, 0.9]]])
    tokens = concept_tokens(sure, boxes, logits_of("leopard")[None])
    listed = {token_names()[id]: row for row, id in enumerate(tokens["names"][0].tolist()) if id >= 0}
    assert set(listed) == {"dog", "leopard"}  # the car is less sure than a name must be
    assert torch.allclose(tokens["name_scores"][0, listed["dog"]], torch.tensor([0.9, 0.0]))
    assert torch.equal(tokens["name_boxes"][0, listed["dog"]], boxes[0, 1])
    assert tokens["name_scores"][0, listed["leopard"], 0] == 0
    assert tokens["name_scores"][0, listed["leopard"], 1] > 0.9
    assert torch.equal(tokens["name_boxes"][0, listed["leopard"]], torch.tensor([0.0, 0.0, 1.0, 1.0]))


def test_a_name_of_both_has_both_scores():
    sure = torch.zeros(1, 1, KINDS)
    sure[0, 0, PLACE["zebra"]] = 0.8
    tokens = concept_tokens(sure, torch.rand(1, 1, 4), logits_of("zebra")[None])
    assert tokens["names"][0, 0] == PLACE["zebra"]
    assert tokens["name_scores"][0, 0, 0] == 0.8
    assert tokens["name_scores"][0, 0, 1] > 0.9


def test_imagenets_names_are_those_that_hedging_tells():
    torch.manual_seed(0)
    logits = 6 * torch.randn(16, CLASSES)
    tokens = concept_tokens(torch.zeros(16, 1, KINDS), torch.zeros(16, 1, 4), logits)
    for told, ids, scores in zip(
        hedged_probabilities(logits), tokens["names"], tokens["name_scores"][..., 1], strict=True
    ):
        ours = {token_names()[id]: float(score) for id, score in zip(ids, scores, strict=True) if id >= 0}
        places = told.nonzero()[:, 0].tolist()
        assert ours == {imagenet_forest().chains[place][0]: pytest.approx(float(told[place])) for place in places}


def test_many_names_of_regions_do_not_push_imagenets_out():
    sure = torch.full((1, 1, KINDS), 0.5)
    logits = logits_of("lighthouse", 7.0)[None]  # a probability of about a half: a tie without AHEAD
    tokens = concept_tokens(sure, torch.zeros(1, 1, 4), logits)
    assert tokens["names"].shape == (1, MOST)
    assert AHEAD > 0
    assert PLACE["lighthouse"] in tokens["names"][0].tolist()


def test_names_of_a_store_are_those_that_vision_gave():
    torch.manual_seed(0)
    sure, boxes, logits = torch.rand(3, 4, KINDS) ** 40, torch.rand(3, 4, 4).sort(-1).values, torch.zeros(3, CLASSES)
    logits[0], logits[1] = logits_of("leopard"), logits_of("zebra")
    seen = concept_tokens(sure, boxes, logits)
    detector = Detector(DetectorConfig(names=concept_names(), imagenet=True))
    concepts = detector.concepts(SceneBatch(("0", "1", "2"), **seen))
    stored = stored_names([Scene(str(number), concepts=own) for number, own in enumerate(concepts)])
    assert torch.equal(stored["names"], seen["names"])
    assert torch.equal(stored["name_boxes"], seen["name_boxes"])
    both = (seen["name_scores"] > 0).all(2)  # a store keeps the higher one, as that of the region
    assert torch.equal(stored["name_scores"][~both], seen["name_scores"][~both])
    assert torch.equal(stored["name_scores"].amax(2), seen["name_scores"].amax(2))


def test_a_store_without_names_or_with_those_of_others_gives_none():
    stored = stored_names([Scene("1"), Scene("2", concepts=(Concept("doorknob thing"), Concept("dog", 0.5)))])
    assert (stored["names"] == -1).sum(1).tolist() == [MOST, MOST - 1]
    assert stored["names"][1, 0] == PLACE["dog"]
    assert stored["name_scores"][1, 0].tolist() == [0.0, 0.5]  # without a box it is the whole photo's
