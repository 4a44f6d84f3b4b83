"""tools/logistic_fits.py: functions that are right as often as they say, fitted to captions, nouns and boxes."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from sightline.errors import CountError, NonFiniteError
from sightline.grounding.calibration import FEATURES, Calibration
from sightline.grounding.evidence import Evidence

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from logistic_fits import RISING, calibration_error, fit_calibration, fit_logistic, fit_support


def captions(count=4000, weights=(4.0, 0.5, -0.2, 1.0, 2.0, 0.5), bias=5.0, seed=0):
    """Features of captions, and which are good with the probabilities that a known logistic function gives."""
    random = np.random.default_rng(seed)
    mean = -random.gamma(4, 0.25, count)
    own = [mean, 3 * mean - random.gamma(2, 0.5, count), random.integers(7, 15, count)]
    x = np.stack([*own, random.normal(0.5, 0.2, count), random.random(count), random.random(count)], 1)
    p = 1 / (1 + np.exp(-(x @ np.array(weights) + bias)))
    return x, random.random(count) < p, p


def test_the_fit_finds_the_function_that_made_the_data():
    x, good, p = captions(40000)
    found = fit_calibration(x, good)
    assert np.abs(found.confidence(x) - p).max() < 0.05
    assert found.captions == 40000


def test_the_fit_is_where_the_likelihood_is_highest():
    x, good, _ = captions(500)
    found = fit_calibration(x, good)

    def loss(weights, bias):
        z = x @ np.array(weights) + bias
        return float(np.logaddexp(0, np.where(good, -z, z)).mean())

    best = loss(found.weights, found.bias)
    for i in range(len(FEATURES)):
        for step in (-0.5, 0.5):
            moved = [w + step * (i == j) for j, w in enumerate(found.weights)]
            assert loss(moved, found.bias - step * x[:, i].mean()) > best


def test_calibration_error_falls_on_captions_that_were_not_fitted_on():
    x, good, _ = captions(seed=1)
    unseen, truth, _ = captions(seed=2)
    found = fit_calibration(x, good)
    before, after = (calibration_error(c.confidence(unseen), truth) for c in (Calibration(), found))
    assert after < 0.04 < before


def test_calibration_error_against_a_count_by_hand():
    assert calibration_error([0.2, 0.2, 0.9, 0.9], [False, True, True, True], bins=2) == pytest.approx(0.2)
    assert calibration_error([1.0, 0.0], [True, False]) == 0


@pytest.mark.parametrize("seed", range(5))
def test_surer_words_never_lower_the_confidence_whatever_the_data_say(seed):
    x, good, _ = captions(300, weights=(-3.0, 1.0, 0.3, -2.0, 1.0, -1.0), bias=0.0, seed=seed)
    found = fit_calibration(x, good)
    assert all(weight >= 0 for weight, rising in zip(found.weights, RISING, strict=True) if rising)
    surer = x + np.array([0.3, 0.3, 0.0, 0.1, 0.1, 0.1])
    assert (found.confidence(surer) >= found.confidence(x)).all()


def test_captions_that_separate_and_a_feature_that_never_changes_give_finite_coefficients():
    own = [(-1.0, -2.0, 9), (-0.9, -1.9, 9), (-0.2, -0.5, 9), (-0.1, -0.4, 9)]
    x = np.array([(*one, math.nan, math.nan, math.nan) for one in own])
    found = fit_calibration(x, [False, False, True, True])
    assert np.isfinite([*found.weights, found.bias]).all()
    assert found.weights[2] == 0
    assert (found.confidence(x) > 0.5).tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("x", "good", "error"),
    [
        (np.zeros((3, 6)), [True] * 3, CountError),
        (np.zeros((3, 2)), [True, False, True], CountError),
        (np.zeros((2, 6)), [True, False, True], CountError),
        (np.full((2, 6), -np.inf), [True, False], NonFiniteError),
        (np.full((2, 6), np.nan), [True, False], NonFiniteError),
    ],
)
def test_what_nothing_can_be_fitted_on_is_told(x, good, error):
    with pytest.raises(error):
        fit_calibration(x, good)


def test_nouns_that_are_often_wrong_lose_their_reputation():
    random = np.random.default_rng(0)
    evidence = [Evidence(photo_cosine=value) for value in random.normal(size=600)]
    names = ["frisbees", "dog", "xyzzy"] * 200
    odds = np.array([one.photo_cosine for one in evidence]) + np.tile([-1.5, 1.5, 0.0], 200)
    shown = random.random(600) < 1 / (1 + np.exp(-odds))
    fitted = fit_support(evidence, shown, 0.1, names)
    assert fitted.reputation["frisbee"] < -0.5
    assert fitted.reputation["dog"] > 0.5
    low, high, plain = fitted.support([Evidence()] * 3, ["frisbee", "dogs", "unheard"])
    assert low < plain < high
    assert fitted.support([Evidence()]) == pytest.approx([plain])
    assert not fit_support(evidence, shown, 0.1).reputation


def test_fitting_finds_the_odds_that_made_the_nouns():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 6))
    weights, bias = np.array([1.0, 0.5, 0.0, 2.0, 0.0, 0.3]), 1.5
    shown = rng.random(len(rows)) < 1 / (1 + np.exp(-(rows @ weights + bias)))
    rows[rng.random(rows.shape) < 0.02] = math.nan
    found = fit_support([Evidence(*row) for row in rows], shown, flagged=0.1)
    assert found.weights == pytest.approx((*weights, 0.0, 0.0), abs=0.12)
    assert found.bias == pytest.approx(bias, abs=0.1)
    support = found.support([Evidence(*row) for row in rows[shown]])
    assert (support < found.least).mean() == pytest.approx(0.1, abs=0.002)
    assert found.nouns == len(rows)


def test_a_part_that_would_speak_against_a_noun_is_left_out():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 2))
    y = (x[:, 0] - x[:, 1] + rng.logistic(size=2000) > 0).astype(float)
    (first, second), bias = fit_logistic(x, y)
    assert second == 0
    grid = np.linspace(0.2, 2, 181)
    loss = [np.logaddexp(0, -(2 * y - 1) * (w * x[:, 0] + bias)).sum() + 1e-3 * len(y) * w * w / 2 for w in grid]
    assert first == pytest.approx(grid[int(np.argmin(loss))], abs=0.011)


def test_what_cannot_be_fitted_is_told():
    with pytest.raises(CountError):
        fit_support([Evidence(1.0)] * 3, [1, 1, 1], 0.1)
