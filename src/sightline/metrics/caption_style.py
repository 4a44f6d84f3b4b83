"""How captions are worded, whatever the photo: how varied they are, their faults of language, their sentiment."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sightline.metrics.language_metric import LanguageMetric, Scores
from sightline.text.grammar import DOUBLED, dangles, may_come_again, wrong_articles
from sightline.text.lemmas import lemma_of_tag
from sightline.text.tagger import NOUNS, Tagger


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
    titles = ("Words a caption", "Vocabulary", "Distinct-1 (%)", "Distinct-2 (%)", "Captions no other image has (%)")
    fraction = False

    def compute(self) -> Scores:
        captions = [tuple(text.split()) for text in self._hypotheses.values()]
        words = [word for caption in captions for word in caption]
        pairs = [pair for caption in captions for pair in pairwise(caption)]
        corpus = {
            "length": len(words) / max(1, len(captions)),
            "vocabulary": len(set(words)),
            "distinct_1": _percent(set(words), words),
            "distinct_2": _percent(set(pairs), pairs),
            "unique": _percent([caption for caption, count in Counter(captions).items() if count == 1], captions),
        }
        lengths = zip(self._hypotheses, map(len, captions), strict=True)
        return Scores(corpus, {id: {"length": length} for id, length in lengths})

    def resample(self, weights: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """The mean length of resamples. An image drawn twice adds no word, so there is no bootstrap of the others."""
        lengths = np.array([len(text.split()) for text in self._hypotheses.values()], np.float64)
        return {"length": weights @ lengths / weights.sum(axis=1)}


def _percent(some: Collection[object], out_of: Collection[object]) -> float:
    return 100 * len(some) / max(1, len(out_of))


class LanguageErrors(LanguageMetric):
    """Shares of captions with a fault, in %: lower is better. References play no part.

    - `wrong_article`: "a umbrella", "an dog"; by sound, so that "an hour" and "a unicorn" are right.
    - `dangling_end`: the last word is an article, a preposition, a conjunction or the like: "a mountain in the".
    - `noun_twice`: a noun comes again, in either number: "a boat in the water with a body of water". Not counted are
      "side by side" and what follows *another* or *other*.
    - `word_twice`: a word follows itself: "a a dog".
    """

    keys = ("wrong_article", "dangling_end", "noun_twice", "word_twice")
    title = "Language"
    titles = ("Wrong article (%)", "Dangling end (%)", "Noun said twice (%)", "Word repeated at once (%)")
    fraction = False

    def compute(self) -> Scores:
        faults = dict(zip(self._hypotheses, faults_all(list(self._hypotheses.values())), strict=True))
        per_image = {id: {key: 100.0 * bool(row[key]) for key in self.keys} for id, row in faults.items()}
        corpus = {key: float(np.mean([row[key] for row in per_image.values()] or [0.0])) for key in self.keys}
        words = {id: {f"{key}_words": row[key] for key in self.keys} for id, row in faults.items()}
        return Scores(corpus, per_image, words)


def faults_all(captions: Sequence[str]) -> list[dict[str, list[str]]]:
    """The words at fault in PTB-tokenised captions, by the keys of `LanguageErrors`.

    >>> faults_all(["a umbrella next to a umbrella on the the"])[0]["wrong_article"]
    ['a umbrella', 'a umbrella']
    """
    sentences = [caption.split() for caption in captions]
    return [
        {
            "wrong_article": wrong_articles(words),
            "dangling_end": words[-1:] if dangles(words, tags) else [],
            "noun_twice": _nouns_twice(words, tags),
            "word_twice": [b for a, b in pairwise(words) if a == b and a not in DOUBLED],
        }
        for words, tags in zip(sentences, Tagger.default().tag_all(sentences), strict=True)
    ]


def _nouns_twice(words: Sequence[str], tags: Sequence[str]) -> list[str]:
    counts = Counter(
        lemma_of_tag(word, tag)
        for place, (word, tag) in enumerate(zip(words, tags, strict=True))
        if tag in NOUNS and not may_come_again(words, place)
    )
    return [noun for noun, count in counts.items() if count > 1]


def sentiment_shares(captions: Collection[Sequence[str]], words: Mapping[str, Collection[str]]) -> dict[str, float]:
    """For each sentiment the percentage of words that carry it, and of captions with one at least.

    Which words do is read from SentiCap (`sightline.data.json_captions.sentiment_words`).

    >>> sentiment_shares([["a", "lovely", "dog"], ["a", "dog"]], {"positive": {"lovely"}})
    {'positive words': 20.0, 'captions with positive words': 50.0}
    """
    total = max(1, sum(map(len, captions)))
    shares: dict[str, float] = {}
    for sentiment, lexicon in words.items():
        counts = [sum(word in lexicon for word in caption) for caption in captions]
        shares[f"{sentiment} words"] = 100 * sum(counts) / total
        shares[f"captions with {sentiment} words"] = 100 * sum(map(bool, counts)) / max(1, len(captions))
    return shares
