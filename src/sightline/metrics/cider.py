"""CIDEr (Vedantam et al. 2015): tf-idf weighted n-gram agreement. CIDEr-D is what coco-caption prints as "CIDEr"."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sightline.errors import DataError
from sightline.metrics.language_metric import LanguageMetric, Scores, mean_scores
from sightline.metrics.ngrams import (
    ORDERS,
    FloatArray,
    IntArray,
    Lineup,
    NGrams,
    Words,
    count_ngrams,
    images_with,
    name_ngrams,
    ngram_counts,
    norms,
)

SIGMA = 6.0  # width of CIDEr-D's length penalty
ONE_IMAGE = (
    "CIDEr weighs words by how few images use them. With a single image every weight is log 1 = 0 and so is the score: "
    "score more images together, or give document frequencies saved from a larger set."
)


@dataclass(frozen=True)
class DocumentFrequencies:
    """In how many of `images` images each n-gram stands, as saved files hold it (`document_frequency`, `ref_len`).

    Keys are tuples of words, or of token ids written as text. `images` is the number itself, not its logarithm.
    """

    counts: Mapping[Words, float]
    images: float

    def __post_init__(self) -> None:
        if not self.images >= 1:
            fix = "`images` is the number of images they were counted on (`ref_len` in saved files)"
            raise DataError(f"document frequencies over {self.images} images", fix=fix)

    @classmethod
    def of(cls, references: Iterable[Sequence[str]]) -> DocumentFrequencies:
        """Count over the references of every image."""
        counts: Counter[Words] = Counter()
        images = 0
        for sentences in references:
            counts.update({words for sentence in sentences for words in ngram_counts(sentence)})
            images += 1
        return cls(dict(counts), images)

    def weights(self, ngrams: Iterable[Words]) -> FloatArray:
        """idf of each n-gram; one that was never counted weighs as if it stood in one image."""
        return idf_weights(np.array([self.counts.get(words, 0.0) for words in ngrams]), self.images)


class CIDErD(LanguageMetric):
    """CIDEr-D: counts clipped at the reference's, and a penalty for a different length. Corpus: the mean.

    Args:
        frequencies: document frequencies to use; by default they are counted on the references scored.
    """

    keys = ("CIDEr",)
    title = "CIDEr-D"

    def __init__(self, frequencies: DocumentFrequencies | None = None) -> None:
        super().__init__()
        self.frequencies = frequencies
        self.variant = "df:corpus" if frequencies is None else f"df:saved-{frequencies.images:g}-images"

    def note(self) -> str:
        return ONE_IMAGE if self.frequencies is None and len(self._hypotheses) == 1 else ""

    def reset(self) -> None:
        """Forget every image (given document frequencies stay)."""
        super().reset()
        self._counted: DocumentFrequencies | None = None

    def compute(self) -> Scores:
        """Scores of everything since the last reset; zero for no image, and for one alone (see `ONE_IMAGE`)."""
        scores = self._scores().tolist() if self._hypotheses else []
        return mean_scores("CIDEr", dict(zip(self._hypotheses, scores, strict=True)))

    def explain(self, hypothesis: str, references: Sequence[str]) -> dict[Words, float]:
        """What every n-gram of the hypothesis adds to the score, single words first.

        Weights come from the given document frequencies, or from all references updated so far.
        """
        frequencies = self.frequencies or self._count()
        weights = _weigh(hypothesis, frequencies)
        own_norms = _norms(weights)
        shares: dict[Words, float] = dict.fromkeys(weights, 0.0)
        bigrams = np.array([max(len(text.split()) - 1, 0) for text in (hypothesis, *references)])
        penalties = length_penalty(bigrams[1:] - bigrams[0])
        for reference, penalty in zip(references, penalties.tolist(), strict=True):
            reference_weights = _weigh(reference, frequencies)
            reference_norms = _norms(reference_weights)
            scale = 10 / (ORDERS * len(references)) * penalty
            for words in weights.keys() & reference_weights.keys():
                product = min(weights[words], reference_weights[words]) * reference_weights[words]
                n = len(words) - 1
                shares[words] += scale * product / (own_norms[n] * reference_norms[n] or 1.0)
        return shares

    def _count(self) -> DocumentFrequencies:
        if self._counted is None or self._counted.images != len(self._references):
            self._counted = DocumentFrequencies.of(self._references.values() or [()])
        return self._counted

    def _scores(self) -> FloatArray:
        """(I,) the score of each image."""
        lineup = Lineup.of(self._hypotheses, self._references)
        sentences = lineup.tokens.sentences
        hypothesis = lineup.hypothesis[lineup.image]  # (S,) of each sentence, the hypothesis of its image
        total = len(lineup.image)
        is_reference = hypothesis != np.arange(total)
        products, lengths = np.zeros((ORDERS, total)), np.zeros((ORDERS, total))
        names: list[Words] = [()]
        for n, ngrams in enumerate(count_ngrams(lineup.tokens)):
            if self.frequencies is None:
                in_reference = is_reference[ngrams.sentence]
                image = lineup.image[ngrams.sentence[in_reference]]
                counts = images_with(ngrams.gram[in_reference], image, len(ngrams.last))
                idf = idf_weights(counts, len(lineup.hypothesis))
            else:
                names = name_ngrams(ngrams, names, lineup.tokens.vocabulary)
                idf = self.frequencies.weights(names)
            weights = ngrams.count * idf[ngrams.gram]
            lengths[n] = norms(ngrams, weights, sentences, total)
            products[n] = _products(lineup, ngrams, weights)
        bigrams = np.maximum(lineup.tokens.lengths - 1, 0)
        penalty = length_penalty(bigrams[hypothesis] - bigrams)
        agreement = (cosines(products, lengths[:, hypothesis], lengths) * penalty)[:, is_reference]
        return mean_agreement(agreement, lineup.image[is_reference], len(lineup.hypothesis))


def _products(lineup: Lineup, ngrams: NGrams, weights: FloatArray) -> FloatArray:
    """(S,) clipped dot product of every reference with its hypothesis."""
    batches = list(lineup.matches(ngrams))
    if not batches:
        return np.zeros(len(lineup.image))
    ours, theirs = (np.concatenate(part) for part in zip(*batches, strict=True))
    order = np.argsort(ngrams.first[ours], kind="stable")
    ours, theirs = ours[order], theirs[order]
    product = np.minimum(weights[ours], weights[theirs]) * weights[theirs]
    return np.bincount(ngrams.sentence[theirs], product, len(lineup.image)).astype(np.float64)


def idf_weights(frequency: FloatArray | IntArray, images: float) -> FloatArray:
    """Inverse document frequency of n-grams that stand in `frequency` of `images` images; never seen counts as once."""
    weights: FloatArray = np.log(float(images)) - np.log(np.maximum(1.0, frequency))
    return weights


def length_penalty(difference: IntArray) -> FloatArray:
    """CIDEr-D's Gaussian of the difference in length (in bigrams)."""
    distance = np.abs(difference)
    table = [math.e ** (-(float(d) ** 2) / (2 * SIGMA**2)) for d in range(int(distance.max(initial=0)) + 1)]
    return np.array(table)[distance]


