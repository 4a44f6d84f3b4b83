"""How a caption is worded that was chosen: numbers, pairs, names and places as people say them.

What is said stays the same. A captioner that doubts the rock says that a dog stands "on top of a field", and a name
that it copies is a singular without its second half: "two monkey", "a scissors", "a guinea".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sightline.decoding.sentence_end import WHERE, ends_badly
from sightline.grounding.caption_edits import COUNTED, GROUPS, Words, plural_of
from sightline.grounding.noun_kinds import is_thing, usual_kind
from sightline.grounding.nouns import PAIRS, PLURAL, noun_tags
from sightline.text.grammar import ARTICLES, with_right_articles
from sightline.text.lemmas import lemma
from sightline.text.tagger import NOUNS
from sightline.vision.concept_names import concept_names, imagenet_chains

DESCRIBING = NOUNS | {"JJ", "VBN"}  # tags of what stands between an article and its noun
# Names of things of which "a" is one too many.
UNCOUNTED = frozenset("armor baggage clothing equipment furniture gymnastics jewelry luggage pottery".split())
# Places that one is in. What is said to be on top of a lake may be in it or beside it.
IN = frozenset("field room library market park zoo".split())
ON = frozenset("beach court floor ground road sidewalk street".split())  # and on
IN_FRONT = frozenset("field park road room street".split())  # places that one is seldom in front of
SPORTS = frozenset("baseball basketball football game player players rugby soccer tennis".split())  # on a field
ROOMS = frozenset("bathroom bedroom kitchen".split())
WRONG = {  # what is said of places that are none of the kind
    "on top of": IN | ON,
    "in front of": IN_FRONT,
    "on the side of": frozenset({"room"}),
    "next to": frozenset({"room"}),
    "on": frozenset({"room"}),
}
TRANSITIVE = frozenset("eating holding riding wearing".split())
NO_THING = ("", "act", "possession")  # kinds of words that begin a name and are none: gymnastics, guinea


def reword(words: Words, most: int | None = None) -> Words:
    """A caption as people would word it; one that has to do with `most` words, with a whole end.

    >>> for caption in ("two monkey on top of a field", "a scissors in front of a room", "a gymnastics on a ground"):
    ...     print(*reword(tuple(caption.split())))
    two monkeys in a field
    a pair of scissors in a room
    gymnastics equipment on the ground
    """
    (tags,) = noun_tags([words])
    for rule in (with_whole_names, with_plurals, with_articles, with_places, without_second_room):
        new = rule(words, tags)
        if new != words:
            words, (tags,) = new, noun_tags([new])
    if most is not None:
        words = with_whole_end(words, tags, most)
    return tuple(with_right_articles(words))


def with_plurals(words: Words, tags: Sequence[str]) -> Words:
    """A caption with the plural of a thing or a being after a number, or after a group of them."""
    changed = list(words)
    for at, word in enumerate(words):
        if word in COUNTED and words[at - 1 : at] != ("a",):
            head = at
        elif word in GROUPS and words[at + 1 : at + 2] == ("of",):
            head = at + 1
        else:
            continue
        while head + 1 < len(words) and (tags[head + 1] in NOUNS or tags[head + 1] in ("JJ", "VBN")):
            head += 1
        noun = words[head]
        countable = noun in ("animal", "vehicle") or usual_kind(noun) in ("animal", "person") or is_thing(noun)
        if noun == "person":
            changed[head] = "people"
        elif tags[head] == "NN" and noun not in PAIRS | UNCOUNTED and countable:
            changed[head] = plural_of(noun)
    return tuple(changed)


def with_whole_names(words: Words, tags: Sequence[str]) -> Words:
    """A caption in which no name ends after its first word: "a guinea pig", "a punching bag"."""
    changed = list(words)
    for article, head in reversed(_phrases(words, tags)):
        if words[article - 1 : article] != ("doing",):  # gymnastics
            changed[head + 1 : head + 1] = _rest_of_names().get(words[head], ())
    return tuple(changed)


@lru_cache(1)
def _rest_of_names() -> dict[str, Words]:
    """Words that only begin a name, and how it goes on; one that begins several is told nothing about."""
    names = {*concept_names(), *(name for chain in imagenet_chains().values() for name in chain)}
    rests: dict[str, set[Words]] = {}
    for first, *rest in (name.split() for name in names):
        rests.setdefault(first, set()).add(tuple(rest))
    return {
        first: next(iter(own))
        for first, own in rests.items()
        if len(own) == 1 and own != {()} and usual_kind(first) in NO_THING
    }


def with_articles(words: Words, tags: Sequence[str]) -> Words:
    """A caption without "a scissors", "a clothing", "a ladles" and "a ground"."""
    changed = list(words)
    for article, head in reversed(_phrases(words, tags)):
        noun = words[head]
        if noun in PAIRS:
            changed[article : article + 1] = ("a", "pair", "of")
        elif noun in UNCOUNTED:
            del changed[article]
        elif noun == "ground":
            changed[article] = "the"
        elif tags[head] in PLURAL and usual_kind(noun) in ("animal", "artifact"):
            changed[head] = lemma(noun, "n")
    return tuple(changed)


def with_places(words: Words, tags: Sequence[str]) -> Words:
    """A caption in which people and things are in rooms and fields, and on streets and floors."""
    changed = list(words)
    for article, head in reversed(_phrases(words, tags, ("a", "an", "the"))):
        before, place = " ".join(words[max(0, article - 4) : article]), words[head]
        if place == "lot" and words[head - 1] == "parking":
            place = "room"  # one is in it, not on it or in front of it
        wrong = [phrase for phrase, places in WRONG.items() if place in places and f" {before}".endswith(f" {phrase}")]
        if not wrong:
            continue
        plays = place == "field" and not SPORTS.isdisjoint(words)
        if place == "floor" and head == article + 1:
            changed[article] = "the"
        first = article - len(wrong[0].split())
        changed[first:article] = ["on" if place in ON or plays else "in"]
    return tuple(changed)


def without_second_room(words: Words, tags: Sequence[str]) -> Words:
    """A caption that does not end in "in a room" where it has told which room."""
    if words[-3:] != ("in", "a", "room") or ROOMS.isdisjoint(words):
        return words
    return words[:-4] if tags[-4] == "VBG" else words[:-3]


def with_whole_end(words: Words, tags: Sequence[str], most: int) -> Words:
    """A caption whose last noun has its article, or without a noun that was crammed in.

    >>> for caption in ("a bird standing in front of house", "a man in the air bicycle", "two dogs running terrier"):
    ...     print(*with_whole_end(tuple(caption.split()), noun_tags([caption.split()])[0], 7))
    a bird in front of a house
    a man in the air
    two dogs
    """
    if not ends_badly([words])[0] or len(words) < 3:
        return words
    if words[-3:-1] in (("on", "top"), ("in", "front")):  # nobody knows of what
        return words[:-4] if tags[-4:-3] == ["VBG"] else words[:-3]
    first = len(words) - 1
    while first and tags[first - 1] in DESCRIBING:
        first -= 1
    if words[-2] in WHERE:
        return words[:-1]
    if tags[first - 1] == "VBG":
        return words if words[first - 1] in TRANSITIVE else words[: first - 1]
    whole = (*words[:first], "a", *words[first:])
    verbs = [at for at in range(first - 1) if tags[at] == "VBG" and tags[at + 1] in ("IN", "TO")]
    return (*whole[: verbs[-1]], *whole[verbs[-1] + 1 :]) if len(whole) > most and verbs else whole


def _phrases(words: Words, tags: Sequence[str], articles: Sequence[str] = ARTICLES) -> list[tuple[int, int]]:
    """Where an article stands, and the last word of its phrase."""
    phrases = []
    for article, word in enumerate(words[:-1]):
        head = article
        while head + 1 < len(words) and tags[head + 1] in DESCRIBING:
            head += 1
        participle, after = ([*tags[head + 1 : head + 3], "", ""])[:2]
        if word in articles and tags[head] not in NOUNS and participle == "VBG" and after not in DESCRIBING:
            head += 1  # "a black punching", but "a sliding door"
        if word in articles and head > article:
            phrases.append((article, head))
    return phrases
