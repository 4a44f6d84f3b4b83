"""Verdicts of an audit, in words."""

import numpy as np
import pytest

from sightline.grounding.evidence import verdict_of


@pytest.mark.parametrize("least", [0.0, 0.5, 0.76, 1.0])
def test_a_verdict_says_no_less_than_the_threshold_does(least):
    for support in np.linspace(0, 1, 101):
        kind = verdict_of(support, least) in ("the photo shows it", "nothing contradicts it")
        assert kind == (support >= least)
