"""From concepts to captions (R²M, Fig. 6): what was detected, and what each stage of learning says."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from PIL import Image

from sightline.draw.canvas import (
    BAD,
    BESIDE,
    COLOURS,
    LINE,
    SOFT,
    Colour,
    Photo,
    blank,
    checked_width,
    column,
    fitted,
    rounded,
    row,
    sheet,
    wrapped,
)
from sightline.draw.text_layout import SMALL, Span, text_block, words_of
from sightline.errors import ConfigError
from sightline.scene import Concept
from sightline.vision.images import open_image

INCORRECT: Colour = BAD
IRRELEVANT: Colour = (139, 94, 43)
NEW: Colour = (0, 94, 170)
ADJECTIVE: Colour = (0, 128, 94)


@dataclass(frozen=True)
class Judgement:
    """What a reader found out about words; the picture's colours follow it.

    Attributes:
        incorrect: concepts that are not in the photo (red, struck).
        irrelevant: concepts that are there and do not matter (brown, dashed line below).
        new: things that no detector named (blue, line below).
        adjectives: adjectives that the language added (green).
    """

    incorrect: Collection[str] = ()
    irrelevant: Collection[str] = ()
    new: Collection[str] = ()
    adjectives: Collection[str] = ()

    def __post_init__(self) -> None:
        named = [
            _bare(word) for words in (self.incorrect, self.irrelevant, self.new, self.adjectives) for word in words
        ]
        twice = sorted({word for word in named if named.count(word) > 1})
        if twice:
            raise ConfigError(f"“{twice[0]}” is named under two judgements", fix="leave it in one of them")

    def span(self, word: str) -> Span:
        """The word as it is shown."""
        bare = _bare(word)
        if bare in map(_bare, self.incorrect):
            return Span(word, INCORRECT, bold=True, line="through")
        if bare in map(_bare, self.irrelevant):
            return Span(word, IRRELEVANT, bold=True, line="dashed")
        if bare in map(_bare, self.new):
            return Span(word, NEW, bold=True, line="under")
        return Span(word, ADJECTIVE, bold=True) if bare in map(_bare, self.adjectives) else Span(word)


def concept_stages(
    photo: Photo,
    concepts: Sequence[Concept],
    stages: Mapping[str, str],
    judgement: Judgement | None = None,
    width: int = 960,
) -> Image.Image:
    """The photo, its concepts with their scores, and the caption of each stage (name to caption), words judged.

    Without a judgement all words are ink.
    """
    judged = judgement or Judgement()
    fit = fitted(open_image(photo), checked_width(width, BESIDE) * 2 // 5)
    room = width - fit.width - 24
    listed = [_concept(concept, judged, room) for concept in concepts] or [_heading("none were detected", room)]
    told = [
        column([_heading(name, room), text_block([judged.span(word) for word in caption.split()], room)], 2)
        for name, caption in stages.items()
    ]
    key = [
        Span("incorrect", INCORRECT, bold=True, line="through"),
        Span("irrelevant", IRRELEVANT, bold=True, line="dashed"),
        Span("new", NEW, bold=True, line="under"),
        Span("adjective", ADJECTIVE, bold=True),
    ]
    legend = wrapped([text_block([span], width, SMALL) for span in key], width, 20)
    text = column([_heading("concepts", room), column(listed, 4), blank(1, 4), *told], 12)
    blocks = [row([fit, text], 24)]
    return sheet(*blocks, legend) if judgement is not None else sheet(*blocks)


def _concept(concept: Concept, judgement: Judgement, width: int) -> Image.Image:
    length = min(120, width // 3)
    room = width - length - 44 - 16
    name = text_block([judgement.span(word) for word in concept.name.split()], room)
    padded = blank(room, name.height)
    padded.paste(name)
    bar = blank(length, 8)
    rounded(bar, (0, 0, length, 8), LINE, 4)
    rounded(bar, (0, 0, round(length * min(1.0, max(0.0, concept.score))), 8), COLOURS[0], 4)
    return row([padded, bar, text_block([Span(f"{concept.score:.2f}", SOFT)], 44, SMALL, "end")], 8, "centre")


def _heading(text: str, width: int) -> Image.Image:
    return text_block(words_of(text, SOFT), width, SMALL)


def _bare(word: str) -> str:
    return word.lower().strip(".,;:!?\"'()")
