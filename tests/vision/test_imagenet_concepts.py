"""Names from the logits of an ImageNet classifier: as specific as the probabilities allow."""

import pytest
import torch

from sightline.errors import ConfigError, CountError
from sightline.vision.imagenet_concepts import Hedging, fit_temperature, hedge, kinds, name_probabilities
from sightline.vision.imagenet_names import imagenet_classes

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


def names(given: dict[int, float], **options) -> list[str]:
    return [concept.name for concept in hedge(logits_of(given), Hedging(**{"temperature": 1.0, **options}))[0]]


def test_the_probability_of_a_name_is_the_sum_over_its_classes():
    torch.manual_seed(0)
    raw = torch.randn(3, 1000)
    found = name_probabilities(raw, 1.7)
    chances = torch.softmax(raw / 1.7, -1)
    for place, chain in enumerate(kinds().chains):
        own = [n for n, one in enumerate(imagenet_classes()) if one.chain[-len(chain) :] == chain]
        assert own
        torch.testing.assert_close(found[:, place], chances[:, own].sum(-1))


def test_a_sure_leopard_is_a_leopard():
    assert names({LEOPARD: 0.9}) == ["leopard"]


def test_what_leopard_jaguar_and_cheetah_share_is_a_spotted_cat():
    found = hedge(logits_of({LEOPARD: 0.32, JAGUAR: 0.3, CHEETAH: 0.3}), Hedging(temperature=1.0))[0]
    assert [concept.name for concept in found] == ["spotted cat"]
    assert found[0].score == pytest.approx(0.92, abs=0.01)
    assert found[0].box is None


def test_more_doubt_gives_a_more_general_name():
    assert names({LEOPARD: 0.25, SNOW_LEOPARD: 0.2, LION: 0.45}) == ["wild cat"]
    assert names({LEOPARD: 0.3, GOLDEN: 0.3, ZEBRA: 0.3}) == ["animal"]
    assert names({LIGHTHOUSE: 0.45, WATER_TOWER: 0.45}) == ["tower"]


def test_breeds_are_one_dog():
    assert names({GOLDEN: 0.4, POODLE: 0.3}) == ["dog"]


def test_subjects_are_told_beside_each_other_likeliest_first():
    assert names({ZEBRA: 0.3, SCHOOL_BUS: 0.5}) == ["school bus", "zebra"]
    assert names({ZEBRA: 0.3, SCHOOL_BUS: 0.25, TRACTOR: 0.25}) == ["vehicle", "zebra"]
    assert names({ZEBRA: 0.3, SCHOOL_BUS: 0.5}, most=1) == ["school bus"]


def test_nothing_is_told_where_nothing_is_likely():
    assert names({LIGHTHOUSE: 0.15}) == []
    assert hedge(torch.zeros(1, 1000)) == [()]  # although 398 of 1,000 classes are animals


@pytest.mark.parametrize("sure", [0.51, 0.75, 1.0])
def test_a_name_that_is_told_is_the_most_specific_likely_one(sure):
    """Against the rule written out over the forest, for random photos."""
    torch.manual_seed(1)
    raw = 9 * torch.randn(20, 1000).abs()
    forest, hedging = kinds(), Hedging(1.0, sure, least=0.1, most=99)
    chances = name_probabilities(raw)
    prior = {chain: float(own.sum()) / 1000 for chain, own in zip(forest.chains, forest.members, strict=True)}
    for row, found in zip(chances, hedge(raw, hedging), strict=True):
        value = dict(zip(forest.chains, row.tolist(), strict=True))
        expected = set()
        for subject in (chain for chain in forest.chains if len(chain) == 1):
            likely = []
            for chain in (one for one in forest.chains if one[-1:] == subject):
                share = prior[chain] + 0.1 * (1 - prior[chain])
                likely += [chain] * (value[chain] >= share and value[chain] >= sure * value[subject] - 1e-9)
            expected |= {max(likely, key=len)[0]} if likely else set()
        assert {concept.name for concept in found} == expected


@pytest.mark.parametrize("true", [0.5, 1.0, 2.0])
def test_a_fitted_temperature_makes_logits_honest(true):
    """Photos are drawn from softmax(logits / true), so that is the temperature to find."""
    generator = torch.Generator().manual_seed(0)
    raw = 0.1 * torch.randn(1500, 1000, generator=generator)
    raw[:, [LEOPARD, LION]] += true * (5 + 4 * torch.rand(1500, 2, generator=generator))
    drawn = torch.multinomial((raw / true).softmax(-1), 1, generator=generator)[:, 0]
    cat = kinds().place("wild cat")
    right = kinds().members[cat, drawn].bool().tolist()
    assert fit_temperature(raw, [cat] * len(raw), right) == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"temperature": 0.0}, "temperature"), ({"sure": 0.5}, "sure"), ({"least": 0.0}, "least"), ({"most": 0}, "most")],
)
def test_settings_without_meaning_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        Hedging(**wrong)


def test_what_cannot_be_fitted_or_found_is_named():
    with pytest.raises(CountError, match="2 names"):
        fit_temperature(torch.zeros(1, 1000), [0, 1], [True])
    with pytest.raises(ConfigError, match="unicorn"):
        kinds().place("unicorn")
