"""One caption of Flickr30k Entities: `[/EN#18/people A child] in [/EN#19/clothing a pink dress] .`"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sightline.errors import DataError

NOT_VISUAL = "0"  # the chain of phrases that name nothing one could point at

_OPENING = re.compile(r"\[/EN#(\d+)((?:/[^/\s\]]+)+)$")


@dataclass(frozen=True)
class Phrase:
    """A marked phrase. Phrases of one chain mean the same thing; `first` is the index of its first word."""

    chain: str
    types: tuple[str, ...]
    words: tuple[str, ...]
    first: int

    @property
    def visual(self) -> bool:
        """Whether it names something one could point at."""
        return self.chain != NOT_VISUAL


@dataclass(frozen=True)
class EntitiesSentence:
    """The plain tokens of a caption, and its phrases."""

    tokens: tuple[str, ...]
    phrases: tuple[Phrase, ...]


def parse_sentence(line: str, where: str) -> EntitiesSentence:
    """Split a marked caption; brackets that do not pair are a DataError."""
    tokens: list[str] = []
    phrases: list[Phrase] = []
    opened: re.Match[str] | None = None
    first = 0
    for part in line.split():
        if part.startswith("["):
            opening = _OPENING.match(part)
            if opening is None or opened is not None:
                problem = "opens before the phrase before it closes" if opening else "is not `[/EN#<chain>/<type>`"
                raise _malformed(f"{part!r} {problem}", where)
            opened, first = opening, len(tokens)
            continue
        closes = part.endswith("]")
        word = part[:-1] if closes else part
        if (closes and opened is None) or (not word and len(tokens) == first) or "[" in word:
            raise _malformed(f"{part!r} does not fit into a phrase", where)
        tokens += [word] if word else []
        if closes and opened is not None:
            phrases.append(Phrase(opened[1], tuple(opened[2][1:].split("/")), tuple(tokens[first:]), first))
            opened = None
    if opened is not None:
        raise _malformed(f"the phrase {opened[0]!r} is not closed", where)
    return EntitiesSentence(tuple(tokens), tuple(phrases))


def _malformed(what: str, where: str) -> DataError:
    return DataError(what, where=where, fix="a phrase is `[/EN#<chain>/<type> words]`")
