"""The temperature of ImageNet's answers is chosen by what people say about photos."""

import sys
from pathlib import Path

import pytest
import torch

from sightline.vision.concept_tokens import TEMPERATURE, imagenet_forest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from fit_hedging import TEMPERATURES, Told, fit_temperature, judged, reliability, said
from measured_photos import TestPhoto


def place_of(name: str) -> int:
    return next(place for place, chain in enumerate(imagenet_forest().chains) if chain[0] == name)


@pytest.mark.parametrize(
    ("name", "caption", "right"),
    [
        ("dog", "Two dogs run .", True),
        ("dog", "A poodle runs .", True),  # a kind of dog
        ("animal", "A black cat sleeps .", True),
        ("traffic light", "under the traffic lights", True),
        ("skis", "a man on skis", True),
        ("dog", "A hot day .", False),
        ("poodle", "A dog runs .", False),  # may be one, but nobody says so
    ],
)
def test_a_name_is_right_if_a_caption_says_it_or_a_kind_of_it(name, caption, right):
    assert said(name, ["Something else .", caption]) is right


def test_names_are_judged_photo_by_photo_and_counted_by_how_sure_they_are():
    rows = torch.full((2, 1000), 0.1 / 999)
    rows[0, 207], rows[1, 340] = 0.9, 0.9  # golden retriever, zebra
    photos = [TestPhoto("1", Path("1.jpg"), ("a dog",)), TestPhoto("2", Path("2.jpg"), ("a horse",))]
    answers = rows.log()
    names = judged(answers, photos)
    assert names == [Told(0, place_of("dog"), True), Told(1, place_of("zebra"), False)]
    (found,) = reliability(answers, names, 1.0)
    assert found["names"] == 2
    assert found["right"] == 0.5
    assert found["sure"] == pytest.approx(0.9, abs=0.02)


def test_the_default_is_a_temperature_that_the_tool_tries():
    assert any(round(one, 2) == TEMPERATURE for one in TEMPERATURES)


@pytest.mark.parametrize("true", [0.5, 1.0, 2.0])
def test_a_fitted_temperature_makes_logits_honest(true):
    """Photos are drawn from softmax(logits / true), so that is the temperature to find."""
    generator = torch.Generator().manual_seed(0)
    raw = 0.1 * torch.randn(1500, 1000, generator=generator)
    raw[:, [288, 291]] += true * (5 + 4 * torch.rand(1500, 2, generator=generator))  # leopard, lion
    drawn = torch.multinomial((raw / true).softmax(-1), 1, generator=generator)[:, 0]
    cat = place_of("wild cat")
    right = imagenet_forest().members[cat, drawn].bool().tolist()
    names = [Told(photo, cat, of) for photo, of in enumerate(right)]
    assert fit_temperature(raw, names) == pytest.approx(true, rel=0.1)
