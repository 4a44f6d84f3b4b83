"""Faults of language in captions, whatever the photo: a wrong article, a dangling end, words said twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from sightline.metrics.language_metric import LanguageMetric, Scores
from sightline.text.articles import wrong_articles
from sightline.text.endings import dangles
from sightline.text.lemmas import lemma_of_tag
from sightline.text.tagger import NOUNS, Tagger

# Between the two nouns of "side by side", "back to back", "hand in hand", "row upon row".
_BETWEEN = frozenset("by to in on upon after for over".split())
_DOUBLED = frozenset("choo pom yo tuk cha tom bye".split())  # choo choo train, pom poms
_ANOTHER = frozenset("another other others second each".split())  # a man beside another man: two are meant


class Wording(LanguageMetric):
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
        """Scores of everything since the last reset; zero for no image at all."""
        found = dict(zip(self._hypotheses, faults_all(list(self._hypotheses.values())), strict=True))
        per_image = {id: {key: 100.0 * bool(row[key]) for key in self.keys} for id, row in found.items()}
        corpus = {
            key: float(np.mean([row[key] for row in per_image.values()])) if per_image else 0.0 for key in self.keys
        }
        words = {id: {f"{key}_words": row[key] for key in self.keys} for id, row in found.items()}
        return Scores(corpus, per_image, words)


def faults_all(captions: Sequence[str]) -> list[dict[str, list[str]]]:
    """The words at fault in PTB-tokenised captions, by the keys of `Wording`.

    >>> faults_all(["a umbrella next to a umbrella on the the"])[0]["wrong_article"]
    ['a umbrella', 'a umbrella']
    """
    sentences = [caption.split() for caption in captions]
    return [
        {
            "wrong_article": wrong_articles(words),
            "dangling_end": words[-1:] if dangles(words, tags) else [],
            "noun_twice": nouns_twice(words, tags),
            "word_twice": words_twice(words),
        }
        for words, tags in zip(sentences, Tagger.default().tag_all(sentences), strict=True)
    ]


def nouns_twice(words: Sequence[str], tags: Sequence[str]) -> list[str]:
    """The lemmas of nouns that come twice or more without need."""
    counts = Counter(
        lemma_of_tag(word, tag)
        for place, (word, tag) in enumerate(zip(words, tags, strict=True))
        if tag in NOUNS and not _may_come_again(words, place)
    )
    return [noun for noun, count in counts.items() if count > 1]


def words_twice(words: Sequence[str]) -> list[str]:
    """The words that follow themselves."""
    return [b for a, b in pairwise(words) if a == b and a not in _DOUBLED]


def _may_come_again(words: Sequence[str], place: int) -> bool:
    """Whether a noun is the second of *side by side* or *choo choo*, or after *another* and at most one adjective."""
    two, one, word = (["", "", *words])[place : place + 3]
    return word in _DOUBLED or (two == word and one in _BETWEEN) or one in _ANOTHER or two in _ANOTHER
