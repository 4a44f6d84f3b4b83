"""The temperature of ImageNet's answers is chosen by what people say about photos."""

import sys
from pathlib import Path

import pytest
import torch

from sightline.vision.imagenet_concepts import TEMPERATURES, Hedging, kinds

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from fit_hedging import Told, judged, reliability, said
from measured_photos import TestPhoto


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
    forest = kinds()
    assert names == [Told(0, forest.place("dog"), True), Told(1, forest.place("zebra"), False)]
    (found,) = reliability(answers, names, 1.0)
    assert found["names"] == 2
    assert found["right"] == 0.5
    assert found["sure"] == pytest.approx(0.9, abs=0.02)


def test_the_default_is_a_temperature_that_the_tool_tries():
    assert any(round(one, 2) == Hedging().temperature for one in TEMPERATURES)
