"""What WordNet says of nouns: which may stand for another, which name the same thing, and what kind of thing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sightline.text import wordnet
from sightline.text.lemmas import lemma
from sightline.text.vocabulary import Vocabulary
from sightline.vision.concept_names import imagenet_chains

STEPS = 4  # up from a word: what is further above, such as `object`, could be anything
SENSES = 3  # of a word that may stand for another; rarer ones are seldom meant
USUAL = 2  # senses of a noun that count elsewhere
FAMILIES = ("vehicle", "furniture", "clothing", "building")  # and animals, food, persons, which WordNet calls so


def known_nouns(words: Sequence[str], nouns: Sequence[bool], vocabulary: Vocabulary) -> list[str]:
    """The words, their unknown nouns replaced by known ones where there are any."""
    return [stand_in(word, vocabulary) if noun else word for word, noun in zip(words, nouns, strict=True)]


def stand_in(noun: str, vocabulary: Vocabulary) -> str:
    """The noun itself where it is known; else its lemma, a synonym, or the nearest word for what it is a kind of.

    One for which there is none of them stays as it is. A model that does not know `terrier` is asked about a `dog`.

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


@lru_cache(wordnet.CACHE_SIZE)
def _hypernyms(noun: str) -> frozenset[int]:
    return wordnet.hypernym_closure(noun, "n")


@lru_cache(wordnet.CACHE_SIZE)
def implies(concept: str, noun: str) -> bool:
    """Whether what is called by the name of a concept is what the noun names: the same, or a kind of it."""
    base, chain = lemma(noun, "n"), imagenet_chains().get(concept, (concept,))
    if any(base in (name, name.rpartition(" ")[2]) for name in chain):
        return True
    senses = frozenset(wordnet.senses(base, "n")[:USUAL])
    return any(not senses.isdisjoint(wordnet.ancestors(sense)) for sense in _senses(concept))


@lru_cache(wordnet.CACHE_SIZE)
def excludes(concept: str, noun: str) -> bool:
    """Whether what is called by the name of a concept cannot be what the noun names: two animals, or two vehicles."""
    base = lemma(noun, "n")
    if implies(concept, noun):
        return False
    if may_name_the_same(concept.rpartition(" ")[2], base) or may_name_the_same(concept, base):
        return False
    return _family(concept) is not None and _family(concept) == _family(base)


@lru_cache(wordnet.CACHE_SIZE)
def _family(name: str) -> str | None:
    family = imagenet_chains()[name][-1] if name in imagenet_chains() else family_of(name)
    return family if family in ("animal", "vehicle") and name != family else None


@lru_cache(wordnet.CACHE_SIZE)
def usual_kind(name: str) -> str:
    """What WordNet's lexicographers file the usual meaning of a noun under: animal, artifact, person, …; "" for none.

    >>> [usual_kind(name) for name in ("spotted cat", "people", "bench", "xyzzy")]
    ['animal', 'group', 'artifact', '']
    """
    return next((wordnet.lexfile(sense).removeprefix("noun.") for sense in _senses(lemma(name, "n"))), "")


@lru_cache(wordnet.CACHE_SIZE)
def _ancestors(noun: str) -> frozenset[int]:
    """What the usual meaning of a noun is a kind of."""
    senses = _senses(lemma(noun, "n"))
    return frozenset(wordnet.ancestors(senses[0])) if senses else frozenset()


@lru_cache(wordnet.CACHE_SIZE)
def is_thing(name: str) -> bool:
    """Whether the usual meaning of a noun is something people use, and no place.

    >>> [is_thing(name) for name in ("suitcase", "parking meter", "kitchen", "street", "dog")]
    [True, True, False, False, False]
    """
    return not _used().isdisjoint(_ancestors(name))


@lru_cache(1)
def _used() -> frozenset[int]:
    """What people use: the senses of these words that are artifacts."""
    senses = [sense for kind in ("instrumentality", "covering", "commodity") for sense in wordnet.senses(kind, "n")]
    return frozenset(sense for sense in senses if wordnet.lexfile(sense) == "noun.artifact")


def _senses(name: str) -> Sequence[int]:
    """The usual meanings of a name, or of its last word where WordNet does not have it whole."""
    return wordnet.senses(name, "n")[:USUAL] or wordnet.senses(lemma(name.rpartition(" ")[2], "n"), "n")[:USUAL]


@lru_cache(wordnet.CACHE_SIZE)
def family_of(name: str) -> str:
    """What a thing is one of, so that it is no other of these: an animal, food, a person, a vehicle, …; else "".

    >>> [family_of(name) for name in ("zebra", "giraffe", "couch", "sky")]
    ['animal', 'animal', 'furniture', '']
    """
    senses = _senses(name)
    if not senses:
        return ""
    kind = wordnet.lexfile(senses[0]).removeprefix("noun.")
    if kind in ("animal", "food", "person"):
        return kind
    above = wordnet.ancestors(senses[0])
    return next((family for family in FAMILIES if wordnet.senses(family, "n")[0] in above), "")


def is_being(noun: str) -> bool:
    """Whether it is a person or an animal."""
    return noun.lower() == "people" or usual_kind(noun) in ("person", "animal")


def is_of_being(noun: str) -> bool:
    """Whether it is worn, or part of a body."""
    return usual_kind(noun) == "body" or wordnet.senses("clothing", "n")[0] in _ancestors(noun)
