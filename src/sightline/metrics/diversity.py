"""How much several captions of one image differ: Div-1, Div-2, mBLEU-4 and self-CIDEr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from sightline.errors import CountError, DuplicateRecordError
from sightline.metrics.base import Scores
from sightline.metrics.bleu import Bleu
from sightline.metrics.cider import DocumentFrequencies, idf_weights
from sightline.metrics.ngrams import (
    ORDERS,
    FloatArray,
    IntArray,
    NGrams,
    Tokens,
    Words,
    count_ngrams,
    images_with,
    name_ngrams,
    norms,
    shared_ngrams,
)


class Diversity:
    """Diversity of at least two captions an image (PTB-tokenised strings).

    - `Div_1`, `Div_2`: distinct words (pairs of words) of an image's captions over their number of words; higher is
      more diverse. Corpus: the mean over images.
    - `mBleu_4`: BLEU-4 of each caption against the image's others; lower is more diverse. Per image: the mean over its
      captions. Corpus: the first captions of all images are scored together as one corpus, then the second, …, and the
      mean is taken, as published numbers are.
    - `SelfCIDEr` (Wang and Chan 2019): let K_ij be plain CIDEr / 10 of captions i and j out of m, with eigenvalues λ.
      The score is −log_m(√λ_max / Σ √λ): 0 when all say the same, 1 when no two share a word. Corpus: the mean.

    Args:
        frequencies: document frequencies for self-CIDEr; by default counted on the captions themselves.
    """

    keys = ("Div_1", "Div_2", "mBleu_4", "SelfCIDEr")
    title = "Diversity"

    def __init__(self, frequencies: DocumentFrequencies | None = None) -> None:
        self.frequencies = frequencies
        self.reset()

    def reset(self) -> None:
        """Forget every image."""
        self._captions: dict[str, tuple[str, ...]] = {}

    def update(self, captions: Mapping[str, Sequence[str]]) -> None:
        """Add images, each with two or more captions."""
        for id, sentences in captions.items():
            if id in self._captions:
                raise DuplicateRecordError(f"image {id} was given already", fix="give all its captions at once")
            if len(sentences) < 2:
                raise CountError(
                    f"image {id} has {len(sentences)} caption, diversity needs two", fix="sample several an image"
                )
            self._captions[id] = tuple(sentences)

    def compute(self) -> Scores:
        """Scores of everything since the last reset."""
        if not self._captions:
            return Scores(dict.fromkeys(self.keys, 0.0))
        sizes = np.array([len(sentences) for sentences in self._captions.values()])
        tokens = Tokens.of(list(chain.from_iterable(self._captions.values())))
        image = np.repeat(np.arange(len(sizes)), sizes)
        counts = list(count_ngrams(tokens))
        words = np.maximum(np.bincount(image, tokens.lengths, len(sizes)), 1)
        div_1, div_2 = (_distinct(ngrams, image, len(sizes)) / words for ngrams in counts[:2])
        bleu_corpus, bleu = self._mutual_bleu()
        self_cider = self._self_cider(tokens, counts, image, sizes)
        columns = [div_1.tolist(), div_2.tolist(), bleu, self_cider]
        corpus = [float(np.mean(div_1)), float(np.mean(div_2)), bleu_corpus, float(np.mean(self_cider))]
        rows = zip(self._captions, *columns, strict=True)
        return Scores(
            dict(zip(self.keys, corpus, strict=True)),
            {id: dict(zip(self.keys, row, strict=True)) for id, *row in rows},
        )

    def _mutual_bleu(self) -> tuple[float, list[float]]:
        """BLEU-4 of captions against the others of their image: of the corpus, and of each image."""
        corpus: list[float] = []
        per_image: dict[str, list[float]] = {id: [] for id in self._captions}
        for turn in range(max(map(len, self._captions.values()))):
            metric = Bleu()
            took_part = {id: sentences for id, sentences in self._captions.items() if turn < len(sentences)}
            others = {id: sentences[:turn] + sentences[turn + 1 :] for id, sentences in took_part.items()}
            metric.update({id: sentences[turn] for id, sentences in took_part.items()}, others)
            scores = metric.compute()
            corpus.append(scores.corpus["Bleu_4"])
            for id, values in scores.per_image.items():
                per_image[id].append(values["Bleu_4"])
        return float(np.mean(corpus)), [float(np.mean(values)) for values in per_image.values()]

    def _self_cider(self, tokens: Tokens, counts: Sequence[NGrams], image: IntArray, sizes: IntArray) -> list[float]:
        starts = np.cumsum(sizes**2) - sizes**2  # of each image's kernel, all kernels in one row
        inside = np.arange(len(image)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        kernels = np.zeros(int((sizes**2).sum()))
        names: list[Words] = [()]
        for ngrams in counts:
            if self.frequencies is None:
                known = images_with(ngrams.gram, image[ngrams.sentence], len(ngrams.last))
                idf = idf_weights(known, len(sizes))
            else:
                names = name_ngrams(ngrams, names, tokens.vocabulary)
                idf = self.frequencies.weights(names)
            weights = ngrams.count * idf[ngrams.gram]
            length = norms(ngrams, weights, tokens.sentences, len(image))
            unit = weights / np.where(length > 0, length, 1.0)[ngrams.sentence]
            every = np.arange(len(unit))
            for ours, theirs in [(every, every), *shared_ngrams(ngrams, image, every)]:
                a, b, home = ngrams.sentence[ours], ngrams.sentence[theirs], image[ngrams.sentence[ours]]
                # Only one triangle is filled: eigvalsh reads the lower one.
                at = starts[home] + inside[b] * sizes[home] + inside[a]
                kernels += np.bincount(at, unit[ours] * unit[theirs] / ORDERS, len(kernels))
        return [
            _spread(kernels[start : start + size**2].reshape(size, size))
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]


def _distinct(ngrams: NGrams, image: IntArray, images: int) -> IntArray:
    """(I,) distinct n-grams of each image."""
    pairs = np.unique(ngrams.gram * images + image[ngrams.sentence])
    return np.bincount(pairs % images, minlength=images)


def _spread(kernel: FloatArray) -> float:
    """−log_m(√λ_max / Σ √λ) of an m × m kernel given by its lower triangle."""
    roots = np.sqrt(np.clip(np.linalg.eigvalsh(kernel), 0.0, None))
    total = float(roots.sum())
    if total == 0.0:  # captions without a word of any weight do not differ
        return 0.0
    return float(-np.log(roots.max() / total) / np.log(len(kernel))) + 0.0
