"""A tagged caption as a row of phrases: things, actions, relations, and the small words between them.

The word lists come first: colours, sizes, counts, prepositions that mean the same, compounds, nouns that only measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from sightline.text import wordnet
from sightline.text.lemmas import inflections, lemma, lemma_of_tag
from sightline.text.wordnet import CACHE_SIZE

COLORS = frozenset(
    "amber aqua auburn beige black blond blonde blue bronze brown brunette burgundy charcoal chestnut copper coral "
    "cream crimson cyan fuchsia ginger gold golden gray green grey indigo ivory khaki lavender lilac lime magenta "
    "maroon mauve mustard navy ochre olive orange peach pink plum purple red ruby rust salmon scarlet silver tan "
    "teal turquoise violet white yellow".split()
)
_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()

# What a preposition goes by, and others that mean the same.
_SAME_RELATION = {
    "on": "onto|upon|atop|aboard|on to|on top of|on the top of|at the top of|on the back of|on the front of",
    "in": "inside|inside of|into|in to|within|in the middle of|in the center of|in the centre of|in the midst of|"
    "in the back of|in the corner of",
    "in front of": "in the front of",
    "behind": "in back of|in the background of",
    "next to": "beside|alongside|along side|along side of|right next to|to the side of",
    "on the side of": "on side of|at the side of|by the side of|on the sides of",
    "near": "close to|near to|nearby",
    "under": "underneath|beneath|below",
    "among": "amongst|amid|amidst",
    "between": "in between",
    "off": "off of",
    "outside": "outside of",
    "from": "away from",
    "towards": "toward",
    "over": "over top of",
    "out of": "",
    "up to": "",
    "across from": "",
    "full of": "",
    "because of": "",
    "at the edge of": "on the edge of",
    "at the end of": "on the end of|at end of",
    "at the bottom of": "on the bottom of|in the bottom of",
    "with": "along with|together with",
    "like": "such as",
}


# Other words that belong together, with the one that stands for them ("" for none) and its tag.
_TOGETHER = {
    "as well as": ("and", "CC"),
    "close up": ("close-up", "NN"),
    "each other": ("", ""),
    "one another": ("", ""),
}
Fold = tuple[tuple[str, ...], str, str]  # words, what stands for them, its tag


def _folds() -> dict[str, list[Fold]]:
    """All folds by their first word, the longest first."""
    tokens = _TOGETHER | {
        words: (name, "IN") for name, others in _SAME_RELATION.items() for words in (name, *others.split("|")) if words
    }
    by_first: dict[str, list[Fold]] = {}
    for words in sorted(tokens, key=lambda words: -len(words.split())):
        first, *rest = words.split()
        if rest or first != tokens[words][0]:
            by_first.setdefault(first, []).append(((first, *rest), *tokens[words]))
    return by_first


FOLDS = _folds()

# "X of Y" speaks of Y: these X name no thing of their own, but may say how many …
_MEASURES = (
    "amount array assortment bit bunch kind lot number pair part piece plenty portion series set side sort type variety"
)
MEASURES: dict[str, tuple[str, ...]] = {**dict.fromkeys(_MEASURES.split(), ()), "couple": ("two",), "dozen": ("dozen",)}
# … these are seen as a thing too, but what is said of them is said of Y …
COLLECTIONS = frozenset(
    "band bouquet bundle class cluster collection crowd family flock gathering gang group herd pack pile row "
    "slice stack team throng".split()
)
# … and these only say that there is a picture.
PICTURES = frozenset("close-up closeup image photo photograph picture shot snapshot view".split())

# Verbs that lead to another verb and add nothing to what is seen: "is trying to catch".
LEADING_VERBS = frozenset("appear attempt begin continue get go prepare seem start try".split())
PLACED = frozenset("dock gather leave locate lie moor park perch place position seat sit stand station tie".split())

_COMPOUNDS = frozenset(
    "baseball glove|basketball hoop|computer mouse|french fries|high chair|hot dog|polar bear|potted plant|"
    "remote control|skate park|stuffed animal|surf board|tennis player|train track|wii remote".split("|")
)


@lru_cache(CACHE_SIZE)
def is_compound(words: str, adjective: bool) -> bool:
    """Whether "fire hydrant" is one thing. After an adjective only listed ones are: a *young man* is no *boyfriend*."""
    return words in _COMPOUNDS or (not adjective and wordnet.has(words, "n"))


@lru_cache(CACHE_SIZE)
def general_name(thing: str) -> str:
    """What a compound may be called for short: a *tennis court* is a *court*, but no *teddy bear* is a *bear*."""
    head = thing.rsplit(" ", 1)[-1]
    if head == thing or not wordnet.has(thing, "n"):
        return head
    kinds = wordnet.hypernym_closure(thing, "n")
    return thing if kinds.isdisjoint(wordnet.synsets(head, "n")) else head


_LIVING = ("noun.person", "noun.animal")
_GROUPS = frozenset("people crowd team family couple group herd flock".split())


@lru_cache(CACHE_SIZE)
def is_alive(thing: str) -> bool:
    """Whether a noun's first sense is a person or an animal, or it names several of them."""
    first = wordnet.senses(thing, "n")[:1]
    return thing in _GROUPS or (bool(first) and wordnet.lexfile(first[0]) in _LIVING)


