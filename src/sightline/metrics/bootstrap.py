"""Is one system better, or lucky? Paired bootstrap over images (Koehn 2004).

`PerImage` holds what a metric is made of, image by image, so that two models can be compared on the same resampled
images. Every metric there is a share: hits of an image over what could be hit, summed over images, and averaged over
classes where the metric does so. CIDEr of an image is a hit of its size out of 1; recall at k is hit captions out of
all; attention accuracy has hits and words of each class; F1 is the harmonic mean of two such shares.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sightline.errors import CountError, DataError
from sightline.files import PathLike, atomic_write, existing_path

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A corpus score, or a difference or ratio of two, with the 95 % interval of its bootstrap resamples."""

    score: float
    low: float
    high: float


def resamples(images: int, rounds: int = 1000, seed: int = 0) -> FloatArray:
    """(rounds, images): how often each round draws each image, with replacement."""
    draws = np.random.default_rng(seed).multinomial(images, np.full(images, 1 / images), size=rounds)
    return draws.astype(np.float64)


def interval(score: float, resampled: FloatArray) -> Interval:
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Interval(score, float(low), float(high))


def same_images(systems: Iterable[Iterable[str]]) -> None:
    """Refuse to compare systems that were scored on different images, or in another order."""
    if len({tuple(ids) for ids in systems}) > 1:
        fix = "give captions of the same images for every system"
        raise CountError("the systems were scored on different images", fix=fix)


PARTS = ("hits", "totals")  # names of a share's arrays in a file
PRECISION, RECALL = " precision", " recall"  # the two shares of an F1


@dataclass(frozen=True, eq=False)
class Share:
    """Hits out of totals, each (images, classes)."""

    hits: FloatArray
    totals: FloatArray
    labels: tuple[str, ...] = ("",)  # the classes; one without a name where there are none
    classes: int = 0  # what the mean over classes divides by; 0 counts those that have a total

    def resample(self, weights: FloatArray) -> FloatArray:
        """(R,) the share in percent of R resamples; `weights` (R, images) tells how often each draws an image."""
        hits, totals = weights @ self.hits, weights @ self.totals
        classes = self.classes or np.maximum(1, (totals > 0).sum(axis=1))
        percent: FloatArray = 100 * _ratio(hits, totals).sum(axis=1) / classes
        return percent

    def __add__(self, other: Share) -> Share:
        labels = tuple(sorted({*self.labels, *other.labels}))
        hits, totals = self._spread(labels) + other._spread(labels)
        return Share(hits, totals, labels, max(self.classes, other.classes))

    def _spread(self, labels: tuple[str, ...]) -> FloatArray:
        """(2, images, labels) hits and totals, 0 in the classes that are not here."""
        spread: FloatArray = np.zeros((2, len(self.hits), len(labels)))
        spread[..., [labels.index(label) for label in self.labels]] = self.hits, self.totals
        return spread


def _ratio(hits: FloatArray, totals: FloatArray) -> FloatArray:
    """0 where there is no total."""
    return np.divide(hits, totals, out=np.zeros_like(hits), where=totals > 0)


@dataclass
class PerImage:
    """Shares of one model by the names of metrics, over the same images."""

    ids: tuple[str, ...] = ()
    shares: dict[str, Share] = field(default_factory=dict)

    def add(self, name: str, hits: npt.ArrayLike, totals: npt.ArrayLike = 1.0) -> None:
        """A metric without classes: (images,) hits and totals."""
        column = np.asarray(hits, np.float64)
        if column.shape != (len(self.ids),):
            raise CountError(f"{name} has scores of shape {column.shape} for {len(self.ids)} images")
        of = np.broadcast_to(np.asarray(totals, np.float64), column.shape)
        self.shares[name] = Share(column[:, None], of[:, None].copy())

    def add_classes(self, name: str, outcomes: Mapping[str, Sequence[tuple[str, bool]]], classes: int = 0) -> None:
        """A metric averaged over classes: the image id and the outcome of every try, by class."""
        row = {id: number for number, id in enumerate(self.ids)}
        labels = tuple(sorted(outcomes))
        hits, totals = np.zeros((2, len(self.ids), len(labels)))
        for column, label in enumerate(labels):
            for id, hit in outcomes[label]:
                hits[row[id], column] += hit
                totals[row[id], column] += 1
        self.shares[name] = Share(hits, totals, labels, classes)

    @property
    def metrics(self) -> tuple[str, ...]:
        alone = [name for name in self.shares if not name.endswith((PRECISION, RECALL))]
        return (*alone, *(name.removesuffix(RECALL) for name in self.shares if name.endswith(RECALL)))

    def resample(self, metric: str, weights: FloatArray) -> FloatArray:
        if metric in self.shares:
            return self.shares[metric].resample(weights)
        precision, recall = (self.shares[metric + part].resample(weights) for part in (PRECISION, RECALL))
        return _ratio(2 * precision * recall, precision + recall)

    def score(self, metric: str) -> float:
        return float(self.resample(metric, np.ones((1, len(self.ids))))[0])

    def write(self, path: PathLike) -> None:
        arrays = {
            f"{part}{number}": getattr(share, part).astype(np.float32)
            for number, share in enumerate(self.shares.values())
            for part in PARTS
        }
        shares = [[name, share.labels, share.classes] for name, share in self.shares.items()]
        head = {"ids": self.ids, "shares": shares}
        with atomic_write(path) as file:
            np.savez_compressed(file, head=np.frombuffer(json.dumps(head).encode(), np.uint8), **arrays)

    @classmethod
    def read(cls, path: PathLike) -> PerImage:
        try:
            with np.load(existing_path(path), allow_pickle=False) as arrays:
                head = json.loads(arrays["head"].tobytes())
                shares = {}
                for number, (name, labels, classes) in enumerate(head["shares"]):
                    hits, totals = (arrays[f"{part}{number}"].astype(np.float64) for part in PARTS)
                    shares[name] = Share(hits, totals, tuple(labels), classes)
        except (ValueError, KeyError, OSError) as error:
            raise DataError(f"no scores by image: {error}", where=Path(path), fix="measure the model again") from error
        return cls(tuple(head["ids"]), shares)


def pool_seeds(seeds: Sequence[PerImage]) -> PerImage:
    """Several seeds of one row as one: hits and totals are added, so that a mean over images is that of all seeds."""
    same_images([seed.ids for seed in seeds])
    pooled = dict(seeds[0].shares)
    for seed in seeds[1:]:
        pooled = {name: share + seed.shares[name] for name, share in pooled.items() if name in seed.shares}
    return PerImage(seeds[0].ids, pooled)


@dataclass(frozen=True)
class Comparison:
    """A metric of `other` against that of `base`: their ratio and their difference, with 95 % intervals."""

    base: float
    other: float
    ratio: Interval
    difference: Interval


def compare(base: PerImage, other: PerImage, metric: str, rounds: int = 1000, seed: int = 0) -> Comparison:
    """Paired bootstrap over images: both models are scored on the same resamples."""
    same_images([base.ids, other.ids])
    weights = resamples(len(base.ids), rounds, seed)
    base_drawn, other_drawn = base.resample(metric, weights), other.resample(metric, weights)
    base_score, other_score = base.score(metric), other.score(metric)
    if base_score <= 0 or (base_drawn <= 0).any():
        raise CountError(f"{metric} of the model compared with is 0 in a resample, so that there is no ratio")
    ratio = interval(other_score / base_score, other_drawn / base_drawn)
    return Comparison(base_score, other_score, ratio, interval(other_score - base_score, other_drawn - base_drawn))
