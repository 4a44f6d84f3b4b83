"""Plain statistics of captions: how long they are, how many words they use, and how many are new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CaptionSummary:
    """What a set of captions is like.

    Attributes:
        captions: how many there are.
        mean_length, std_length: in words, over captions (population deviation).
        histogram: captions of each length, shortest first.
        vocabulary: distinct words.
        novel: percentage of captions that no training caption equals; None without a training set.
        distinct: percentage of different captions.
    """

    captions: int
    mean_length: float
    std_length: float
    histogram: dict[int, int]
    vocabulary: int
    novel: float | None
    distinct: float


class CaptionStatistics:
    """Lengths, vocabulary and novelty of captions (PTB-tokenised strings), however many an image.

    Args:
        training: captions the model was trained on, tokenised the same way, to tell new ones by.
    """

    title = "Captions"

    def __init__(self, training: Iterable[str] | None = None) -> None:
        self._training = None if training is None else {_plain(caption) for caption in training}
        self.reset()

    def reset(self) -> None:
        """Forget every caption (the training set stays)."""
        self._captions: Counter[str] = Counter()

    def update(self, captions: Iterable[str]) -> None:
        """Add captions."""
        self._captions.update(_plain(caption) for caption in captions)

    def compute(self) -> CaptionSummary:
        """Statistics of everything since the last reset."""
        total = self._captions.total()
        histogram: Counter[int] = Counter()
        vocabulary: set[str] = set()
        for caption, count in self._captions.items():
            words = caption.split()
            histogram[len(words)] += count
            vocabulary.update(words)
        lengths = np.repeat(list(histogram), list(histogram.values())).astype(np.float64)
        return CaptionSummary(
            captions=total,
            mean_length=float(lengths.mean()) if total else 0.0,
            std_length=float(lengths.std()) if total else 0.0,
            histogram=dict(sorted(histogram.items())),
            vocabulary=len(vocabulary),
            novel=None if self._training is None else _percent(self._novel(self._training), total),
            distinct=_percent(len(self._captions), total),
        )

    def _novel(self, training: set[str]) -> int:
        return sum(count for caption, count in self._captions.items() if caption not in training)


def _plain(caption: str) -> str:
    return " ".join(caption.split())


def _percent(part: int, total: int) -> float:
    return 100.0 * part / total if total else 0.0