Token = tuple[str, str]  # word and Penn tag

_DETERMINERS = frozenset({"DT", "PDT", "PRP$", "WP$"})
_NOUNS = frozenset({"NN", "NNS", "NNP", "NNPS"})
_PLURALS = frozenset({"NNS", "NNPS"})
_PARTICIPLES = frozenset({"VBG", "VBN", "VBD"})  # taggers take VBN and VBD for each other
_BE = frozenset("is are was were be been being am 's 're".split())
_BEFORE_THINGS = frozenset("at in near of on over through under with".split())  # "in running shoes", not "by running"
_CLAUSE_WORDS = frozenset("as because if when where whereas while whilst".split())
_LONGEST = 20  # words a noun may be waited for, so that a row of a thousand adjectives is read in time
_EMPTY_ADJECTIVES = frozenset("other own same such".split())


@dataclass(frozen=True, slots=True)
class Thing:
    """A noun phrase: its head, what is said of it, the nouns that stand before the head, and whose it is."""

    head: str
    attributes: tuple[str, ...] = ()
    nouns: tuple[str, ...] = ()
    owner: Thing | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """A verb. `helped` where a form of *be* stands before it."""

    verb: str
    tag: str
    helped: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """A word that joins phrases or says something of one."""

    kind: Literal["relation", "adjective", "pronoun", "and", "be", "clause", "owner", "that", "there", "to"]
    text: str = ""


Phrase = Thing | Action | Word
_OF, _OWNER = Word("relation", "of"), Word("owner")


def read_phrases(words: Sequence[str], tags: Sequence[str]) -> list[Phrase]:
    """Part a tagged caption into phrases; words that build no scene (adverbs, articles on their own) are left out."""
    tokens = _folded(words, tags)
    phrases: list[Phrase] = []
    at = 0
    while at < len(tokens):
        at = _thing(tokens, at, phrases) or _action(tokens, at, phrases) or _word(tokens, at, phrases)
    merged: list[Phrase] = []  # *the man's hat* gets its owner; *a picture of a group of people* is people, in a group
    for phrase in phrases:
        if isinstance(phrase, Thing) and len(merged) > 1:
            first, link = merged[-2:]
            joined = _joined(first, link, phrase) if isinstance(first, Thing) else None
            if joined is not None:
                del merged[-2:]
                phrase = joined
        merged.append(phrase)
    return merged


