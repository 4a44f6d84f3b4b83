"""Nouns that name no thing in a picture: the picture itself, places in it, amounts, and times. numpy only.

Whether a photo "supports" them is no question: *close* in "a close up of a cat" is nowhere to be seen.
"""

from __future__ import annotations

from collections.abc import Sequence

PLACES = frozenset("front back top bottom side middle center centre end".split())
_PICTURE = "picture photo photograph image snapshot shot closeup close-up close view scene background foreground"
_WHERE = "left right edge corner distance area place spot space air way direction position inside outside"
_HOW_MANY = "couple group bunch bunche pair variety assortment collection amount number kind type sort"
_WHEN = "day time night morning afternoon evening noon daytime nighttime moment summer winter"
_ANYTHING = "thing something anything everything nothing object item stuff"
NAME_NO_THING = PLACES | frozenset(f"{_PICTURE} {_WHERE} {_HOW_MANY} {_WHEN} {_ANYTHING}".split())
BEFORE_OF = frozenset("lot set row line piece part half rest series bit".split())  # "a parking lot", but "a lot of"


def names_thing(words: Sequence[str], at: int) -> bool:
    """Whether the noun at a place of a sentence, in one number or the other, names something that a photo shows.

    >>> [names_thing("a close up of a lot of cats".split(), at) for at in (1, 5, 7)]
    [False, False, True]
    """
    word = words[at].lower()
    forms = {word, word.removesuffix("s")}
    if forms & BEFORE_OF:
        return [other.lower() for other in words[at + 1 : at + 2]] != ["of"]
    return not forms & NAME_NO_THING
