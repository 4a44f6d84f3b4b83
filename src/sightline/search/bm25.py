"""BM25: how much of a query a caption says; rare words weigh more (Robertson and Zaragoza 2009, idf as in Lucene)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

K1, B = 1.2, 0.75


def idf(captions: int, having: int) -> float:
    """How much a word tells that `having` of all captions say; always above 0."""
    return float(np.log1p((captions - having + 0.5) / (having + 0.5)))


def weights(counts: NDArray[Any], lengths: NDArray[Any], mean_length: float) -> NDArray[Any]:
    """What a word that captions say `counts` times adds to their scores, before idf: up to 1 + K1."""
    return counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths / mean_length))
