"""What each photo adds to a metric sums up to it, and ratios of two models are those of resampled photos."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sightline.data.records import GroundedPhoto, GroundedPrediction, GroundedSentence, GroundedWord
from sightline.errors import CountError, DataError
from sightline.metrics.bootstrap import PRECISION, RECALL, PerImage, compare, resamples, together
from sightline.metrics.grounding_accuracy import AttentionAccuracy, GroundingF1

IDS = tuple("abcdefgh")
RIGHT, WRONG = (0.0, 0.0, 9.0, 9.0), (50.0, 50.0, 59.0, 59.0)


def scored(values: list[float]) -> PerImage:
    one = PerImage(IDS)
    one.add("CIDEr", values)
    return one


def test_a_ratio_and_its_interval_are_those_of_a_loop_over_resamples():
    draw = np.random.default_rng(0)
    base, other = draw.uniform(0.2, 1.0, 8), draw.uniform(0.4, 1.4, 8)
    found = compare(scored(list(base)), scored(list(other)), "CIDEr", rounds=200, seed=4)
    ratios, gaps = [], []
    for weights in resamples(8, 200, 4):
        drawn = [i for i, times in enumerate(weights) for _ in range(int(times))]
        one, two = (100 * sum(values[i] for i in drawn) / len(drawn) for values in (base, other))
        ratios.append(two / one)
        gaps.append(two - one)
    assert found.ratio.score == pytest.approx(other.mean() / base.mean())
    assert (found.ratio.low, found.ratio.high) == pytest.approx(tuple(np.percentile(ratios, [2.5, 97.5])))
    assert (found.difference.low, found.difference.high) == pytest.approx(tuple(np.percentile(gaps, [2.5, 97.5])))
    assert found.ratio.low < found.ratio.score < found.ratio.high


def test_seeds_count_together_and_other_images_are_refused():
    both = together([scored([0.5] * 8), scored([1.0] * 8)])
    assert both.score("CIDEr") == pytest.approx(75.0)
    with pytest.raises(CountError, match="different images"):
        compare(scored([1.0] * 8), PerImage(("x",)), "CIDEr")
    with pytest.raises(CountError, match="there is no ratio"):
        compare(scored([0.0] * 8), scored([1.0] * 8), "CIDEr")


def photo(id: str, draw: random.Random) -> GroundedPhoto:
    """Two sentences of three words, of classes that differ from photo to photo."""
    labels = draw.sample(["dog", "man", "hat", "bus"], 3)
    words = tuple(GroundedWord(index, label, (RIGHT,)) for index, label in enumerate(labels))
    sentence = GroundedSentence(tuple(labels), words)
    return GroundedPhoto(id, (sentence, sentence), size=(100, 100))


def grounded(seed: int) -> tuple[PerImage, AttentionAccuracy, GroundingF1]:
    draw = random.Random(seed)
    accuracy, f1, kept = AttentionAccuracy(), GroundingF1(), PerImage(IDS)
    for id in IDS[:-1]:  # the last photo is not annotated
        one = photo(id, random.Random(id))
        accuracy.update(one, [{i: draw.choice([RIGHT, WRONG]) for i in range(3)} for _ in one.sentences])
        said = draw.sample(["dog", "man", "hat", "bus"], 2)
        f1.update(one, [GroundedPrediction(i, label, draw.choice([RIGHT, WRONG])) for i, label in enumerate(said)])
    kept.add_classes("attention accuracy", accuracy.by_class())
    for name in ("all", "loc"):
        for part in (PRECISION, RECALL):
            kept.add_classes(f"F1_{name}{part}", f1.by_class(f"{part.strip()}_{name}"), f1.classes)
    return kept, accuracy, f1


def test_averages_over_classes_come_out_as_the_metrics_do():
    kept, accuracy, f1 = grounded(1)
    assert kept.score("attention accuracy") == pytest.approx(100 * accuracy.compute().accuracy.macro)
    assert kept.score("F1_all") == pytest.approx(100 * f1.compute().f1_all)
    assert kept.score("F1_loc") == pytest.approx(100 * f1.compute().f1_loc)
    assert kept.metrics == ("attention accuracy", "F1_all", "F1_loc")


def test_classes_of_seeds_are_matched_by_name():
    one, two = PerImage(("a",)), PerImage(("a",))
    one.add_classes("accuracy", {"dog": [("a", True)], "hat": [("a", False)]})
    two.add_classes("accuracy", {"bus": [("a", True)], "hat": [("a", True)]})
    assert together([one, two]).score("accuracy") == pytest.approx(100 * (1 + 1 + 0.5) / 3)


def test_what_is_written_is_read_again(tmp_path):
    kept = grounded(2)[0]
    kept.write(tmp_path / "per_image.npz")
    held = PerImage.read(tmp_path / "per_image.npz")
    assert held.ids == kept.ids
    for metric in kept.metrics:
        assert held.score(metric) == pytest.approx(kept.score(metric))
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    with pytest.raises(DataError, match="measure the model again"):
        PerImage.read(tmp_path / "broken.npz")
