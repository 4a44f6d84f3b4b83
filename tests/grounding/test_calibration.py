"""Confidence: a probability that is right as often as it says, and never falls when words are surer."""

import math

import numpy as np
import pytest

from sightline.caption import Caption, WordTrace
from sightline.errors import ConfigError, CountError, NonFiniteError
from sightline.grounding.calibration import FEATURES, RISING, Calibration, Signs, calibration_error, features, fit


def captions(count=4000, weights=(4.0, 0.5, -0.2, 1.0, 2.0, 0.5), bias=5.0, seed=0):
    """Features of captions, and which are good with the probabilities that a known logistic function gives."""
    random = np.random.default_rng(seed)
    mean = -random.gamma(4, 0.25, count)
    own = [mean, 3 * mean - random.gamma(2, 0.5, count), random.integers(7, 15, count)]
    x = np.stack([*own, random.normal(0.5, 0.2, count), random.random(count), random.random(count)], 1)
    p = 1 / (1 + np.exp(-(x @ np.array(weights) + bias)))
    return x, random.random(count) < p, p


def test_features_are_the_mean_with_the_end_the_least_likely_word_and_the_length():
    said = Caption(("a", "dog"), -3.5, (WordTrace(log_prob=-0.5), WordTrace(log_prob=-2.0)))
    assert features(said)[:3] == (-3.5 / 3, -2.0, 2.0)
    assert features(Caption((), -4.0))[:3] == (-4.0, -4.0, 0.0)


def test_the_other_features_are_what_others_say_and_unknown_where_nobody_does():
    said = Caption(("a",), -1.0, (WordTrace(log_prob=-0.75),))
    assert features(said, Signs(0.5, 0.25, 0.75))[3:] == (0.5, 0.25, 0.75)
    assert np.isnan(features(said)[3:]).all()
    assert len(features(said)) == len(FEATURES)


def test_what_is_unknown_counts_as_usual_and_a_calibration_of_three_weights_goes_by_three_features():
    whole = Calibration((1.0, 0.0, 0.0, 2.0, 1.0, 1.0), -1.0, usual=(0.0, 0.0, 9.0, 0.5, 0.25, 1.0))
    known, unknown = (-0.5, -1.5, 9, 0.5, 0.25, 1.0), (-0.5, -1.5, 9, math.nan, math.nan, math.nan)
    assert whole.confidence([known]) == pytest.approx(whole.confidence([unknown]))
    short = Calibration((1.0, 2.0, 0.5), -0.25)
    assert short.confidence([known]) == short.confidence([unknown])
    with pytest.raises(ConfigError, match="7 weights"):
        Calibration((1.0,) * 7)


def test_a_caption_without_log_probabilities_is_told():
    with pytest.raises(CountError, match="no log-probability"):
        features(Caption(("a",), -1.0, (WordTrace(),)))


def test_the_logistic_function_is_the_one_of_the_books():
    calibration = Calibration((1.0, 2.0, 0.5), -0.25)
    expected = 1 / (1 + math.exp(-(1.0 * -0.5 + 2.0 * -1.5 + 0.5 * 9 - 0.25)))
    assert calibration.confidence([(-0.5, -1.5, 9)])[0] == pytest.approx(expected)
    said = Caption(("a",), -1.0, (WordTrace(log_prob=-0.75),))
    assert calibration.of(said) == pytest.approx(1 / (1 + math.exp(-(-0.5 + 2 * -0.75 + 0.5 - 0.25))))


def test_the_fit_finds_the_function_that_made_the_data():
    x, good, p = captions(40000)
    found = fit(x, good)
    assert np.abs(found.confidence(x) - p).max() < 0.05
    assert found.captions == 40000


def test_the_fit_is_where_the_likelihood_is_highest():
    x, good, _ = captions(500)
    found = fit(x, good)

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
    found = fit(x, good)
    before, after = (calibration_error(c.confidence(unseen), truth) for c in (Calibration(), found))
    assert after < 0.04 < before


def test_calibration_error_against_a_count_by_hand():
    assert calibration_error([0.2, 0.2, 0.9, 0.9], [False, True, True, True], bins=2) == pytest.approx(0.2)
    assert calibration_error([1.0, 0.0], [True, False]) == 0


@pytest.mark.parametrize("seed", range(5))
def test_surer_words_never_lower_the_confidence_whatever_the_data_say(seed):
    x, good, _ = captions(300, weights=(-3.0, 1.0, 0.3, -2.0, 1.0, -1.0), bias=0.0, seed=seed)
    found = fit(x, good)
    assert all(weight >= 0 for weight, rising in zip(found.weights, RISING, strict=True) if rising)
    surer = x + np.array([0.3, 0.3, 0.0, 0.1, 0.1, 0.1])
    assert (found.confidence(surer) >= found.confidence(x)).all()


def test_captions_that_separate_and_a_feature_that_never_changes_give_finite_coefficients():
    own = [(-1.0, -2.0, 9), (-0.9, -1.9, 9), (-0.2, -0.5, 9), (-0.1, -0.4, 9)]
    x = np.array([(*one, math.nan, math.nan, math.nan) for one in own])
    found = fit(x, [False, False, True, True])
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
        fit(x, good)


def test_coefficients_that_are_not_numbers_are_refused():
    with pytest.raises(ConfigError, match="not numbers"):
        Calibration((math.nan, 0.0, 0.0))
    with pytest.raises(ConfigError, match="low"):
        Calibration(low=2.0)
