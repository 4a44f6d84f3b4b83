"""Confidence: a probability that is right as often as it says, and never falls when words are surer."""

import math

import numpy as np
import pytest

from sightline.caption import Caption, WordTrace
from sightline.errors import ConfigError, CountError
from sightline.grounding.calibration import FEATURES, Calibration, Signs, features


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


def test_coefficients_that_are_not_numbers_are_refused():
    with pytest.raises(ConfigError, match="not numbers"):
        Calibration((math.nan, 0.0, 0.0))
    with pytest.raises(ConfigError, match="low"):
        Calibration(low=2.0)
