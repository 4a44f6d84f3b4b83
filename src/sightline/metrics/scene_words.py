"""The words scene graphs are built with: relations, counts, colours, sizes, compounds, and nouns that only measure."""

from __future__ import annotations

from functools import lru_cache

from sightline.text import wordnet
from sightline.text.wordnet import REMEMBERED

COLORS = frozenset(
    "amber aqua auburn beige black blond blonde blue bronze brown brunette burgundy charcoal chestnut copper coral "
    "cream crimson cyan fuchsia ginger gold golden gray green grey indigo ivory khaki lavender lilac lime magenta "
    "maroon mauve mustard navy ochre olive orange peach pink plum purple red ruby rust salmon scarlet silver tan "
    "teal turquoise violet white yellow".split()
)
SIZES = frozenset(
    "big enormous giant gigantic huge immense large little long massive medium mini miniature narrow oversized petite "
    "short small tall thick thin tiny vast wide".split()
)
_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()
COUNTS = frozenset([*_NUMBERS, *"thirty forty fifty hundred thousand dozen".split()])

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
    """By their first word, longest first."""
    folds = [(tuple(words.split()), *token) for words, token in _TOGETHER.items()]
    for name, others in _SAME_RELATION.items():
        folds += [(tuple(words.split()), name, "IN") for words in [name, *others.split("|")] if words]
    by_first: dict[str, list[Fold]] = {}
    for fold in sorted(folds, key=lambda fold: -len(fold[0])):
        if len(fold[0]) > 1 or fold[0][0] != fold[1]:
            by_first.setdefault(fold[0][0], []).append(fold)
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


def number_word(word: str) -> str:
    """A count as a word: *2* and *two* are alike."""
    return _NUMBERS[int(word)] if word.isascii() and word.isdigit() and int(word) < len(_NUMBERS) else word


@lru_cache(REMEMBERED)
def is_compound(words: str, adjective: bool) -> bool:
    """Whether "fire hydrant" is one thing. After an adjective only listed ones are: a *young man* is no *boyfriend*."""
    return words in _COMPOUNDS or (not adjective and wordnet.has(words, "n"))


@lru_cache(REMEMBERED)
def general_name(thing: str) -> str:
    """What a compound may be called for short: a *tennis court* is a *court*, but no *teddy bear* is a *bear*."""
    head = thing.rsplit(" ", 1)[-1]
    if head == thing or not wordnet.has(thing, "n"):
        return head
    kinds = wordnet.hypernym_closure(thing, "n")
    return thing if kinds.isdisjoint(wordnet.synsets(head, "n")) else head


_LIVING = ("noun.person", "noun.animal")
_GROUPS = frozenset("people crowd team family couple group herd flock".split())


@lru_cache(REMEMBERED)
def is_alive(thing: str) -> bool:
    """Whether a noun's first sense is a person or an animal, or it names several of them."""
    first = wordnet.senses(thing, "n")[:1]
    return thing in _GROUPS or (bool(first) and wordnet.lexfile(first[0]) in _LIVING)
