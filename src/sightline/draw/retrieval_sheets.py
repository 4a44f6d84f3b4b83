"""Sheets that set captions beside photos: retrieval (VSRN, CL), stages of learning (R²M), several models (POS-SCAN).

Colour never says anything alone: right and wrong, and the judgements of words, differ in shape too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from sightline.caption import Caption
from sightline.draw.attention_maps import attention_of
from sightline.draw.canvas import (
    BAD,
    COLOURS,
    GAP,
    GOOD,
    INK,
    LINE,
    SOFT,
    Colour,
    Photo,
    checked_width,
    fit_photo,
    ink_on,
)
from sightline.draw.charts import BESIDE
from sightline.draw.figure import NAME, NOTE, Letters, Sheet, plain
from sightline.draw.photo_boxes import Mark, as_box, draw_boxes
from sightline.errors import ConfigError, DataError
from sightline.scene import Array, Concept, Scene
from sightline.vision.images import open_image

_MARKS = {True: Letters("✓", GOOD, bold=True), False: Letters("✗", BAD, bold=True)}
_GREY: Colour = (150, 158, 170)


@dataclass(frozen=True)
class FoundCaption:
    """A caption that was found: is it one of the photo's own, or does it mean nearly the same (grey)?"""

    text: str
    correct: bool
    similar: bool = False


@dataclass(frozen=True)
class FoundPhoto:
    """A photo that was found, and whether it is the right one; `attention`, where given, is shown below it."""

    photo: Photo
    correct: bool
    attention: Photo | None = None


@dataclass(frozen=True)
class SelfRetrieval:
    """What a model said of a photo, and the photos that its caption finds, best first."""

    model: str
    caption: str
    found: Sequence[FoundPhoto]


def caption_results(
    photo: Photo, found: Sequence[FoundCaption], attention: Photo | None = None, width: int = 960
) -> Image.Image:
    """VSRN's Fig. 3: a photo as query, its attention where given, and the captions it found, best first."""
    _refuse_nothing(found)
    page, left, top = Sheet(width), checked_width(width, BESIDE) * 3 // 8 + 24, 0.0
    for picture in (photo, attention):
        if picture is not None:
            top = page.photo(fit_photo(open_image(picture), left - 24), 0, top) + 8
    top = 0.0
    for number, caption in enumerate(found, 1):
        page.words([Letters(str(number), SOFT), *([_MARKS[True]] if caption.correct else [])], left, top, 60)
        grey = caption.similar and not caption.correct
        words = [one._replace(line="under") if grey else one for one in plain(caption.text, _GREY if grey else INK)]
        top = page.words(words, left + 60, top, width - left - 60) + GAP
    return page.image()


def photo_results(query: str, found: Sequence[FoundPhoto], width: int = 960) -> Image.Image:
    """VSRN's Fig. 4: a sentence as query and the photos it found, best first, framed green or red: right or wrong."""
    page = Sheet(width)
    _photo_row(page, found, 0, page.words(plain(query), 0, 0, checked_width(width)) + GAP, width)
    return page.image()


def self_retrieval_sheet(photo: Photo, said: Sequence[SelfRetrieval], width: int = 960) -> Image.Image:
    """CL's Fig. 1: the photo, and for each model its caption and the photos it finds, the right one framed green."""
    if not said:
        raise ConfigError("no model said anything", fix="give the caption of at least one model")
    page, left, top = Sheet(width), checked_width(width, BESIDE) * 3 // 8 + 24, 0.0
    page.photo(fit_photo(open_image(photo), left - 24), 0, 0)
    for one in said:
        top = page.words(plain(one.model, SOFT), left, top, width - left, NOTE)
        top = page.words(plain(one.caption), left, top, width - left) + 6
        top = _photo_row(page, one.found, left, top, width - left) + 24
    return page.image()


def _photo_row(page: Sheet, found: Sequence[FoundPhoto], left: float, top: float, width: int) -> float:
    _refuse_nothing(found)
    room = (width - GAP * (len(found) - 1)) // len(found)
    if room < 36:
        raise ConfigError(
            f"{len(found)} photos do not fit into {width} pixels", fix="show fewer, or choose a wider picture"
        )
    ends = []
    for number, one in enumerate(found, 1):
        at = left + (number - 1) * (room + GAP)
        bottom = page.photo(fit_photo(open_image(one.photo), room), at, top, GOOD if one.correct else BAD)
        if one.attention is not None:
            bottom = page.photo(fit_photo(open_image(one.attention), room), at, bottom + 8)
        ends.append(page.words([_MARKS[one.correct], Letters(str(number), SOFT)], at, bottom + 4, room))
    return max(ends)


def _refuse_nothing(found: Sequence[FoundCaption] | Sequence[FoundPhoto]) -> None:
    if not found:
        raise ConfigError("nothing was found", fix="give at least one caption or photo that was found")


_Line = Literal["", "under", "dashed", "through"]
LOOKS: dict[str, tuple[Colour, _Line]] = {
    "incorrect": (BAD, "through"),
    "irrelevant": ((139, 94, 43), "dashed"),
    "new": ((0, 94, 170), "under"),
    "adjectives": (GOOD, ""),
}


