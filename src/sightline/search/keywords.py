"""The words by which captions are searched, and BM25: how much of a query a caption says.

Words are base forms, without those that say nothing. Rare words weigh more (Robertson and Zaragoza 2009, idf as in
Lucene).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.text.lemmas import lemma
from sightline.text.tokenizer import ptb_tokens

K1, B = 1.2, 0.75
SAY_NOTHING = frozenset(
    "a an the this that these those of in on at to by from with for into onto over under near and or but as while "
    "is are be was were been being am has have had do does did it its their his her he she they them him there some "
    "'s n't -lrb- -rrb-".split()
)


def keywords(text: str) -> list[str]:
    """The base forms of the words of a caption or query, each as often as it is said.

    A word has one base form wherever it stands, so that a query of one word and a caption agree: that of the noun, or
    else that of the verb.

    >>> keywords("Two dogs are running on the beach")
    ['two', 'dog', 'run', 'beach']
    """
    return [_base(word) for word in ptb_tokens(text) if word not in SAY_NOTHING]


@lru_cache(1 << 16)
def _base(word: str) -> str:
    noun = lemma(word, "n")
    return noun if noun != word else lemma(word, "v")


def idf(captions: int, having: int) -> float:
    """How much a word tells that `having` of all captions say; always above 0."""
    return float(np.log1p((captions - having + 0.5) / (having + 0.5)))


def term_weights(counts: NDArray[Any], lengths: NDArray[Any], mean_length: float) -> NDArray[Any]:
    """What a word that captions say `counts` times adds to their scores, before idf: up to 1 + K1."""
    return counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths / mean_length))
