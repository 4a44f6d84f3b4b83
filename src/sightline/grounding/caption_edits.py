"""Captions that say less than another, or another noun: which they are, and how they are worded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sightline.grounding.noun_kinds import implies, is_thing, usual_kind
from sightline.grounding.nouns import PAIRS, PLURAL, noun_tags
from sightline.text.grammar import noun_forms, with_right_articles
from sightline.text.tagger import NOUNS

LEAST_WORDS = 3  # of the beginning of a caption
KEPT_BEFORE = frozenset(  # adjectives that suit a thing whatever it is
    "black white brown red green blue yellow orange pink purple grey gray golden small little large big young".split()
)
ALIKE = ("animal", "artifact", "food", "object")  # kinds of things that are taken for each other
COUNTED = frozenset("two three four five six seven eight nine ten several many".split())
GROUPS = frozenset("group pair couple bunch pile row herd flock".split())  # before "of" and a plural
UNCHANGED = frozenset(  # names whose plural is no other word
    "sheep deer moose bison cattle swine squid shrimp salmon trout aircraft spacecraft luggage baggage furniture "
    "equipment clothing jewelry pottery cutlery silverware".split()
)
Words = tuple[str, ...]


def beginnings(words: Words, tags: Sequence[str]) -> list[Words]:
    """The beginnings of a caption that are captions: they end in a noun, before what is added to them.

    >>> words = tuple("a cat on a bed next to a table".split())
    >>> [" ".join(one) for one in beginnings(words, noun_tags([words])[0])]
    ['a cat on a bed']
    """
    return [
        words[:at]
        for at in range(LEAST_WORDS, len(words))
        if (tags[at] in ("IN", "CC") or words[at] == "next") and words[at] != "of" and tags[at - 1] in NOUNS
    ]


def mentions(words: Sequence[str], name: str) -> bool:
    """Whether a caption says a name, what it is a kind of, or a kind of it."""
    return any(implies(name, word) or implies(word, name.rpartition(" ")[2]) for word in words)


def replaceable(words: Words, nouns: Sequence[int], name: str) -> list[int]:
    """The nouns, by their places, that may have been said where something of this name is.

    One animal is taken for another, or for whatever the caption begins with, unless that is a person; one thing that
    people made for another, unless that is a place (a room, a street); food for food, a volcano for a rock.
    """
    kind = usual_kind(name)
    alike = [at for at in nouns if usual_kind(words[at]) == kind and (kind != "artifact" or is_thing(words[at]))]
    if alike and kind in ALIKE:
        return alike
    first = [at for at in nouns[:1] if usual_kind(words[at]) not in ("person", "group")]
    return first if kind == "animal" else []


def with_noun(words: Words, at: int, name: str) -> Words:
    """A caption with another name in the place of a noun; of the words that describe it, colours and sizes stay.

    >>> " ".join(with_noun(tuple("a brown teddy bear in a tree".split()), 3, "owl"))
    'a brown owl in a tree'
    >>> " ".join(with_noun(tuple("a pair of scissors on a rock".split()), 3, "snake"))
    'a snake on a rock'
    """
    (tags,) = noun_tags([words])
    first = at
    while first and (tags[first - 1] in NOUNS or tags[first - 1] in ("JJ", "JJR", "JJS", "VBN", "VBG")):
        first -= 1
    kept = [word for word in words[first:at] if word in KEPT_BEFORE]
    plural = tags[at] in PLURAL
    if name.rpartition(" ")[2] in PAIRS:
        plural, name = False, name if plural else f"pair of {name}"
    if first >= 3 and words[first - 3 : first] == ("a", "pair", "of"):
        first, plural = first - 2, False
    new = (*words[:first], *kept, *(plural_of(name) if plural else name).split(), *words[at + 1 :])
    return tuple(with_right_articles(new))


def plural_of(name: str) -> str:
    """The plural of a name.

    >>> [plural_of(name) for name in ("fox", "wild cat", "wolf", "fly", "camera", "clownfish", "woman")]
    ['foxes', 'wild cats', 'wolves', 'flies', 'cameras', 'clownfish', 'women']
    """
    *before, noun = name.split()
    if noun.endswith("man") and noun not in ("human", "german"):
        return f"{name[:-3]}men"
    if noun in UNCHANGED or noun.endswith("fish"):
        return name
    forms = [form for form in noun_forms(noun) if form != noun]
    regular = f"{noun}es" if noun.endswith(("s", "x", "z", "ch", "sh")) else f"{noun}s"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        regular = f"{noun[:-1]}ies"
    irregular = [form for form in forms if form not in (f"{noun}s", f"{noun}es", f"{noun.removesuffix('y')}ies")]
    # Latin's plurals are for scholars: people say cameras, cactuses, mantises.
    irregular = [form for form in irregular if form.endswith("ves") or not form.endswith(("ae", "i", "a", "es"))]
    return " ".join([*before, irregular[0] if irregular else regular])


def is_alone(words: Words) -> bool:
    """True where a caption says "each other" of one thing.

    >>> [is_alone(tuple(text.split())) for text in ("a dog next to each other", "a dog and a cat next to each other")]
    [True, False]
    """
    if ("each", "other") not in pairwise(words):
        return False
    before = words[: words.index("each")]
    (tags,) = noun_tags([words])
    several = any(tag in PLURAL for tag in tags[: len(before)])
    return not several and not set(before) & {"and", *COUNTED, *GROUPS, *UNCHANGED}
