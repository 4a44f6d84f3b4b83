"""How varied the captions of many images are: lengths, vocabulary, and how often they say the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sightline.metrics.language_metric import LanguageMetric, Scores


class Diversity(LanguageMetric):
    """Statistics of captions, one an image. References play no part.

    - `length`: the mean number of words.
    - `vocabulary`: how many different words there are in all.
    - `distinct_1`, `distinct_2`: different words (pairs of neighbouring words) out of all, in %.
    - `unique`: captions that no other image has, in %.

    All but `length` depend on how many captions there are: compare systems on the same images. They are properties of
    the whole set, so only `length` is known per image.
    """

    keys = ("length", "vocabulary", "distinct_1", "distinct_2", "unique")
    title = "Diversity"
    titles = (
        "Words a caption",
        "Vocabulary",
        "Distinct-1 (%)",
        "Distinct-2 (%)",
        "Captions no other image has (%)",
    )
    fraction = False

    def compute(self) -> Scores:
        """Scores of everything since the last reset; zero for no image at all."""
        captions = [tuple(text.split()) for text in self._hypotheses.values()]
        words = [word for caption in captions for word in caption]
        pairs = [pair for caption in captions for pair in pairwise(caption)]
        corpus = {
            "length": len(words) / max(1, len(captions)),
            "vocabulary": len(set(words)),
            "distinct_1": _percent(set(words), words),
            "distinct_2": _percent(set(pairs), pairs),
            "unique": _percent([one for one, count in Counter(captions).items() if count == 1], captions),
        }
        lengths = map(len, captions)
        return Scores(corpus, {id: {"length": n} for id, n in zip(self._hypotheses, lengths, strict=True)})

    def resampled(self, weights: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """The mean length of resamples. An image drawn twice adds no word, so there is no bootstrap of the others."""
        lengths = np.array([len(text.split()) for text in self._hypotheses.values()], np.float64)
        return {"length": weights @ lengths / weights.sum(axis=1)}


def _percent(part: Collection[object], whole: Collection[object]) -> float:
    return 100 * len(part) / max(1, len(whole))
