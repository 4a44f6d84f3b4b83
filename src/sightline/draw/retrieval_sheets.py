"""Sheets that set captions beside photos: retrieval (VSRN, CL), stages of learning (R²M), several models (POS-SCAN).

Colour never says anything alone: right and wrong, and the judgements of words, differ in shape too.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from sightline.caption import Caption
from sightline.draw import canvas
from sightline.draw.attention_maps import attention_of
from sightline.draw.canvas import BAD, BESIDE, COLOURS, GAP, GOOD, LINE, SMALL, SOFT, Colour, Line, Photo, Sheet, Span
from sightline.draw.photo_boxes import Mark, draw_boxes
from sightline.errors import ConfigError, DataError
from sightline.scene import Array, Concept, Scene, as_box

_GREY: Colour = (150, 158, 170)  # of captions that are nearly right


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
    results: Sequence[FoundPhoto]


def caption_results(
    photo: Photo, results: Sequence[FoundCaption], attention: Photo | None = None, width: int = 960
) -> Image.Image:
    """VSRN's Fig. 3: a photo as query, its attention where given, and the captions it found, best first."""
    _refuse_nothing(results)
    page, left, top = Sheet(), _beside(width), 0
    for picture in (photo, attention):
        if picture is not None:
            top = page.photo(canvas.fit_photo(picture, left - 24), 0, top) + 8
    top = 0
    for number, result in enumerate(results, 1):
        page.words([Span(str(number), ink=SOFT)], left, top, 30)
        if result.correct:
            page.mark(True, left + 30, top)
        grey = result.similar and not result.correct
        words = canvas.spans(result.text, _GREY, "under") if grey else canvas.spans(result.text)
        top = page.words(words, left + 60, top, width - left - 60) + GAP
    return page.image()


def photo_results(query: str, results: Sequence[FoundPhoto], width: int = 960) -> Image.Image:
    """VSRN's Fig. 4: a sentence as query and the photos it found, best first, framed green or red: right or wrong."""
    page = Sheet()
    _photo_row(page, results, 0, page.words(canvas.spans(query), 0, 0, canvas.checked_width(width)) + GAP, width)
    return page.image()


def self_retrieval_sheet(photo: Photo, models: Sequence[SelfRetrieval], width: int = 960) -> Image.Image:
    """CL's Fig. 1: the photo, and for each model its caption and the photos it finds, the right one framed green."""
    if not models:
        raise ConfigError("no model said anything", fix="give the caption of at least one model")
    page, left, top = Sheet(), _beside(width), 0
    page.photo(canvas.fit_photo(photo, left - 24), 0, 0)
    for model in models:
        top = page.words(canvas.spans(model.model, SOFT), left, top, width - left, SMALL)
        top = page.words(canvas.spans(model.caption), left, top, width - left) + 6
        top = _photo_row(page, model.results, left, top, width - left) + 24
    return page.image()


def _beside(width: int) -> int:
    """The left edge of what stands beside a photo."""
    return canvas.checked_width(width, BESIDE) * 3 // 8 + 24


def _photo_row(page: Sheet, results: Sequence[FoundPhoto], left: int, top: int, width: int) -> int:
    _refuse_nothing(results)
    room = (width - GAP * (len(results) - 1)) // len(results)
    if room < 36:
        what = f"{len(results)} photos do not fit into {width} pixels"
        raise ConfigError(what, fix="show fewer, or choose a wider picture")
    ends = []
    for number, result in enumerate(results, 1):
        at = left + (number - 1) * (room + GAP)
        bottom = page.photo(canvas.fit_photo(result.photo, room), at, top, GOOD if result.correct else BAD)
        if result.attention is not None:
            bottom = page.photo(canvas.fit_photo(result.attention, room), at, bottom + 8)
        right = page.mark(result.correct, at, bottom + 4)
        ends.append(page.words([Span(str(number), ink=SOFT)], right + 4, bottom + 4, room))
    return max(ends)


def _refuse_nothing(results: Sequence[FoundCaption] | Sequence[FoundPhoto]) -> None:
    if not results:
        raise ConfigError("nothing was found", fix="give at least one caption or photo that was found")


# How words look that a `Judgement` names.
LOOKS: dict[str, tuple[Colour, Line]] = {
    "incorrect": (BAD, "through"),
    "irrelevant": ((139, 94, 43), "dashed"),
    "new": ((0, 94, 170), "under"),
    "adjectives": (GOOD, ""),
}


