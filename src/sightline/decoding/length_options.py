"""How captions are wanted, in words that people use. PyTorch is imported when there are rules to make."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from sightline.errors import ConfigError

if TYPE_CHECKING:
    from sightline.decoding.constraints import Rules

LENGTHS = {"short": (1, 7), "normal": (0, 20), "long": (13, 20)}  # the fewest and the most words
LEAST_WORDS, MOST_WORDS = 5, 40  # with fewer, hardly a sentence is whole


def words_of(length: str) -> tuple[int, int]:
    """The fewest and the most words of captions of a length: a name, or a number, the most.

    >>> words_of("short"), words_of("12")
    ((1, 7), (1, 12))
    """
    if length in LENGTHS:
        return LENGTHS[length]
    if length in map(str, range(LEAST_WORDS, MOST_WORDS + 1)):
        return 1, int(length)
    raise ConfigError(
        f"`length` is {length!r}", fix=f"give {', '.join(LENGTHS)}, or {LEAST_WORDS} to {MOST_WORDS} words"
    )


def phrases_of(given: Collection[str]) -> tuple[str, ...]:
    """Words and phrases that captions must have, as people give them: one by one, or several by commas.

    >>> phrases_of(["dog, red ball", "cup"])
    ('dog', 'red ball', 'cup')
    """
    found = tuple(phrase.strip() for some in given for phrase in some.split(",") if phrase.strip())
    if given and not found:
        raise ConfigError("no word to include was given", fix="give one, or leave the option out")
    return found


def rules_of(length: str, must_include: tuple[str, ...] = ()) -> Rules:
    """What captions of a length may and must say.

    >>> rules_of("5").max_words, rules_of("5").whole, rules_of("long").whole
    (5, True, False)
    """
    from sightline.decoding.constraints import CAREFUL

    fewest, most = words_of(length)
    plain = replace(CAREFUL, must_include=must_include)
    if length == "normal":
        return plain
    whole = length != "long"  # that leaves room to end in
    return replace(plain, max_words=most, min_words=fewest, no_repeat_ngram=3, whole=whole)
