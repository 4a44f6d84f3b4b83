"""Whether a photo shows what a noun names, and at its box: probabilities made from what models say. numpy only.

`support`, the probability that it is in the photo, is a logistic function of the noun's `Evidence`, fitted on captions
of which some had a noun replaced by another (tools/measure_audit.py). More evidence never means less support. What no
model knows counts neither way. `placed`, the probability that the box of a thing that is there overlaps by half or more
what people would draw, is one of the share of evidence that the box has (`sightline.grounding.box_chooser`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from sightline.errors import ConfigError, CountError
from sightline.grounding.evidence import Evidence
from sightline.grounding.logistic import fit_logistic, logistic
from sightline.text.lemmas import lemma

Floats = npt.NDArray[np.float64]
PARTS = len(Evidence._fields)
OFTEN = 8  # a noun has a reputation if it was said so often
SPREAD = 1.0  # the variance of reputations, before anything is known
ROUNDS = 20


@dataclass(frozen=True)
class SupportModel:
    """The logistic functions; the defaults are a guess, for models that nothing was fitted for.

    Attributes:
        weights: of the parts of the evidence, in its order; of those at the end that are left out, 0.
        usual: what they are on average, from which they are counted.
        bias: the log-odds of a noun whose evidence is all usual, or unknown.
        least: a noun with less support than this is not supported.
        place: coefficient of the logarithm of the share, and bias, of `placed`.
        nouns: how many nouns it was fitted on; 0 for the guess.
        reputation: log-odds that are added for some nouns, by their lemmas: a captioner may say *frisbee* too often.
    """

    weights: tuple[float, ...] = (0.53, 0.17, 0.79, 0.33, 1.67, 0.0)
    usual: tuple[float, ...] = (-4.65, -7.75, 5.47, -0.1, 0.43, 0.33)
    bias: float = 3.59
    least: float = 0.81
    place: tuple[float, float] = (1.57, 1.95)
    nouns: int = 0
    reputation: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (*self.weights, *self.usual, self.bias, *self.place, *self.reputation.values()))):
            raise ConfigError("an audit with coefficients that are not numbers", fix="fit it again")
        if len(self.weights) != len(self.usual) or len(self.weights) > PARTS:
            raise ConfigError(
                f"{len(self.weights)} weights and {len(self.usual)} usual values for {PARTS} parts of the evidence",
                fix="fit it again",
            )
        check_least(self.least)

    def support(self, evidence: Sequence[Evidence], nouns: Sequence[str] | None = None) -> Floats:
        """(n,) probabilities that the photo shows what each noun names; their reputation counts if they are given."""
        known = _centred(_rows(evidence)[:, : len(self.usual)], np.array(self.usual))
        odds = known @ np.array(self.weights) + self.bias
        if nouns is not None and self.reputation:
            odds = odds + np.array([self.reputation.get(lemma(noun, "n"), 0.0) for noun in nouns])
        return logistic(odds)

    def place_probability(self, share: npt.ArrayLike) -> Floats:
        """Probabilities that boxes are right, given their shares of evidence."""
        slope, bias = self.place
        return logistic(slope * _log(share) + bias)


def check_least(least: float) -> float:
    """The threshold, if it is a probability."""
    if not 0 <= least <= 1:
        raise ConfigError(f"the threshold is {least}", fix="give a number from 0 to 1")
    return least


def fit(
    evidence: Sequence[Evidence], shown: npt.ArrayLike, flagged: float, nouns: Sequence[str] | None = None
) -> SupportModel:
    """The function under which `shown` (n,), whether the photo shows each noun, is most likely.

    Its threshold is the one below which the share `flagged` of the nouns that are shown are. Where `nouns` are given,
    they get reputations: what is left to tell of a noun by how often it is shown, once the evidence is known.
    """
    x, y = _rows(evidence), np.asarray(shown, np.float64)
    if len(x) != len(y) or len(np.unique(y)) < 2:
        raise CountError(f"{len(x)} nouns, {int(y.sum())} of {len(y)} shown", fix="fit on nouns of both kinds")
    usual = np.array([column[~np.isnan(column)].mean() if not np.isnan(column).all() else 0.0 for column in x.T])
    centred = _centred(x, usual)
    scale = np.where(centred.std(0) > 0, centred.std(0), 1)
    offsets = np.zeros(len(y))
    reputation: dict[str, float] = {}
    for _ in range(ROUNDS if nouns is not None else 1):
        weights, bias = fit_logistic(centred / scale, y, offset=offsets)
        if nouns is not None:
            reputation = _reputation(centred / scale @ weights + bias, y, nouns)
            offsets = np.array([reputation.get(lemma(noun, "n"), 0.0) for noun in nouns])
    fitted = SupportModel(_rounded(weights / scale), _rounded(usual), bias, nouns=len(y), reputation=reputation)
    return replace(fitted, least=float(np.quantile(fitted.support(evidence, nouns)[y == 1], flagged)))


def _reputation(odds: Floats, shown: Floats, nouns: Sequence[str]) -> dict[str, float]:
    """Of nouns that come often, the log-odds to add to those of the evidence, drawn towards none (a Gaussian prior)."""
    places: dict[str, list[int]] = {}
    for place, noun in enumerate(nouns):
        places.setdefault(lemma(noun, "n"), []).append(place)
    found = {}
    for noun, own in places.items():
        if len(own) < OFTEN:
            continue
        extra = 0.0
        for _ in range(ROUNDS):  # Newton's method
            sure = logistic(odds[own] + extra)
            slope = float((shown[own] - sure).sum()) - extra / SPREAD
            extra += slope / (float((sure * (1 - sure)).sum()) + 1 / SPREAD)
        found[noun] = round(extra, 3)
    return found


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
    """(n, parts)"""
    return np.array(evidence, np.float64).reshape(-1, len(Evidence._fields))


def _centred(rows: Floats, usual: Floats) -> Floats:
    """What is unknown is as usual."""
    return np.where(np.isnan(rows), 0.0, rows - usual)


def _rounded(values: Floats) -> tuple[float, ...]:
    return tuple(round(float(value), 4) for value in values)
