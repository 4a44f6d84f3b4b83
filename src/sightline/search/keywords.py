"""The words by which captions are searched: base forms, without those that say nothing."""

from __future__ import annotations

from functools import lru_cache

from sightline.text.lemmas import lemma
from sightline.text.tokenizer import ptb_tokens

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
