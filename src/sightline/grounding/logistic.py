"""Logistic regression, as far as Sightline needs it. numpy only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RIDGE = 1e-3  # on coefficients of standardised features: keeps them finite where the two kinds separate
STEPS = 100


def logistic(x: Floats) -> Floats:
    """Log-odds to probabilities; no number is too large."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


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
