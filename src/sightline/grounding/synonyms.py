"""Words that may stand for others: where a model does not know `terrier`, it is asked about a `dog`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sightline.text import wordnet
from sightline.text.lemmas import lemma
from sightline.text.vocabulary import Vocabulary

STEPS = 4  # up from a word: what is further above, such as `object`, could be anything
SENSES = 3  # of a word; rarer ones are seldom meant


def known_nouns(words: Sequence[str], nouns: Sequence[bool], vocabulary: Vocabulary) -> list[str]:
    """The words, their unknown nouns replaced by known ones where there are any."""
    return [stand_in(word, vocabulary) if noun else word for word, noun in zip(words, nouns, strict=True)]


def stand_in(noun: str, vocabulary: Vocabulary) -> str:
    """The noun itself where it is known; else its lemma, a synonym, or the nearest word for what it is a kind of.

    One for which there is none of them stays as it is.

    >>> [stand_in(word, Vocabulary(["dog", "sofa", "glass"])) for word in ("terriers", "couch", "wineglass", "xyzzy")]
    ['dog', 'sofa', 'glass', 'xyzzy']
    """
    if noun in vocabulary:
        return noun
    base = lemma(noun, "n")
    if base in vocabulary:
        return base
    word_of = _words_by_synset(vocabulary)
    for sense in wordnet.senses(base, "n")[:SENSES]:
        level: list[int] = [sense]
        for _ in range(STEPS + 1):
            for synset in level:
                if synset in word_of:
                    return word_of[synset]
            level = [above for synset in level for above in wordnet.hypernyms(synset)]
    return noun


@lru_cache(4)
def _words_by_synset(vocabulary: Vocabulary) -> dict[int, str]:
    """Synsets, and the word of the vocabulary of which each is the most usual meaning; of several, the first."""
    words: dict[int, str] = {}
    for rank in range(SENSES):
        for word in vocabulary:
            for synset in wordnet.senses(word, "n")[rank : rank + 1]:
                words.setdefault(synset, word)
    return words


def may_name_the_same(one: str, other: str) -> bool:
    """Whether two nouns may name the same thing: the same word, synonyms, or one a kind of the other, in any sense.

    >>> [may_name_the_same("dog", other) for other in ("dogs", "terrier", "animal", "cat")]
    [True, True, True, False]
    """
    a, b = lemma(one, "n"), lemma(other, "n")
    if a == b:
        return True
    b_may_be_a = not wordnet.synsets(a, "n").isdisjoint(_hypernyms(b))
    a_may_be_b = not wordnet.synsets(b, "n").isdisjoint(_hypernyms(a))
    return b_may_be_a or a_may_be_b


@lru_cache(wordnet.REMEMBERED)
def _hypernyms(noun: str) -> frozenset[int]:
    return wordnet.hypernym_closure(noun, "n")