@dataclass(frozen=True)
class Judgement:
    """What a reader found out about words; the picture's colours and lines follow it.

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
        named = [_bare(word) for kind in LOOKS for word in getattr(self, kind)]
        twice = sorted({word for word in named if named.count(word) > 1})
        if twice:
            raise ConfigError(f"“{twice[0]}” is named under two judgements", fix="leave it in one of them")

    def letters(self, text: str) -> list[Letters]:
        kinds = {_bare(word): kind for kind in LOOKS for word in getattr(self, kind)}
        return [
            Letters(word, *LOOKS[kinds[_bare(word)]], bold=True) if _bare(word) in kinds else Letters(word)
            for word in text.split()
        ]


def concept_stages(
    photo: Photo,
    concepts: Sequence[Concept],
    stages: Mapping[str, str],
    judgement: Judgement | None = None,
    width: int = 960,
) -> Image.Image:
    """R²M's Fig. 6: the photo, its concepts with their scores, and the caption of each stage, words judged."""
    judged, page = judgement or Judgement(), Sheet(width)
    left = checked_width(width, BESIDE) * 2 // 5 + 24
    bottom, room = page.photo(fit_photo(open_image(photo), left - 24), 0, 0), width - left
    top = page.words(plain("concepts" if concepts else "no concepts were detected", SOFT), left, 0, room, NOTE) + 4
    for concept in concepts:
        bar, middle = min(120, room // 3), top + 14
        page.bar(width - bar - 44, middle - 4, bar, 8, LINE)
        page.bar(width - bar - 44, middle - 4, bar * min(1.0, max(0.0, concept.score)), 8, COLOURS[0])
        page.words([Letters(f"{concept.score:.2f}", SOFT)], width - 34, top + 4, 40, NOTE)
        top = page.words(judged.letters(concept.name), left, top, room - bar - 60) + 4
    for name, caption in stages.items():
        top = page.words(plain(name, SOFT), left, top + 8, room, NOTE)
        top = page.words(judged.letters(caption), left, top, room)
    if judgement is not None:
        key = [Letters(kind, *look, bold=True) for kind, look in LOOKS.items()]
        page.words(key, 0, max(top, bottom) + GAP, width, NOTE)
    return page.image()


def _bare(word: str) -> str:
    return word.lower().strip(".,;:!?\"'()")


def side_by_side(
    photo: Photo,
    scene: Scene,
    captions: Mapping[str, Caption],
    nouns: Mapping[str, Sequence[int]],
    most: int = 8,
    width: int = 1080,
) -> Image.Image:
    """POS-SCAN's Fig. 1 and 4: for each model the photo with the box each noun attends to most, and the caption.

    `captions` is model name to caption, with attention over the scene's regions; `nouns` is model name to the places
    (from 0) of the words to show. A noun has the same colour in every card. The steps below are its weights of the
    `most` regions that the card's nouns attend to, in the scene's order; the highest is a weight of one half or more.
    """
    if not captions:
        raise ConfigError("there is no model to draw", fix="give at least one caption")
    page, top, end = Sheet(width), 0.0, 0.0
    room = (checked_width(width) - GAP) // 2 if len(captions) > 1 else width
    fit, colours = fit_photo(open_image(photo), room), dict[str, Colour]()
    for n, (name, caption) in enumerate(captions.items()):
        left = n % 2 * (room + GAP)
        top = end if n % 2 == 0 else top
        weights = {i: _attention(caption, i, scene, name) for i in sorted(set(nouns.get(name, ())))}
        for i in weights:
            colours.setdefault(caption.words[i], COLOURS[len(colours) % len(COLOURS)])
        marks = [
            Mark(as_box(scene.boxes[row.argmax()]), caption.words[i], colours[caption.words[i]])
            for i, row in weights.items()
            if scene.boxes is not None and row.any()
        ]
        peak = np.max([*weights.values(), np.zeros(len(scene))], axis=0)
        kept = np.sort(np.argsort(-peak, kind="stable")[:most])
        below = page.words(plain(name, bold=True), left, top, room, NAME) + 8
        below = page.photo(draw_boxes(fit, marks), left, below) + 8
        words = [
            Letters(word, ink_on(colours[word]), fill=colours[word]) if i in weights else Letters(word)
            for i, word in enumerate(caption.words)
        ]
        below = page.words(words, left + 4, below, room - 8) + 4
        for i, row in weights.items():
            below = page.words(
                [Letters(caption.words[i], SOFT), Letters(steps(row[kept]), SOFT)], left, below, room, NOTE
            )
        end = max(end, below + 32)
    return page.image()


def steps(weights: Array) -> str:
    """Weights as a row of blocks; the highest stands for one half or more."""
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(16 * weight))] for weight in weights)


def _attention(caption: Caption, i: int, scene: Scene, name: str) -> Array:
    if not 0 <= i < len(caption.trace):
        raise DataError(f"noun {i} is no word with a trace", where=f"{name}: {caption.text}", fix="count words from 0")
    weights = attention_of(caption.words[i], caption.trace[i], scene, "regions")
    if weights is None:
        raise DataError(f"“{caption.words[i]}” has no attention over regions", where=caption.text)
    return np.asarray(weights)
