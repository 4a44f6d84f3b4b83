"""Nouns that a caption says twice: when it may, and in which forms a noun comes again.

>>> [may_come_again(caption.split(), -1) for caption in ("a dog beside another dog", "side by side", "a dog and a dog")]
[True, True, False]
>>> noun_forms("berries"), noun_forms("sitting"), noun_forms("red")
(('berry', 'berries', 'berrys'), (), ())
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

from sightline.text import wordnet
from sightline.text.lemmas import lemma
from sightline.text.tagger import Tagger

# Between the two nouns of "side by side", "back to back", "hand in hand", "row upon row".
BETWEEN = frozenset("by to in on upon after for over".split())
DOUBLED = frozenset("choo pom yo tuk cha tom bye".split())  # choo choo train, pom poms
ANOTHER = frozenset("another other others second each".split())  # a man beside another man: two are meant
_THINGS = frozenset(f"noun.{kind}" for kind in "animal artifact body food object person plant".split())


def may_come_again(words: Sequence[str], place: int) -> bool:
    """Whether the noun at a place is the second of *side by side* or *choo choo*, or after *another* and at most one
    adjective.
    """
    place += len(words) * (place < 0)
    two, one, word = (["", "", *words])[place : place + 3]
    return word in DOUBLED or (two == word and one in BETWEEN) or one in ANOTHER or two in ANOTHER


@lru_cache(wordnet.REMEMBERED)
def noun_forms(word: str) -> tuple[str, ...]:
    """The singular and the plurals of a word that is a noun wherever it follows "a", itself among them; else nothing.

    Plurals that nobody says may be among them: a vocabulary does not have them.
    A word in *ing* is one only where its usual meaning is a thing: *building*, not *sitting*.
    """
    word = word.lower()
    if word in DOUBLED or not Tagger.default().nouns(["a", word])[1]:
        return ()
    if word.endswith("ing"):
        usual = wordnet.senses(word, "n")[:1]
        if not usual or wordnet.lexfile(usual[0]) not in _THINGS:
            return ()
    base = lemma(word, "n")
    plurals = (f"{base}s", f"{base}es", f"{base.removesuffix('y')}ies", *_irregular().get(base, ()))
    return tuple(dict.fromkeys([base, word, *(form for form in plurals if lemma(form, "n") == base)]))


@cache
def _irregular() -> dict[str, list[str]]:
    """The irregular plurals of nouns."""
    found: dict[str, list[str]] = {}
    for plural, bases in wordnet.exceptions("n").items():
        for base in bases:
            found.setdefault(base, []).append(plural)
    return found
