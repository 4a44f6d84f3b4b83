"""Captions of which half have one noun replaced by another that the photo does not show."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from measured_photos import REFERENCES, TestPhoto

from sightline.grounding.nouns import may_name_the_same, names_thing
from sightline.text import wordnet
from sightline.text.lemmas import lemma
from sightline.text.tagger import Tagger
from sightline.text.vocabulary import split_plain

LEAST = 5  # a noun takes part from so many training captions on
SIMILAR = 2.0  # the frequencies of a noun and the one in its place are apart by this factor at most
Noun = tuple[str, bool]  # and whether it is a plural, so that grammar gives nothing away


@dataclass(frozen=True)
class Swapped:
    """A caption."""

    photo: TestPhoto  # what it is about
    text: str  # its words, the replaced noun among them
    at: int | None = None  # the place of that noun; None where the caption is as people wrote it
    was: str = ""  # the noun before


def noun_counts(captions: Iterable[str]) -> Counter[Noun]:
    """How often captions say each noun."""
    return Counter(noun for words in map(split_plain, captions) for _, noun in _nouns(words))


def swapped(photos: Sequence[TestPhoto], counts: Counter[Noun], seed: int) -> Iterator[Swapped]:
    """Five captions of each photo; of half of all captions, drawn at random, one noun is replaced.

    The noun in its place has the same number, a similar frequency, and no noun of the photo's five captions may name
    the same thing: it is none of their synonyms, hypernyms or hyponyms, in any sense. Captions without such a noun
    stay as they are.
    """
    rng = random.Random(seed)
    every = [(photo, text) for photo in photos for text in photo.references[:REFERENCES]]
    chosen = set(rng.sample(range(len(every)), len(every) // 2))
    pool = sorted((noun, count) for noun, count in counts.items() if count >= LEAST and _is_known(noun[0]))
    for number, (photo, text) in enumerate(every):
        words = split_plain(text)
        swap = _swap(photo, words, counts, pool, rng) if number in chosen else None
        if swap is None:
            yield Swapped(photo, " ".join(words))
        else:
            at, new = swap
            yield Swapped(photo, " ".join([*words[:at], new, *words[at + 1 :]]), at, words[at])


def _swap(
    photo: TestPhoto, words: list[str], counts: Counter[Noun], pool: list[tuple[Noun, int]], rng: random.Random
) -> tuple[int, str] | None:
    said = {word for text in photo.references[:REFERENCES] for word in split_plain(text) if _is_known(word)}
    nouns = [(at, noun) for at, noun in _nouns(words) if counts[noun] >= LEAST]
    for at, noun in rng.sample(nouns, len(nouns)):
        low, high = counts[noun] / SIMILAR, counts[noun] * SIMILAR
        others = [other[0] for other, count in pool if other[1] == noun[1] and low <= count <= high]
        for other in rng.sample(others, len(others)):
            if not any(may_name_the_same(other, word) for word in said):
                return at, other
    return None


def _nouns(words: Sequence[str]) -> list[tuple[int, Noun]]:
    """The nouns that are audited, and their places."""
    tags = Tagger.default().tag(words)
    marks = Tagger.default().nouns(words)
    return [
        (at, (word, tag.endswith("S")))
        for at, (word, tag, noun) in enumerate(zip(words, tags, marks, strict=True))
        if noun and names_thing(words, at)
    ]


def _is_known(word: str) -> bool:
    return wordnet.has(lemma(word, "n"), "n")
