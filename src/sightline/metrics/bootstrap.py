"""Is one system better, or lucky? Paired bootstrap over images (Koehn 2004)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sightline.errors import CountError
from sightline.metrics.language_metric import LanguageMetric

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A corpus score with the 95 % interval of its bootstrap resamples."""

    score: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """System `other` minus system `base`, on the same resampled images; `wins` is the share in which it is ahead."""

    difference: float
    low: float
    high: float
    wins: float


def resamples(images: int, rounds: int = 1000, seed: int = 0) -> FloatArray:
    """(rounds, images): how often each round draws each image, with replacement."""
    draws = np.random.default_rng(seed).multinomial(images, np.full(images, 1 / images), size=rounds)
    return draws.astype(np.float64)


def bootstrap(metrics: Mapping[str, LanguageMetric], weights: FloatArray) -> dict[str, FloatArray]:
    """Resampled corpus scores of every key of every metric, each (rounds,)."""
    found: dict[str, FloatArray] = {}
    for metric in metrics.values():
        found.update(metric.resampled(weights))
    return found


def interval(score: float, resampled: FloatArray) -> Interval:
    """The 95 % percentile interval."""
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Interval(score, float(low), float(high))


def compare(base: FloatArray, other: FloatArray, difference: float) -> Comparison:
    """The 95 % interval of a difference, from resamples of the same images."""
    if base.shape != other.shape:
        raise CountError("the two systems were resampled differently", fix="use the same weights for both")
    gaps = other - base
    low, high = np.percentile(gaps, [2.5, 97.5])
    return Comparison(difference, float(low), float(high), float((gaps > 0).mean()))


def same_images(systems: Sequence[Sequence[str]]) -> None:
    """Refuse to compare systems that were scored on different images, or in another order."""
    first = list(systems[0])
    for ids in systems[1:]:
        if list(ids) != first:
            raise CountError(
                "the systems were scored on different images", fix="give captions of the same images for every system"
            )
