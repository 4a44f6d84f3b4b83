"""BLEU-1 to BLEU-4 (Papineni et al. 2002) as coco-caption computes them: closest reference length, tiny smoothing."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from sightline.metrics.language_metric import LanguageMetric, Scores
from sightline.metrics.ngrams import ORDERS, FloatArray, IntArray, Lineup, NGrams, Words, count_ngrams, ngram_counts

TINY = 1e-15  # added to counts, so that no match gives a score just above zero
SMALL = 1e-9  # added to what is divided by, so that an empty sentence is no division by zero


class Bleu(LanguageMetric):
    """BLEU-1…4, over the corpus (summed counts, one brevity penalty) and per image."""

    keys = tuple(f"Bleu_{n}" for n in range(1, ORDERS + 1))
    title = "BLEU-1 to BLEU-4"
    titles = tuple(f"BLEU-{n}" for n in range(1, ORDERS + 1))

    def compute(self) -> Scores:
        statistics = self._statistics()
        corpus = _bleu(statistics.sum(axis=1, keepdims=True))
        rows = zip(self._hypotheses, *_bleu(statistics), strict=True)
        return Scores(
            dict(zip(self.keys, (score[0] for score in corpus), strict=True)),
            {id: dict(zip(self.keys, row, strict=True)) for id, *row in rows},
        )

    def resample(self, weights: FloatArray) -> dict[str, FloatArray]:
        """Corpus scores of resamples: BLEU of the summed counts, not a mean over images."""
        summed = self._statistics() @ weights.T
        return {key: np.array(row) for key, row in zip(self.keys, _bleu(summed), strict=True)}

    def explain(self, hypothesis: str, references: Sequence[str]) -> Counter[Words]:
        """The n-grams of the hypothesis that references cover and how often each counts, single words first."""
        most: Counter[Words] = Counter()
        for reference in references:
            most |= ngram_counts(reference)
        return ngram_counts(hypothesis) & most

    def _statistics(self) -> IntArray:
        """(10, I): matched n-grams of one to four words, all such n-grams, length, closest reference length."""
        lineup = Lineup.of(self._hypotheses, self._references)
        correct = [_correct(lineup, ngrams) for ngrams in count_ngrams(lineup.tokens)]
        length = lineup.tokens.lengths[lineup.hypothesis]
        guess = [np.maximum(length - n, 0) for n in range(ORDERS)]
        return np.stack([*correct, *guess, length, _closest(lineup)])


def _correct(lineup: Lineup, ngrams: NGrams) -> IntArray:
    """(I,) hypothesis n-grams that references cover: each counts at most as often as in the richest reference."""
    most = np.zeros(len(ngrams.gram), np.int64)
    for ours, theirs in lineup.matches(ngrams):
        most[ours] = np.maximum(most[ours], ngrams.count[theirs])
    matched = np.flatnonzero(most)
    image = lineup.image[ngrams.sentence[matched]]
    covered = np.minimum(most[matched], ngrams.count[matched])
    return np.bincount(image, covered, len(lineup.hypothesis)).astype(np.int64)


def _closest(lineup: Lineup) -> IntArray:
    """(I,) the reference length closest to each hypothesis length; of two equally close ones the shorter."""
    length = lineup.tokens.lengths
    is_reference = np.ones(len(length), np.bool_)
    is_reference[lineup.hypothesis] = False
    length, image = length[is_reference], lineup.image[is_reference]
    best = np.full(len(lineup.hypothesis), np.iinfo(np.int64).max)
    base = int(length.max(initial=0)) + 1
    np.minimum.at(best, image, np.abs(length - lineup.tokens.lengths[lineup.hypothesis][image]) * base + length)
    return best % base


def _bleu(statistics: IntArray | FloatArray) -> list[list[float]]:
    """BLEU-1…4 of each column of statistics."""
    correct, guess, (length, target) = np.split(statistics, [ORDERS, 2 * ORDERS])
    product = np.cumprod((correct + TINY) / (guess + SMALL), axis=0)
    ratio = (length + TINY) / (target + SMALL)
    penalty = [math.exp(1 - 1 / r) if r < 1 else 1.0 for r in ratio.tolist()]
    return [
        [value ** (1.0 / n) * p for value, p in zip(row, penalty, strict=True)]
        for n, row in enumerate(product.tolist(), start=1)
    ]
