"""Captions in other words: those that say less, or another noun; numbers, pairs, names and places as people say them.

A captioner that doubts the rock says that a dog stands "on top of a field", and a name that it copies is a singular
without its second half: "two monkey", "a scissors", "a guinea". `reword` mends that; what is said stays the same.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from sightline.decoding.sentence_end import WHERE, ends_badly
from sightline.grounding.nouns import (
    PAIRS,
    PLURAL,
    box_counts,
    concept_kind,
    implies,
    is_one_name,
    is_thing,
    names_thing,
    noun_tags,
    usual_kind,
)
from sightline.text.grammar import ARTICLES, noun_forms, with_right_articles
from sightline.text.lemmas import lemma
from sightline.text.tagger import NOUNS
from sightline.vision.concept_names import concept_names, imagenet_chains
from sightline.vision.photo_colours import COLOURED, GREY

Words = tuple[str, ...]
FAR = 3  # words between the nouns of "a herd of white sheep", and one more
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
DESCRIBING = NOUNS | {"JJ", "VBN"}  # tags of what stands between an article and its noun
# Names of things of which "a" is one too many.
UNCOUNTED = frozenset("armor baggage clothing corn equipment furniture gymnastics jewelry luggage pottery".split())
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
LANDSCAPES = frozenset(
    "beach canyon cliff coast desert field forest hill hillside lake landscape meadow mountain ocean pond river road "
    "sea shore sky snow street sunset valley water woods".split()
)
# Kinds of what a captioner imagines in a landscape in which nothing is: sheep, a plane, a sign, fruit, a kite. People
# and plants are mostly there.
IMAGINED = ("animal", "artifact", "communication", "food", "possession")
GREY_PHOTO = ("a", "black", "and", "white", "photo", "of")
PHOTO = frozenset("photo photograph picture image".split())
HUES = frozenset("red green yellow pink purple blue brown tan".split())  # no photo without colours shows them
COLOURS = HUES | frozenset("black white grey gray golden silver orange".split())
VIEW = ("a", "view", "of")
MOVING = frozenset("flying grazing jumping playing running sleeping swimming walking".split())  # said without a place
TRANSITIVE = frozenset("eating holding riding wearing".split())
NO_THING = ("", "act", "possession")  # kinds of words that begin a name and are none: gymnastics, guinea


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

    One animal is taken for another, or for whatever the caption begins with, unless that is a person, and so is a
    plant; one thing that people made for another, unless that is a place (a room, a street); food for food, a volcano
    for a rock.
    """
    kind = concept_kind(name)
    alike = [at for at in nouns if concept_kind(words[at]) == kind and (kind != "artifact" or is_thing(words[at]))]
    if alike and kind in ALIKE:
        return alike
    first = [at for at in nouns[:1] if concept_kind(words[at]) not in ("person", "group")]
    return first if kind in ("animal", "plant") else []