def _joined(first: Thing, link: Phrase, second: Thing) -> Thing | None:
    """Two things as one, where *'s* makes them one, or *of* and what is spoken of is the second."""
    if link == _OWNER:
        return Thing(second.head, second.attributes, second.nouns, first)
    if link == _OF and first.head in PICTURES:
        return second
    if link == _OF and first.head in MEASURES:
        return Thing(second.head, (*second.attributes, *MEASURES[first.head]), second.nouns, second.owner)
    if link == _OF and first.head in COLLECTIONS:
        return Thing(second.head, second.attributes, (*second.nouns, *first.nouns, first.head), second.owner)
    return None


def _folded(words: Sequence[str], tags: Sequence[str]) -> list[Token]:
    """Words that belong together as one token, and colours that stand before nouns as adjectives."""
    tokens: list[Token] = []
    at = 0
    while at < len(words):
        word, tag = words[at], tags[at]
        for together, name, its_tag in FOLDS.get(word, ()):
            if tuple(words[at : at + len(together)]) == together:
                tokens += [(name, its_tag)] if name else []
                at += len(together)
                break
        else:
            if tag in _NOUNS and word in COLORS and at + 1 < len(words) and tags[at + 1][0] in "NJC":
                tag = "JJ"
            tokens.append((word, tag))
            at += 1
    return tokens


def _thing(tokens: Sequence[Token], start: int, phrases: list[Phrase]) -> int:
    """Read a noun phrase at `start`; the place after it, or 0 where there is none."""
    at, end = start, len(tokens)
    while at < end and tokens[at][1] in _DETERMINERS:
        at += 1
    before: list[Token] = []
    while at < min(end, start + _LONGEST) and tokens[at][1] not in _NOUNS:
        if _describes(tokens, at):
            before.append(tokens[at])
        elif not _joins(tokens, at, before):
            return 0
        at += 1
    nouns: list[Token] = []
    while at < end and tokens[at][1] in _NOUNS and not (nouns and _starts_anew(nouns[-1], tokens[at])):
        nouns.append(tokens[at])
        at += 1
    if not nouns:
        return 0
    head = _compound(before, nouns)
    modifiers: list[str] = []
    while nouns:
        modifiers.insert(0, _compound([], nouns))
    attributes = tuple(_attribute(*token) for token in before if token[0] not in _EMPTY_ADJECTIVES)
    phrases.append(Thing(head, attributes, tuple(modifiers)))
    return at


def _describes(tokens: Sequence[Token], at: int) -> bool:
    tag = tokens[at][1]
    return tag[0] == "J" or tag == "CD" or (tag in _PARTICIPLES and _before_its_noun(tokens, at))


def _before_its_noun(tokens: Sequence[Token], at: int) -> bool:
    """Whether a participle says something of the noun after it (*a parked car*) rather than of one before it."""
    if at + 1 == len(tokens) or tokens[at + 1][1][0] not in "NJ":
        return False
    if at == 0:
        return tokens[at][1] == "VBN" or is_compound(f"{tokens[0][0]} {lemma_of_tag(*tokens[1])}", False)
    word, previous = tokens[at - 1]
    if previous == "IN":
        return word in _BEFORE_THINGS or tokens[at][1] == "VBN"
    return previous in _DETERMINERS or previous[0] == "J" or previous == "CD"


def _joins(tokens: Sequence[Token], at: int, before: list[Token]) -> bool:
    """Whether *and* or an adverb stands inside a noun phrase: *black and white cat*, *very tall man*."""
    if at + 1 == len(tokens) or not _describes(tokens, at + 1):
        return False
    tag = tokens[at][1]
    return tag[:2] == "RB" or (tag == "CC" and bool(before))


def _starts_anew(previous: Token, noun: Token) -> bool:
    """Whether two nouns belong to two things, a comma lost between them: *tables chairs and lamps*."""
    if previous[1] not in _PLURALS:
        return False
    head = lemma_of_tag(*noun)
    return not is_compound(f"{previous[0]} {head}", False)


