"""Logistic functions fitted to what was measured: confidence of captions, support of nouns, boxes that are right.

Newton's method, with a small ridge. The numbers go into the model file (tools/finish_default.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sightline.errors import CountError, NonFiniteError
from sightline.grounding.calibration import FEATURES, UNKNOWN, Calibration, Floats, SupportModel, logistic
from sightline.grounding.evidence import Evidence
from sightline.text.lemmas import lemma

RISING = (True, True, False, True, True, True)  # which features may not lower the confidence
RIDGE = 1e-3  # on coefficients of standardised features: keeps them finite where the two kinds separate
STEPS = 100  # of Newton's method, at most
OFTEN = 8  # a noun has a reputation if it was said so often
SPREAD = 1.0  # the variance of reputations, before anything is known
ROUNDS = 20  # in which weights and reputations are fitted in turn


def fit_calibration(features: npt.ArrayLike, good: npt.ArrayLike, low: float = 1 / 3) -> Calibration:
    """The calibration under which `good` (n,) is most likely, given the captions' features (n, features).

    Newton's method on standardised features. One that may not lower the confidence, and would, is left out; so is one
    that nobody knows of any caption.
    """
    x, y = np.asarray(features, np.float64), np.asarray(good, np.float64)
    if x.ndim != 2 or x.shape != (len(y), len(FEATURES)):
        raise CountError(
            f"features of shape {x.shape} for {y.shape} captions", fix=f"give (n, {len(FEATURES)}) and (n,)"
        )
    if np.isinf(x).any() or np.isnan(x[:, : -len(UNKNOWN)]).any():
        raise NonFiniteError("a feature is NaN or infinite", fix="leave captions without probability out")
    if len(np.unique(y)) < 2:
        raise CountError("all captions are good, or none is", fix="fit on captions of both kinds")
    usual = np.array([0.0 if np.isnan(column).all() else np.nanmean(column) for column in x.T])
    x = np.where(np.isnan(x), usual, x)
    scale = np.where(x.std(0) > 0, x.std(0), 1)
    coefficients, bias = fit_logistic((x - usual) / scale, y, RISING)
    weights = coefficients / scale
    return Calibration(tuple(weights.tolist()), float(bias - weights @ usual), low, len(y), tuple(usual.tolist()))


def calibration_error(confidence: npt.ArrayLike, good: npt.ArrayLike, bins: int = 10) -> float:
    """Expected calibration error: how far confidence and share of good captions are apart, in bins of equal count."""
    said, was = np.asarray(confidence, np.float64), np.asarray(good, np.float64)
    order = np.argsort(said, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(part) * abs(said[part].mean() - was[part].mean()) for part in parts) / len(said))


def fit_support(
    evidence: Sequence[Evidence], shown: npt.ArrayLike, flagged: float, nouns: Sequence[str] | None = None
) -> SupportModel:
    """The function under which `shown` (n,), whether the photo shows each noun, is most likely.

    Its threshold is the one below which the share `flagged` of the nouns that are shown are. Where `nouns` are given,
    they get reputations: what is left to tell of a noun by how often it is shown, once the evidence is known.
    """
    x, y = np.array(evidence, np.float64).reshape(-1, len(Evidence._fields)), np.asarray(shown, np.float64)
    if len(x) != len(y) or len(np.unique(y)) < 2:
        raise CountError(f"{len(x)} nouns, {int(y.sum())} of {len(y)} shown", fix="fit on nouns of both kinds")
    usual = np.array([column[~np.isnan(column)].mean() if not np.isnan(column).all() else 0.0 for column in x.T])
    centred = np.where(np.isnan(x), 0.0, x - usual)  # what is unknown is as usual
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
    x, y = np.log(np.maximum(np.asarray(share, np.float64), 1e-6)), np.asarray(right, np.float64)
    if x.shape != y.shape or len(np.unique(y)) < 2:
        raise CountError(f"{x.size} boxes, {int(y.sum())} of {y.size} right", fix="fit on boxes of both kinds")
    scale = float(x.std()) or 1.0
    weights, bias = fit_logistic(((x - x.mean()) / scale)[:, None], y)
    slope = float(weights[0]) / scale
    return round(slope, 4), round(bias - slope * float(x.mean()), 4)


def fit_logistic(
    x: Floats, y: Floats, rising: Sequence[bool] | None = None, offset: Floats | None = None
) -> tuple[Floats, float]:
    """(d,) coefficients and the bias under which `y` (n,), of 0 and 1, is most likely given `x` (n, d).

    `offset` (n,) are log-odds that are known already, and added.
    None of the coefficients is below 0, or none of those of which `rising` is true: one that would be is left out.
    Newton's method. Columns should be standardised.
    """
    free = x.std(0) > 0
    bound = np.ones(len(free), np.bool_) if rising is None else np.array(rising)
    while True:
        found = _newton(x * free, y, np.zeros(len(y)) if offset is None else offset)
        lowest = np.where(bound, found[:-1], 0)
        if (lowest >= 0).all():
            return found[:-1], float(found[-1])
        free &= np.arange(len(free)) != np.argmin(lowest)


def _newton(x: Floats, y: Floats, offset: Floats) -> Floats:
    """(d + 1,) coefficients of the columns of x (n, d), and the bias."""
    rows = np.concatenate([x, np.ones((len(x), 1))], 1)
    penalty = RIDGE * len(y) * np.array([1.0] * x.shape[1] + [0.0])
    share = y.mean()
    coefficients = np.array([0.0] * x.shape[1] + [math.log(share / (1 - share))])
    for _ in range(STEPS):
        p = logistic(rows @ coefficients + offset)
        gradient = rows.T @ (p - y) + penalty * coefficients
        curvature = (rows.T * (p * (1 - p))) @ rows + np.diag(penalty)
        curvature[-1, -1] += 1e-9  # where every case is surely one or the other
        step = np.linalg.solve(curvature, gradient)
        coefficients -= step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-10:
            break
    return coefficients


def _rounded(values: Floats) -> tuple[float, ...]:
    return tuple(round(float(value), 4) for value in values)
