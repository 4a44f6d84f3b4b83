"""The results of comparing a sentence with a photo: where its nouns are, and whether they are there. numpy only."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from sightline.caption import Caption, scale_box
from sightline.scene import Box


@dataclass(frozen=True, eq=False)
class Grounding(Caption):
    """A sentence whose nouns point at boxes of a photo: `trace[i].boxes`, normalised, and `trace[i].score`.

    The score is the probability that the photo shows such a thing, and that its box is right (`SupportModel`).

    Attributes:
        path: of the photo; "" where it came as pixels.
        sentence: as it was given; `words` are those the model reads in it.
        size: width and height of the photo in pixels, upright.
    """

    path: str = ""
    sentence: str = ""
    size: tuple[int, int] = (0, 0)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready form; boxes are in pixels of the upright photo."""
        words = self._words_json(self.size, 1)
        return {"path": self.path, "sentence": self.sentence, "size": list(self.size), "words": words}


class Evidence(NamedTuple):
    """What speaks for a noun: the larger a number, the more it does. NaN where a number is unknown.

    Attributes:
        log_prob: of the captioner saying it there, given the photo and the words before.
        log_prob_alone: of the captioner saying it after nothing but "a".
        log_rank: logarithm of its place in the captioner's vocabulary, whose first words are the most frequent. A rare
            word is never probable, and is not to be doubted for that.
        name_odds: log-odds that some region has its name, or a name that says the same or more.
        region_cosine: the largest of the noun with a region, by the matcher: in the words "a …", or in its caption.
        photo_cosine: of the words "a …" with the whole photo, by the matcher.
        name_margin: as `name_odds`, less the log-odds, as far as they are above 0, that this region is something else
            of the family: of a zebra called a giraffe, little is left.
        concept_odds: log-odds of the surest concept of the photo that is such a thing; with a minus, of the surest that
            cannot be one, such as a leopard where the noun is giraffe.
    """

    log_prob: float = math.nan
    log_prob_alone: float = math.nan
    log_rank: float = math.nan
    name_odds: float = math.nan
    region_cosine: float = math.nan
    photo_cosine: float = math.nan
    name_margin: float = math.nan
    concept_odds: float = math.nan


UNKNOWN = Evidence()


@dataclass(frozen=True)
class AuditedNoun:
    """A noun of a caption, and whether the photo supports it.

    Attributes:
        word: as the model reads it.
        index: its place in the caption, which is split at white space.
        support: the probability that the photo shows it.
        supported: whether that is enough.
        box: where it is, or would be; normalised. None where no model knows.
        share: of the evidence for where it is, what the box has.
        instead: names of what is seen there, for nouns that are not supported.
        evidence: what the support was made from.
        verdict: the support in words (`verdict_of`).
    """

    word: str
    index: int
    support: float
    supported: bool
    box: Box | None = None
    share: float | None = None
    instead: tuple[str, ...] = ()
    evidence: Evidence = UNKNOWN
    verdict: str = ""


def verdict_of(support: float, least: float) -> str:
    """What a support means where a noun needs `least`: the halves of either side of the threshold, in words.

    >>> [verdict_of(support, 0.8) for support in (0.95, 0.85, 0.6, 0.1)]
    ['the photo shows it', 'nothing contradicts it', 'little speaks for it', 'the photo does not show it']
    """
    if support >= least:
        return "the photo shows it" if support >= (1 + least) / 2 else "nothing contradicts it"
    return "little speaks for it" if support >= least / 2 else "the photo does not show it"


@dataclass(frozen=True)
class Audit:
    """A caption that someone wrote, and which of its nouns the photo does not support.

    Attributes:
        path: of the photo; "" where it came as pixels.
        caption: as it was given.
        size: width and height of the photo in pixels, upright.
        nouns: those that name things, in their order.
    """

    path: str
    caption: str
    size: tuple[int, int]
    nouns: tuple[AuditedNoun, ...]

    @property
    def flagged_nouns(self) -> tuple[AuditedNoun, ...]:
        """The nouns that are not supported."""
        return tuple(noun for noun in self.nouns if not noun.supported)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready form; boxes are in pixels of the upright photo."""
        nouns = [
            {
                "word": noun.word,
                "index": noun.index,
                "supported": noun.supported,
                "support": round(noun.support, 4),
                "verdict": noun.verdict,
                "box": scale_box(noun.box, self.size),
                "instead": list(noun.instead),
            }
            for noun in self.nouns
        ]
        photo = {"path": self.path, "caption": self.caption, "size": list(self.size)}
        return {**photo, "nouns": nouns, "flagged": len(self.flagged_nouns)}
