"""Names from the logits of an ImageNet classifier: as specific as the probabilities allow."""

import pytest
import torch

from sightline.vision import concept_tokens as module
from sightline.vision.concept_names import imagenet_classes
from sightline.vision.concept_tokens import hedged_probabilities, imagenet_forest, name_probabilities

LEOPARD, SNOW_LEOPARD, JAGUAR, LION, CHEETAH = 288, 289, 290, 291, 293
LIGHTHOUSE, WATER_TOWER, ZEBRA, SCHOOL_BUS, TRACTOR, GOLDEN, POODLE = 437, 900, 340, 779, 866, 207, 267


def logits_of(*chances: dict[int, float]) -> torch.Tensor:
    """(B, 1000) whose softmax gives these probabilities, and shares out the rest evenly."""
    rows = []
    for given in chances:
        row = torch.full((1000,), (1 - sum(given.values())) / (1000 - len(given)))
        for number, chance in given.items():
            row[number] = chance
        rows.append(row.log())
    return torch.stack(rows)


def hedge(logits: torch.Tensor, temperature: float = 1.0) -> list[dict[str, float]]:
    """The names that are told of each photo, likeliest first, and how likely they are."""
    rows = []
    for row in hedged_probabilities(logits, temperature):
        places = [place for place in row.argsort(descending=True).tolist() if row[place] > 0]
        rows.append({imagenet_forest().chains[place][0]: float(row[place]) for place in places})
    return rows


def names(given: dict[int, float]) -> list[str]:
    return list(hedge(logits_of(given))[0])


def test_the_probability_of_a_name_is_the_sum_over_its_classes():
    torch.manual_seed(0)
    raw = torch.randn(3, 1000)
    found = name_probabilities(raw, 1.7)
    chances = torch.softmax(raw / 1.7, -1)
    for place, chain in enumerate(imagenet_forest().chains):
        own = [n for n, one in enumerate(imagenet_classes()) if one.chain[-len(chain) :] == chain]
        assert own
        torch.testing.assert_close(found[:, place], chances[:, own].sum(-1))


def test_a_sure_leopard_is_a_leopard():
    assert names({LEOPARD: 0.9}) == ["leopard"]


def test_what_leopard_jaguar_and_cheetah_share_is_a_spotted_cat():
    (told,) = hedge(logits_of({LEOPARD: 0.32, JAGUAR: 0.3, CHEETAH: 0.3}))
    assert told == {"spotted cat": pytest.approx(0.92, abs=0.01)}


def test_more_doubt_gives_a_more_general_name():
    assert names({LEOPARD: 0.25, SNOW_LEOPARD: 0.2, LION: 0.45}) == ["wild cat"]
    assert names({LEOPARD: 0.3, GOLDEN: 0.3, ZEBRA: 0.3}) == ["animal"]
    assert names({LIGHTHOUSE: 0.45, WATER_TOWER: 0.45}) == ["tower"]


def test_breeds_are_one_dog():
    assert names({GOLDEN: 0.4, POODLE: 0.3}) == ["dog"]


def test_subjects_are_told_beside_each_other_likeliest_first():
    assert names({ZEBRA: 0.3, SCHOOL_BUS: 0.5}) == ["school bus", "zebra"]
    assert names({ZEBRA: 0.3, SCHOOL_BUS: 0.25, TRACTOR: 0.25}) == ["vehicle", "zebra"]


def test_no_more_names_are_told_than_may_be(monkeypatch):
    monkeypatch.setattr(module, "MOST_OF_IMAGENET", 1)
    assert names({ZEBRA: 0.3, SCHOOL_BUS: 0.5}) == ["school bus"]


def test_nothing_is_told_where_nothing_is_likely():
    assert names({LIGHTHOUSE: 0.15}) == []
    assert hedge(torch.zeros(1, 1000)) == [{}]  # although 398 of 1,000 classes are animals


@pytest.mark.parametrize("sure", [0.51, 0.75, 1.0])
def test_a_name_that_is_told_is_the_most_specific_likely_one(sure, monkeypatch):
    """Against the rule written out over the forest, for random photos."""
    torch.manual_seed(1)
    raw = 9 * torch.randn(20, 1000).abs()
    for name, value in (("SURE", sure), ("BEYOND_CHANCE", 0.1), ("MOST_OF_IMAGENET", 99)):
        monkeypatch.setattr(module, name, value)
    forest = imagenet_forest()
    chances = name_probabilities(raw, 1.0)
    prior = {chain: float(own.sum()) / 1000 for chain, own in zip(forest.chains, forest.members, strict=True)}
    for row, found in zip(chances, hedge(raw), strict=True):
        value = dict(zip(forest.chains, row.tolist(), strict=True))
        expected = set()
        for subject in (chain for chain in forest.chains if len(chain) == 1):
            likely = []
            for chain in (one for one in forest.chains if one[-1:] == subject):
                share = prior[chain] + 0.1 * (1 - prior[chain])
                likely += [chain] * (value[chain] >= share and value[chain] >= sure * value[subject] - 1e-9)
            expected |= {max(likely, key=len)[0]} if likely else set()
        assert found.keys() == expected