def _compound(before: list[Token], nouns: list[Token]) -> str:
    """Take the head off a noun phrase, with the words that make it a compound: *fire hydrant*."""
    head = lemma_of_tag(*nouns.pop())
    for size in (2, 1):
        if len(nouns) >= size:
            words = " ".join([word for word, _ in nouns[-size:]] + [head])
            if is_compound(words, False):
                del nouns[-size:]
                return words
    if before and not nouns and is_compound(f"{before[-1][0]} {head}", before[-1][1][0] not in "V"):
        return f"{before.pop()[0]} {head}"
    return head


def _attribute(word: str, tag: str) -> str:
    """The lemma; a participle goes by its verb even if it is tagged as an adjective: *smiling*, *parked*."""
    if tag == "CD":  # *2* and *two* are alike
        return _NUMBERS[int(word)] if word.isascii() and word.isdigit() and int(word) < len(_NUMBERS) else word
    if tag == "JJ" and word.endswith(("ing", "ed")) and not inflections(word).isdisjoint({"v+ed", "v+ing"}):
        return lemma(word, "v")
    return lemma_of_tag(word, tag)


def _action(tokens: Sequence[Token], at: int, phrases: list[Phrase]) -> int:
    word, tag = tokens[at]
    if word in _BE and tag != "POS":
        main = _after_adverbs(tokens, at + 1)
        if main < len(tokens) and tokens[main][1] in _PARTICIPLES and not _before_its_noun(tokens, main):
            return _verb(tokens, main, True, phrases)
        phrases.append(Word("be"))
        return at + 1
    return _verb(tokens, at, False, phrases) if tag[0] == "V" else 0


def _after_adverbs(tokens: Sequence[Token], at: int) -> int:
    while at < len(tokens) and (tokens[at][1][:2] == "RB" or tokens[at][0] in ("been", "being")):
        at += 1
    return at


def _verb(tokens: Sequence[Token], at: int, helped: bool, phrases: list[Phrase]) -> int:
    """Read a verb and its particle; verbs that only lead to it (*trying to catch*, *does not move*) are left out."""
    while main := _led_to(tokens, at):
        at = main
    verb, tag = lemma_of_tag(*tokens[at]), tokens[at][1]
    after = _after_adverbs(tokens, at + 1)
    if after < len(tokens) and tokens[after][1] == "RP":
        phrasal = f"{verb} {tokens[after][0]}"
        verb = phrasal if wordnet.has(phrasal, "v") else verb
        at = after
    phrases.append(Action(verb, tag, helped))
    return at + 1


def _led_to(tokens: Sequence[Token], at: int) -> int:
    """The place of the verb that the verb at `at` leads to, or 0."""
    verb, after = lemma_of_tag(*tokens[at]), _after_adverbs(tokens, at + 1)
    tags = [tag for _, tag in tokens[after : after + 2]]
    if verb in LEADING_VERBS and tags == ["TO", "VB"]:
        return after + 1
    helper = (verb == "do" and tags[:1] == ["VB"]) or (verb == "have" and tags[:1] == ["VBN"])
    return after if helper and not _before_its_noun(tokens, after) else 0


def _word(tokens: Sequence[Token], at: int, phrases: list[Phrase]) -> int:
    word, tag = tokens[at]
    following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
    if tag[0] == "J":
        if word not in _EMPTY_ADJECTIVES:
            phrases.append(Word("adjective", _attribute(word, tag)))
    elif tag == "POS":
        phrases.append(Word("be" if following in ("VBG", "DT", "IN") else "owner"))
    elif word == "to":
        phrases.append(Word("to") if following == "VB" else Word("relation", word))
    elif word == "that" or tag in ("WDT", "WP"):
        phrases.append(Word("that"))
    elif word in _CLAUSE_WORDS and not (word == "as" and phrases and isinstance(phrases[-1], Action)):
        phrases.append(Word("clause"))
    elif tag == "IN" or word == "as":
        phrases.append(Word("relation", word))
    elif tag == "CC":
        phrases.append(Word("and"))
    elif tag == "PRP":
        phrases.append(Word("pronoun", word))
    elif tag == "EX":
        phrases.append(Word("there"))
    return at + 1
