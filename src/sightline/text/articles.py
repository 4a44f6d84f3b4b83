"""*a* or *an*: by the sound that a word begins with, not by its letter.

>>> [indefinite_article(word) for word in ("umbrella", "dog", "hour", "unicorn", "one-way", "18-wheeler", "suv")]
['an', 'a', 'an', 'a', 'a', 'an', 'an']
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

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
    if _is_spelled(re.split(r"[-\d]", plain)[0] if plain not in _SPELLED else plain):
        return "an" if plain[0] in _SPELLED_VOWEL else "a"
    if plain[0] == "h":
        return "an" if _SILENT_H.match(plain) else "a"
    return "an" if plain[0] in "aeiou" and not _CONSONANT_SOUND.match(plain) else "a"


def wrong_articles(words: Sequence[str]) -> list[str]:
    """The pairs of a caption whose article does not suit the word after it: ["a umbrella"].

    An article before another is a word too many and not counted here.
    """
    return [
        f"{article} {word}"
        for article, word in pairwise(words)
        if article in ARTICLES and word not in (*ARTICLES, "the") and indefinite_article(word) not in (article, None)
    ]


def with_right_articles(words: Sequence[str]) -> list[str]:
    """The words, "a" and "an" as suits the word after each.

    >>> with_right_articles("a umbrella and an dog on a".split())
    ['an', 'umbrella', 'and', 'a', 'dog', 'on', 'a']
    """
    found = list(words)
    for place, (article, word) in enumerate(pairwise(words)):
        if article in ARTICLES and word not in (*ARTICLES, "the"):
            found[place] = indefinite_article(word) or article
    return found


def _is_spelled(word: str) -> bool:
    """Whether a word is read letter by letter: tv, hd, x."""
    return word in _SPELLED or (word.isalpha() and not set(word) & set("aeiouy")) or len(word) == 1
