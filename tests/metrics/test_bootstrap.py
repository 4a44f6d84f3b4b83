"""Resampled scores are those of the images drawn; what each photo adds to a metric sums up to it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sightline.data.records import GroundedPhoto, GroundedPrediction, GroundedSentence, GroundedWord
from sightline.errors import CountError, DataError
from sightline.metrics.bleu import Bleu
from sightline.metrics.bootstrap import (
    PRECISION,
    RECALL,
    PerImage,
    compare,
    interval,
    pool_seeds,
    resamples,
    same_images,
)
from sightline.metrics.grounding_accuracy import AttentionAccuracy, GroundingF1
from sightline.metrics.report import report_data
from sightline.metrics.rouge import RougeL
from sightline.metrics.scorecard import scorecard

HYPOTHESES = {"1": "a dog runs on grass", "2": "a man with a hat", "3": "two cats sleep", "4": "a red bus on a street"}
REFERENCES = {
    "1": ("a dog runs across the grass", "a brown dog"),
    "2": ("a man wears a hat",),
    "3": ("two cats on a bed", "cats sleep"),
    "4": ("a bus drives down a street", "a big red bus on a street"),
}


def filled(metric):
    metric.update(HYPOTHESES, REFERENCES)
    return metric


@pytest.mark.parametrize("kind", [Bleu, RougeL])
def test_a_resample_scores_as_if_its_images_had_been_scored(kind):
    weights = np.array([[1, 1, 1, 1], [2, 0, 1, 1], [0, 0, 0, 4]], dtype=np.float64)
    drawn = filled(kind()).resample(weights)
    for row, counts in enumerate(weights):
        metric = kind()
        for image, count in zip(HYPOTHESES, counts, strict=True):
            for copy in range(int(count)):
                id = f"{image}-{copy}"
                metric.update({id: HYPOTHESES[image]}, {id: REFERENCES[image]})
        corpus = metric.compute().corpus
        for key in kind.keys:
            assert drawn[key][row] == pytest.approx(corpus[key], rel=1e-9), key


def test_resamples_draw_as_many_images_as_there_are_and_repeat_with_the_seed():
    weights = resamples(7, rounds=50, seed=3)
    assert weights.shape == (50, 7)
    assert (weights.sum(axis=1) == 7).all()
    assert np.array_equal(weights, resamples(7, rounds=50, seed=3))


def test_the_interval_holds_the_score_and_narrows_to_it_where_images_agree():
    metric = filled(RougeL())
    found = interval(metric.compute().corpus["ROUGE_L"], metric.resample(resamples(4, 2000))["ROUGE_L"])
    assert found.low < found.score < found.high
    same = interval(0.5, np.full(100, 0.5))
    assert (same.low, same.high) == (0.5, 0.5)


def test_a_comparison_pairs_the_same_images():
    one, better = {"1": "a dog", "2": "a cat"}, {"1": "a dog on grass", "2": "a cat on a mat"}
    references = {"1": ["a dog on the grass"], "2": ["a cat on the mat"]}
    cards = {name: scorecard(captions, references, ["rouge"]) for name, captions in (("a", one), ("b", better))}
    (pair,) = report_data(cards, rounds=50)["comparisons"]
    found, gaps = pair["scores"]["ROUGE_L"], []
    for id in references:
        gaps.append(cards["b"].scores.per_image[id]["ROUGE_L"] - cards["a"].scores.per_image[id]["ROUGE_L"])
    assert found["score"] == pytest.approx(np.mean(gaps))
    assert min(gaps) - 1e-9 <= found["low"] <= found["score"] <= found["high"] <= max(gaps) + 1e-9
    assert found["wins"] == 1.0


def test_systems_on_different_images_are_not_compared():
    same_images([["1", "2"], ["1", "2"]])
    with pytest.raises(CountError, match="different images"):
        same_images([["1", "2"], ["2", "1"]])


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
    both = pool_seeds([scored([0.5] * 8), scored([1.0] * 8)])
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
        accuracy.update(one, [{i: draw.choice([RIGHT, WRONG]) for i in range(3)} for _ in one.sentences], [RIGHT])
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
    assert kept.score("F1_all") == pytest.approx(f1.compute().f1()["F1_all"])
    assert kept.score("F1_loc") == pytest.approx(f1.compute().f1()["F1_loc"])
    assert kept.metrics == ("attention accuracy", "F1_all", "F1_loc")


def test_classes_of_seeds_are_matched_by_name():
    one, two = PerImage(("a",)), PerImage(("a",))
    one.add_classes("accuracy", {"dog": [("a", True)], "hat": [("a", False)]})
    two.add_classes("accuracy", {"bus": [("a", True)], "hat": [("a", True)]})
    assert pool_seeds([one, two]).score("accuracy") == pytest.approx(100 * (1 + 1 + 0.5) / 3)


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
