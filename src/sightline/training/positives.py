"""Which regions truly show a word: from grounding annotations to the tables that box supervision and accuracy use.

    pool = replace(pool, positives=word_overlaps(pool, {photo.id: photo for photo in annotated}))

A table holds overlaps rather than yes and no, so that every form of supervision can be made from it: a region is
positive where its IoU is above 0.5 (`POSITIVE`), the best one is the largest, and a softmax of them is soft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from sightline.data.records import GroundedPhoto, GroundedSentence
from sightline.errors import ConfigError, CountError, DataError
from sightline.scene import Array, Box, box_iou
from sightline.training.tensor_tables import Pool

POSITIVE = 0.5  # a region shows a thing if its IoU is strictly above
UNKNOWN = -1.0  # rows of words that nobody annotated
PHOTOS = 64  # whose scenes are read at once


def word_overlaps(pool: Pool, photos: Mapping[str, GroundedPhoto]) -> dict[int, Tensor]:
    """For each caption row of `pool` with annotated words, their overlap with its image's regions.

    Returns: by caption row (t, n) float32, t ids up to the last annotated word (START is the first): the IoU of each
    region with the nearest of the word's boxes, -1 in the rows of other words. Captions without any are left out.
    """
    if pool.scenes is None or pool.texts is None or pool.first is None:
        raise ConfigError("grounding needs photos with captions", fix="give data.captions and data.features")
    annotated = [row for row, id in enumerate(pool.ids) if id in photos]
    found: dict[int, Tensor] = {}
    for start in range(0, len(annotated), PHOTOS):
        rows = annotated[start : start + PHOTOS]
        scenes = pool.scenes.batch(torch.tensor(rows))
        boxes, mask = scenes.part("boxes", by="grounding").cpu(), scenes.part("region_mask", by="grounding").cpu()
        sizes = scenes.part("sizes", by="grounding").tolist()
        for row, own, real, size in zip(rows, boxes, mask, sizes, strict=True):
            photo = photos[pool.ids[row]]
            regions = own[real].double().numpy() * _scale(photo, size)  # (n, 4) pixels
            for caption in range(int(pool.first[row]), int(pool.first[row + 1])):
                table = _table(pool.texts.words[caption], photo.sentences, regions)
                if table is not None:
                    found[caption] = table
    return found


def overlaps(regions: Array, boxes: Sequence[Box]) -> Array:
    """(n,) IoU of regions (n, 4) with the nearest of `boxes`, in pixels, borders counted (the +1 convention)."""
    nearest: Array = box_iou(np.asarray(regions, np.float64), np.asarray(boxes, np.float64), border=1).max(1)
    return nearest


def align(words: Sequence[str], tokens: Sequence[str]) -> list[int] | None:
    """For each of `tokens` the place in `words` that holds it, -1 where none does: two splits of one sentence.

    They are compared by letters and digits alone, whatever the case, so that punctuation may be kept, dropped or glued;
    `words` may be cut at its end. A token that is spread over several words belongs to the one with most of it. None
    where the sentences differ.

    >>> align(["a", "tshirt", "is", "hung"], ["A", "T-shirt", "is", "hung", "up", "."])
    [0, 1, 2, 3, -1, -1]
    """
    ours, theirs = [letters(word) for word in words], [letters(token) for token in tokens]
    if not "".join(theirs).startswith("".join(ours)):
        return None
    holder = [place for place, word in enumerate(ours) for _ in word]  # of each character
    starts = accumulate(map(len, theirs), initial=0)
    held = [holder[start : start + len(token)] for start, token in zip(starts, theirs, strict=False)]
    return [max(places, key=places.count) if places else -1 for places in held]


@lru_cache(maxsize=1 << 16)
def letters(word: str) -> str:
    """The letters and digits of a text, in lower case."""
    return "".join(character for character in word.lower() if character.isalnum())


def _scale(photo: GroundedPhoto, size: Sequence[int]) -> Array:
    """What normalised boxes are multiplied by: the annotation's own size, else the scene's."""
    width, height = photo.size or size
    if width <= 0 or height <= 0:
        raise DataError(
            "its size in pixels is unknown",
            where=f"image {photo.id}",
            fix="give annotations or features that hold the photo's original size",
        )
    return np.array([width, height, width, height], np.float64)


def _table(words: Sequence[str], sentences: Sequence[GroundedSentence], regions: Array) -> Tensor | None:
    """(t, n) overlaps of a caption's words; None if it is none of the sentences, or its annotated words are cut off.

    Sentences are found by what they say: in files of the same photos their order differs.
    """
    fits = ((sentence, align(words, sentence.tokens)) for sentence in sentences)
    sentence, places = next(((s, p) for s, p in fits if p is not None), (None, None))
    if sentence is None or places is None:
        return None
    grounded: dict[int, Array] = {}
    for word in sentence.words:
        if not 0 <= word.index < len(places):
            raise CountError(f"word {word.index} is annotated, of {len(places)}", where=" ".join(sentence.tokens))
        place = places[word.index]
        if place >= 0 and word.boxes:
            best = overlaps(regions, word.boxes)
            grounded[place] = np.maximum(grounded.get(place, best), best)  # two annotated tokens may be in one word
    if not grounded:
        return None
    table = torch.full((max(grounded) + 2, len(regions)), UNKNOWN)
    for place, values in grounded.items():
        table[place + 1] = torch.from_numpy(values)
    return table
