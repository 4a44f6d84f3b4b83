import numpy as np
import pytest

from sightline.errors import CountError
from sightline.metrics.bleu import Bleu
from sightline.metrics.bootstrap import difference, interval, resamples, same_images
from sightline.metrics.rouge import RougeL

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
    base, other = np.array([0.1, 0.5, 0.9, 0.2]), np.array([0.2, 0.6, 1.0, 0.3])
    found = difference(base, other, 0.1)
    assert (found.low, found.high) == (pytest.approx(0.1), pytest.approx(0.1))
    assert found.wins == 1.0
    with pytest.raises(CountError, match="resampled differently"):
        difference(base, other[:2], 0.1)


def test_systems_on_different_images_are_not_compared():
    same_images([["1", "2"], ["1", "2"]])
    with pytest.raises(CountError, match="different images"):
        same_images([["1", "2"], ["2", "1"]])