def with_noun(words: Words, at: int, name: str) -> Words:
    """A caption with another name in the place of a noun; of the words that describe it, colours and sizes stay.

    >>> " ".join(with_noun(tuple("a brown teddy bear in a tree".split()), 3, "owl"))
    'a brown owl in a tree'
    >>> " ".join(with_noun(tuple("a pair of scissors on a rock".split()), 3, "snake"))
    'a snake on a rock'
    >>> " ".join(with_noun(tuple("a man talking on a cell phone".split()), 6, "tripod"))
    'a man holding a tripod'
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
    before = words[:first]
    if before[-3:-1] == ("talking", "on") and not name.endswith("phone"):
        before = (*before[:-3], "holding", before[-1])
    new = (*before, *kept, *(plural_of(name) if plural else name).split(), *words[at + 1 :])
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


def place_alone(words: Words, nouns: Sequence[int]) -> tuple[int, Words] | None:
    """What a caption says is in a landscape, by its place, and the caption of the landscape without it.

    None of one that is not so made, or of one that says it of people or plants.

    >>> for caption, nouns in (("a herd of sheep in a field", (1, 3, 6)), ("a bird on top of a lake", (1, 6))):
    ...     at, place = place_alone(tuple(caption.split()), nouns)
    ...     print(caption.split()[at], "/", *place)
    sheep / a view of a field
    bird / a view of a lake
    """
    if not nouns:
        return None
    at, *others = nouns
    while others and words[at + 1] == "of" and others[0] - at <= FAR:
        at = others.pop(0)  # a herd of sheep
    imagined = lemma(words[at], "n") == "animal" or concept_kind(words[at]) in IMAGINED
    if not others or lemma(words[others[0]], "n") not in LANDSCAPES or not imagined:
        return None
    between = words[at + 1 : others[0]]
    articles = [place for place, word in enumerate(between) if word in ("a", "an", "the")]
    if not articles or articles[-1] == 0 or "with" in between or "and" in between:
        return None
    opening = GREY_PHOTO if words[: len(GREY_PHOTO)] == GREY_PHOTO else VIEW
    return at, (*opening, *words[at + 1 + articles[-1] :])


def with_true_colours(words: Words, spread: float) -> Words:
    """A caption that says of a photo's colours what its pixels do; `spread` is their `colour_spread`, or NaN.

    >>> for caption, spread in (("a black and white photo of a forest", 40.0), ("a brown and white dog", 0.0)):
    ...     print(*with_true_colours(tuple(caption.split()), spread))
    a view of a forest
    a white dog
    """
    (tags,) = noun_tags([words])
    first = len(GREY_PHOTO)
    if spread > COLOURED and words[:4] == GREY_PHOTO[:4] and words[4:5] and words[4] in PHOTO and words[5:6] == ("of",):
        rest, phrases = words[first:], _phrases(words[first:], tags[first:], ("a", "an", "the"))
        alone = phrases == [(0, len(rest) - 1)] and lemma(rest[-1], "n") in LANDSCAPES
        return (*VIEW, *rest) if alone else rest
    return without_hues(words, tags) if spread < GREY else words


def without_hues(words: Words, tags: Sequence[str]) -> Words:
    """A caption without the colours that describe its nouns, but for black, white and grey; names keep theirs.

    >>> for caption in ("a red and blue kite", "a white and brown dog", "a light blue car", "a red panda"):
    ...     print(*without_hues(tuple(caption.split()), noun_tags([caption.split()])[0]))
    a kite
    a white dog
    a car
    a red panda
    """
    for at, word in enumerate(words[:-1]):
        following = words[at + 1]
        if word not in HUES or is_one_name(word, following):
            continue
        if following == "and" and {*words[at + 2 : at + 3]} & COLOURS:
            first, end = at, at + 2
        elif at > 1 and words[at - 1] == "and" and words[at - 2] in COLOURS:
            first, end = at - 1, at + 1
        elif tags[at + 1] in DESCRIBING:
            first, end = at, at + 1
        else:
            continue
        first -= first > 0 and words[first - 1] in ("light", "dark", "bright")
        return without_hues((*words[:first], *words[end:]), (*tags[:first], *tags[end:]))
    return words


def without_last_phrase(words: Words, tags: Sequence[str]) -> Words | None:
    """A caption without the phrase that it ends in; None of one that is a single phrase, or ends otherwise.

    >>> for caption in ("a cat sitting on top of a bed", "a dog running with a ball", "a girl with a kite in the sky"):
    ...     print(*without_last_phrase(tuple(caption.split()), noun_tags([caption.split()])[0]))
    a cat
    a dog running
    a girl with a kite
    """
    if not words or tags[-1] not in NOUNS or not names_thing(words, len(words) - 1):
        return None
    first = _phrase_before(tags, len(words))
    while first and words[first - 1] == "of":  # on top of a bed, a game of chess
        first = _phrase_before(tags, first - 1)
    if words[max(0, first - 2) : first] == ("next", "to"):
        first -= 1
    if not first or not (tags[first - 1] in ("IN", "VBG") or words[first - 1] == "next"):
        return None
    end = first - 1
    while end and (tags[end - 1] in ("VBG", "VBN") or words[end - 1] == "while") and words[end - 1] not in MOVING:
        end -= 1
    whole = tags[end - 1] in NOUNS or words[end - 1] in MOVING  # not "a man is", "a man that"
    return words[:end] if end > 1 and whole and any(box_counts(words[:end], tags[:end])) else None


def _phrase_before(tags: Sequence[str], end: int) -> int:
    """Where the phrase of a noun begins that ends before a place."""
    while end and tags[end - 1] in DESCRIBING | {"DT", "CD", "PRP$"}:
        end -= 1
    return end


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
    joined = any(word == "and" and tags[at - 1] in NOUNS for at, word in enumerate(before))  # not black and white
    return not several and not joined and not set(before) & {*COUNTED, *GROUPS, *UNCHANGED}


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
        countable = (
            noun in ("animal", "vehicle") or usual_kind(noun) in ("animal", "person") or is_thing(noun) or _grows(noun)
        )
        if noun == "person":
            changed[head] = "people"
        elif tags[head] == "NN" and noun not in PAIRS | UNCOUNTED and countable:
            changed[head] = plural_of(noun)
    return tuple(changed)


def _grows(noun: str) -> bool:
    """Whether it is a concept's name for an animal that is not eaten, or for a plant: leopards, daisies, not corn."""
    return noun in imagenet_chains() and concept_kind(noun) in ("animal", "plant") and usual_kind(noun) != "food"


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
    """A caption without "a scissors", "a clothing", "a ladles", "a flowers", "a ground" and "a water"."""
    changed = list(words)
    for article, head in reversed(_phrases(words, tags)):
        noun = words[head]
        if noun in PAIRS:
            changed[article : article + 1] = ("a", "pair", "of")
        elif noun in UNCOUNTED:
            del changed[article]
        elif noun in ("ground", "water"):
            changed[article] = "the"
        elif tags[head] in PLURAL and usual_kind(noun) in ("animal", "artifact", "plant"):
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