@dataclass(frozen=True)
class Judgement:
    """What a reader found out about words; the picture's colours and lines follow it."""

    incorrect: Collection[str] = ()  # concepts that are not in the photo (red, struck)
    irrelevant: Collection[str] = ()  # concepts that are there and do not matter (brown, dashed line below)
    new: Collection[str] = ()  # things that no detector named (blue, line below)
    adjectives: Collection[str] = ()  # adjectives that the language added (green)

    def __post_init__(self) -> None:
        named = [_bare(word) for kind in LOOKS for word in getattr(self, kind)]
        twice = sorted({word for word in named if named.count(word) > 1})
        if twice:
            raise ConfigError(f"“{twice[0]}” is named under two judgements", fix="leave it in one of them")

    def words(self, text: str) -> list[Span]:
        """The words of a text as they were judged."""
        looks = {_bare(word): LOOKS[kind] for kind in LOOKS for word in getattr(self, kind)}
        words = []
        for span in canvas.spans(text):
            ink, line = looks.get(_bare(span.text), (span.ink, span.line))
            words.append(Span(span.text, ink=ink, line=line))
        return words


def concept_stages(
    photo: Photo,
    concepts: Sequence[Concept],
    stages: Mapping[str, str],
    judgement: Judgement | None = None,
    width: int = 960,
) -> Image.Image:
    """R²M's Fig. 6: the photo, its concepts with their scores, and the caption of each stage, words judged."""
    judged, page = judgement or Judgement(), Sheet()
    left = _beside(width)
    room = width - left
    bottom = page.photo(canvas.fit_photo(photo, left - 24), 0, 0)
    title = canvas.spans("concepts" if concepts else "no concepts were detected", SOFT)
    top = page.words(title, left, 0, room, SMALL) + 4
    bar = min(120, room // 3)
    for concept in concepts:
        page.bar(width - bar - 44, top + 10, bar, 8, LINE)
        page.bar(width - bar - 44, top + 10, round(bar * min(1.0, max(0.0, concept.score))), 8, COLOURS[0])
        page.words([Span(f"{concept.score:.2f}", ink=SOFT)], width - 34, top + 4, 40, SMALL)
        top = page.words(judged.words(concept.name), left, top, room - bar - 60) + 4
    for name, caption in stages.items():
        top = page.words(canvas.spans(name, SOFT), left, top + 8, room, SMALL)
        top = page.words(judged.words(caption), left, top, room)
    if judgement is not None:
        key = [Span(kind, ink=ink, line=line) for kind, (ink, line) in LOOKS.items()]
        page.words(key, 0, max(top, bottom) + GAP, width, SMALL)
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
    (from 0) of the words to show. A noun has the same colour in every card. The bars below are its weights of the
    `most` regions that the card's nouns attend to, in the scene's order; the highest is a weight of one half or more.
    """
    if not captions:
        raise ConfigError("there is no model to draw", fix="give at least one caption")
    weights = {
        name: {i: _attention(caption, i, scene, name) for i in sorted(set(nouns.get(name, ())))}
        for name, caption in captions.items()
    }
    shown = dict.fromkeys(captions[name].words[i] for name, rows in weights.items() for i in rows)
    colours = {word: COLOURS[n % len(COLOURS)] for n, word in enumerate(shown)}
    page, top, end = Sheet(), 0, 0
    room = (canvas.checked_width(width) - GAP) // 2 if len(captions) > 1 else width
    fit = canvas.fit_photo(photo, room)
    for n, (name, caption) in enumerate(captions.items()):
        left = n % 2 * (room + GAP)
        top = end if n % 2 == 0 else top
        rows = weights[name]
        marks = [
            Mark(as_box(scene.boxes[row.argmax()]), caption.words[i], colours[caption.words[i]])
            for i, row in rows.items()
            if scene.boxes is not None and row.any()
        ]
        words = [Span(word, colours[word] if i in rows else None) for i, word in enumerate(caption.words)]
        bottom = page.words(canvas.spans(name), left, top, room) + 8
        bottom = page.photo(draw_boxes(fit, marks), left, bottom) + 8
        bottom = page.words(words, left + 4, bottom, room - 8) + 4
        peaks = np.max([*rows.values(), np.zeros(len(scene))], axis=0)
        regions = np.sort(np.argsort(-peaks, kind="stable")[:most])
        for i, row in rows.items():
            bottom = _weight_bars(page, caption.words[i], row[regions], left, bottom, room)
        end = max(end, bottom + 32)
    return page.image()


def _weight_bars(page: Sheet, word: str, weights: Array, left: int, top: int, width: int) -> int:
    """A word and a bar for each of its weights; the highest stands for one half or more."""
    bottom = page.words([Span(word, ink=SOFT)], left, top, width, SMALL)
    left += Span(word).width(SMALL) + 8
    for place, weight in enumerate(weights):
        height = max(1, round(SMALL * min(1.0, 2 * weight)))
        page.bar(left + 11 * place, bottom - 4 - height, 9, height, SOFT)
    return bottom


def _attention(caption: Caption, i: int, scene: Scene, name: str) -> Array:
    if not 0 <= i < len(caption.trace):
        raise DataError(f"noun {i} is no word with a trace", where=f"{name}: {caption.text}", fix="count words from 0")
    weights = attention_of(caption.words[i], caption.trace[i], scene, "regions")
    if weights is None:
        raise DataError(f"“{caption.words[i]}” has no attention over regions", where=caption.text)
    return weights
