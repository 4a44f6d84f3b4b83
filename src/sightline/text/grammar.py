"""What makes a caption right English: its articles, its last word, and nouns that may come again.

>>> [indefinite_article(word) for word in ("umbrella", "dog", "hour", "unicorn", "one-way", "18-wheeler", "suv")]
['an', 'a', 'an', 'a', 'a', 'an', 'an']
>>> [may_come_again(caption.split(), -1) for caption in ("a dog beside another dog", "side by side", "a dog and a dog")]
[True, True, False]
>>> noun_forms("berries"), noun_forms("sitting"), noun_forms("red")
(('berry', 'berries', 'berrys'), (), ())
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise

from sightline.text import wordnet
from sightline.text.lemmas import lemma
from sightline.text.tagger import Tagger

ARTICLES = ("a", "an")
_SILENT_H = re.compile(r"(?:hour|honest|honou?r(?!t)|heir)")
# Vowel letters that sound like y or w: unicorn (but unidentified, uninhabited), used, utensil, urinal, euro, ewe, one.
_CONSONANT_SOUND = re.compile(
    r"uni(?!d|m|n|ron)|unanim|us[aeiu]|ut[eio]|ukul|ukrain|ur[aeio]|ugand|ubiq|uvul|eu|ewe|one(?:s|self)?(?![a-z])|once(?![a-z])"
)
_VOWEL_NUMBER = re.compile(r"8|1[18](?!\d)")  # eight, eighty; eleven, eighteen
_SPELLED_VOWEL = frozenset("aefhilmnorsx")  # letters whose names begin with a vowel: an F, an X
_SPELLED = frozenset("suv mri fbi nba rv xbox hbo usb ufo ups usps ucla uk us usa u.s. u.k. usc".split())
# Said either way, or read as another word (mister, saint): no article before them is wrong.
EITHER = frozenset("herb herbs herbal historic historical hotel led faq mr mrs ms st ft mt lb lbs hrs hr".split())


def indefinite_article(word: str) -> str | None:
    """The article before a word, "a" or "an"; None where both are right, and where nobody knows how it sounds."""
    plain = unicodedata.normalize("NFKD", word.lower()).encode("ascii", "ignore").decode()
    if not plain or not plain[0].isalnum() or plain in EITHER:
        return None
    if plain[0].isdigit():
        return "an" if _VOWEL_NUMBER.match(plain) else "a"
    part = plain if plain in _SPELLED else re.split(r"[-\d]", plain)[0]
    if part in _SPELLED or (part.isalpha() and set(part).isdisjoint("aeiouy")) or len(part) == 1:  # tv, hd, x
        return "an" if plain[0] in _SPELLED_VOWEL else "a"
    if plain[0] == "h":
        return "an" if _SILENT_H.match(plain) else "a"
    return "an" if plain[0] in "aeiou" and not _CONSONANT_SOUND.match(plain) else "a"


def wrong_articles(words: Sequence[str]) -> list[str]:
    """The pairs of a caption whose article does not suit the word after it: ["a umbrella"].

    An article before another is a word too many and not counted here.
    """
    right = with_right_articles(words)
    return [f"{article} {words[place + 1]}" for place, article in enumerate(words) if article != right[place]]


def with_right_articles(words: Sequence[str]) -> list[str]:
    """The words, "a" and "an" as suits the word after each.

    >>> with_right_articles("a umbrella and an dog on a".split())
    ['an', 'umbrella', 'and', 'a', 'dog', 'on', 'a']
    """
    right = list(words)
    for place, (article, word) in enumerate(pairwise(words)):
        if article in ARTICLES and word not in (*ARTICLES, "the"):
            right[place] = indefinite_article(word) or article
    return right


# The two lists of self-critical code together.
BAD_ENDINGS = tuple("a an the in for at of with before after on upon near to is are am this his her that".split())

# These end whole captions, too: "with the light on", "looking at her".
_MAY_END = frozenset("before after on this her that".split())
_AFTER_A_VERB = frozenset({"in", "near"})  # "as the tide comes in", but "a field with a mountain in"
_OTHERS = (
    "and or but nor while as from into onto toward towards against between among during without than if because "
    "which whose their its my your our these those every"
).split()
DANGLING = frozenset([*BAD_ENDINGS, *_OTHERS]) - _MAY_END
NEVER_LAST = (*BAD_ENDINGS, *_OTHERS)  # after which decoding does not stop under the rule `bad_endings`


def dangles(words: Sequence[str], tags: Sequence[str]) -> bool:
    """Whether a caption ends in an article, a preposition, a conjunction or the like; `tags` are Penn's.

    >>> captions = "a man in the".split(), "the tide comes in".split()
    >>> [dangles(words, Tagger.default().tag(words)) for words in captions]
    [True, False]
    """
    if not words or words[-1] not in DANGLING:
        return False
    return not (words[-1] in _AFTER_A_VERB and len(words) > 1 and tags[-2].startswith("V"))


# Between the two nouns of "side by side", "back to back", "hand in hand", "row upon row".
BETWEEN = frozenset("by to in on upon after for over".split())
DOUBLED = frozenset("choo pom yo tuk cha tom bye".split())  # choo choo train, pom poms
ANOTHER = frozenset("another other others second each".split())  # a man beside another man: two are meant
_THINGS = frozenset(f"noun.{kind}" for kind in "animal artifact body food object person plant".split())


def may_come_again(words: Sequence[str], place: int) -> bool:
    """Whether the noun at a place is the second of *side by side* or *choo choo*, or after *another* and at most one
    adjective.
    """
    place %= len(words)
    second_last, last, word = ["", "", *words][place : place + 3]
    if word in DOUBLED or last in ANOTHER or second_last in ANOTHER:
        return True
    return second_last == word and last in BETWEEN


@lru_cache(wordnet.CACHE_SIZE)
def noun_forms(word: str) -> tuple[str, ...]:
    """The singular and the plurals of a word that is a noun wherever it follows "a", itself among them; else nothing.

    Plurals that nobody says may be among them: a vocabulary does not have them.
    A participle is one only where its usual meaning is a thing: *building* and *swing*, not *sitting*.
    """
    word = word.lower()
    if word in DOUBLED or not Tagger.default().nouns(["a", word])[1]:
        return ()
    if word.endswith("ing") and lemma(word, "v") != word:
        usual = wordnet.senses(word, "n")[:1]
        if not usual or wordnet.lexfile(usual[0]) not in _THINGS:
            return ()
    base = lemma(word, "n")
    plurals = (f"{base}s", f"{base}es", f"{base.removesuffix('y')}ies", *_irregular().get(base, ()))
    return tuple(dict.fromkeys([base, word, *(form for form in plurals if lemma(form, "n") == base)]))


@cache
def _irregular() -> dict[str, list[str]]:
    plurals: dict[str, list[str]] = {}
    for plural, bases in wordnet.exceptions("n").items():
        for base in bases:
            plurals.setdefault(base, []).append(plural)
    return plurals
