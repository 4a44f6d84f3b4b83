"""Whether a photo shows what a noun names, and at its box: probabilities made from what models say. numpy only.

`support`, the probability that it is in the photo, is a logistic function of the noun's `Evidence`, fitted on captions
of which some had a noun replaced by another (tools/measure_audit.py). More evidence never means less support. What no
model knows counts neither way. `placed`, the probability that the box of a thing that is there overlaps by half or more
what people would draw, is one of the share of evidence that the box has (`sightline.grounding.box_chooser`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sightline.errors import ConfigError, CountError
from sightline.grounding.evidence import Evidence
from sightline.grounding.logistic import fit_logistic, logistic

Floats = npt.NDArray[np.float64]
Numbers = tuple[float, float, float, float, float, float]  # one for each part of the evidence


@dataclass(frozen=True)
class SupportModel:
    """The logistic functions; the defaults are a guess, for models that nothing was fitted for.

    Attributes:
        weights: of the parts of the evidence, in its order.
        usual: what they are on average, from which they are counted.
        bias: the log-odds of a noun whose evidence is all usual, or unknown.
        least: a noun with less support than this is not supported.
        place: coefficient of the logarithm of the share, and bias, of `placed`.
        nouns: how many nouns it was fitted on; 0 for the guess.
    """

    weights: Numbers = (0.53, 0.17, 0.79, 0.33, 1.67, 0.0)
    usual: Numbers = (-4.65, -7.75, 5.47, -0.1, 0.43, 0.33)
    bias: float = 3.59
    least: float = 0.81
    place: tuple[float, float] = (1.57, 1.95)
    nouns: int = 0

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (*self.weights, *self.usual, self.bias, *self.place))):
            raise ConfigError("an audit with coefficients that are not numbers", fix="fit it again")
        check_least(self.least)

    def support(self, evidence: Sequence[Evidence]) -> Floats:
        """(n,) probabilities that the photo shows what each noun names."""
        known = _centred(_rows(evidence), np.array(self.usual))
        return logistic(known @ np.array(self.weights) + self.bias)

    def place_probability(self, share: npt.ArrayLike) -> Floats:
        """Probabilities that boxes are right, given their shares of evidence."""
        slope, bias = self.place
        return logistic(slope * _log(share) + bias)


def check_least(least: float) -> float:
    """The threshold, if it is a probability."""
    if not 0 <= least <= 1:
        raise ConfigError(f"the threshold is {least}", fix="give a number from 0 to 1")
    return least


def fit(evidence: Sequence[Evidence], shown: npt.ArrayLike, flagged: float) -> SupportModel:
    """The function under which `shown` (n,), whether the photo shows each noun, is most likely.

    Its threshold is the one below which the share `flagged` of the nouns that are shown are.
    """
    x, y = _rows(evidence), np.asarray(shown, np.float64)
    if len(x) != len(y) or len(np.unique(y)) < 2:
        raise CountError(f"{len(x)} nouns, {int(y.sum())} of {len(y)} shown", fix="fit on nouns of both kinds")
    usual = np.array([column[~np.isnan(column)].mean() if not np.isnan(column).all() else 0.0 for column in x.T])
    centred = _centred(x, usual)
    scale = np.where(centred.std(0) > 0, centred.std(0), 1)
    weights, bias = fit_logistic(centred / scale, y)
    fitted = SupportModel(_six(weights / scale), _six(usual), bias, nouns=len(y))
    return replace(fitted, least=float(np.quantile(fitted.support(evidence)[y == 1], flagged)))


def fit_place(share: npt.ArrayLike, right: npt.ArrayLike) -> tuple[float, float]:
    """The numbers of `placed` under which `right` (n,), whether the box of each share is right, is most likely."""
    x, y = _log(share), np.asarray(right, np.float64)
    if x.shape != y.shape or len(np.unique(y)) < 2:
        raise CountError(f"{x.size} boxes, {int(y.sum())} of {y.size} right", fix="fit on boxes of both kinds")
    scale = float(x.std()) or 1.0
    weights, bias = fit_logistic(((x - x.mean()) / scale)[:, None], y)
    slope = float(weights[0]) / scale
    return round(slope, 4), round(bias - slope * float(x.mean()), 4)


def _log(share: npt.ArrayLike) -> Floats:
    return np.log(np.maximum(np.asarray(share, np.float64), 1e-6))


def _rows(evidence: Sequence[Evidence]) -> Floats:
    """(n, 6)"""
    return np.array(evidence, np.float64).reshape(-1, len(Evidence._fields))


def _centred(rows: Floats, usual: Floats) -> Floats:
    """What is unknown is as usual."""
    return np.where(np.isnan(rows), 0.0, rows - usual)


def _six(values: Floats) -> Numbers:
    first, second, third, fourth, fifth, sixth = (round(float(value), 4) for value in values)
    return first, second, third, fourth, fifth, sixth
