"""Kendall's tau-c (Stuart 1953): how well a metric orders captions as people do, who judge on a scale of few steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sightline.errors import DataError


def tau_c(scores: npt.ArrayLike, judgements: npt.ArrayLike) -> float:
    """tau-c of two equally long rows of numbers, from -1 to 1; nan where one of them has a single value.

    Pairs are counted from running sums over the table of distinct values, so time and memory grow with
    `distinct scores x distinct judgements`: the scale of one of the two should have few steps.
    """
    x, y = np.asarray(scores, np.float64), np.asarray(judgements, np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise DataError(
            f"tau-c of rows of shapes {x.shape} and {y.shape}", fix="give one score and one judgement for each item"
        )
    if np.isnan(x).any() or np.isnan(y).any():
        raise DataError("tau-c of numbers that are not all known", fix="leave out the items without a score")
    _, rows = np.unique(x, return_inverse=True)
    _, columns = np.unique(y, return_inverse=True)
    steps = min(rows.max(initial=0), columns.max(initial=0)) + 1
    if steps < 2:
        return float("nan")
    table = np.zeros((rows.max() + 1, columns.max() + 1), np.int64)
    np.add.at(table, (rows, columns), 1)
    above = table.sum(axis=0) - table.cumsum(axis=0)  # items with a higher score, by judgement
    up_to = above.cumsum(axis=1)
    concordant = (table * (up_to[:, -1:] - up_to)).sum()
    discordant = (table * (up_to - above)).sum()
    return float(2 * steps * (concordant - discordant) / (len(x) ** 2 * (steps - 1)))