def cosines(products: FloatArray, ours: FloatArray, theirs: FloatArray) -> FloatArray:
    """Dot products over both norms; a vector of length zero agrees with nothing."""
    scale = ours * theirs
    return np.divide(products, scale, out=np.zeros_like(products), where=scale != 0)


def mean_agreement(agreement: FloatArray, hypothesis: IntArray, hypotheses: int) -> FloatArray:
    """(H,) scores from (4, P) agreements: mean over the orders and over a hypothesis' references, times ten."""
    sums = np.stack([np.bincount(hypothesis, row, hypotheses) for row in agreement])
    scores: FloatArray = sums.mean(axis=0) / np.bincount(hypothesis, minlength=hypotheses) * 10.0
    return scores


def _weigh(sentence: str, frequencies: DocumentFrequencies) -> dict[Words, float]:
    """tf-idf of the sentence's n-grams."""
    counts = ngram_counts(sentence)
    weights = frequencies.weights(counts)
    return {words: n * float(idf) for (words, n), idf in zip(counts.items(), weights, strict=True)}


def _norms(weights: Mapping[Words, float]) -> list[float]:
    """The length of the tf-idf vector of each n."""
    return [math.sqrt(sum(w * w for words, w in weights.items() if len(words) == n)) for n in range(1, ORDERS + 1)]
