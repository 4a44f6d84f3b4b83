"""`benchmarks/expert_judgements.py`: Kendall's tau-c against the definition counted pair by pair."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.errors import DataError

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from expert_judgements import tau_c


def tau_c_of_pairs(scores: list[float], judgements: list[float]) -> float:
    difference = 0
    for i in range(len(scores)):
        for j in range(i):
            difference += int(np.sign(scores[i] - scores[j]) * np.sign(judgements[i] - judgements[j]))
    steps = min(len(set(scores)), len(set(judgements)))
    return 2 * difference / (len(scores) ** 2 * (steps - 1) / steps)


ITEMS = st.lists(st.tuples(st.integers(-3, 6), st.integers(1, 4)), min_size=2, max_size=60)


@given(ITEMS)
def test_tau_c_is_stuarts_formula_over_all_pairs(items: list[tuple[int, int]]) -> None:
    scores, judgements = [one / 7 for one, _ in items], [float(other) for _, other in items]
    if len(set(scores)) > 1 and len(set(judgements)) > 1:
        assert tau_c(scores, judgements) == pytest.approx(tau_c_of_pairs(scores, judgements), abs=1e-12)
    else:
        assert math.isnan(tau_c(scores, judgements))


def test_perfect_and_reversed_orders_on_balanced_scales_are_one_and_minus_one() -> None:
    scale = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]
    assert tau_c(scale, scale) == pytest.approx(1)
    assert tau_c(scale, scale[::-1]) == pytest.approx(-1)


def test_no_items_have_no_tau() -> None:
    assert math.isnan(tau_c([], []))


@pytest.mark.parametrize(("scores", "judgements"), [([1.0], [1.0, 2.0]), ([math.nan, 1.0], [1.0, 2.0])])
def test_rows_that_do_not_fit_are_refused(scores: list[float], judgements: list[float]) -> None:
    with pytest.raises(DataError):
        tau_c(scores, judgements)
