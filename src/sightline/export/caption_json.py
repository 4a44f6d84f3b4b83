"""Captions as JSON tells them (`PhotoCaption.to_json`), which is what every format here is written from. numpy only."""

from __future__ import annotations

from typing import Any

from sightline.caption import PhotoCaption, WordTrace
from sightline.scene import Box, Concept

CaptionJson = dict[str, Any]  # PhotoCaption.to_json()


def caption_of(told: CaptionJson) -> PhotoCaption:
    """The caption that `told` tells of; log-probabilities of words and attention are not in it."""
    size = (int(told["size"][0]), int(told["size"][1]))
    words = told["words"]
    return PhotoCaption(
        tuple(word["word"] for word in words),
        told["log_prob"],
        tuple(_trace(word, size) for word in words),
        told["path"],
        size,
        told["confidence"],
        told["low_confidence"],
        tuple(Concept(one["name"], one["score"], _normalised(one["box"], size)) for one in told["concepts"]),
    )


def sentence(caption: str) -> str:
    """A caption as people write it, which screen readers read best: with a capital and a full stop.

    >>> sentence("a man rides a horse")
    'A man rides a horse.'
    """
    return f"{caption[:1].upper()}{caption[1:]}." if caption else ""


def _trace(word: dict[str, Any], size: tuple[int, int]) -> WordTrace:
    further = word.get("boxes", [])[1:]  # captions of older versions have only `box`
    others = tuple(box for box in (_normalised(one, size) for one in further) if box is not None)
    return WordTrace(box=_normalised(word["box"], size), score=word["score"], others=others)


def _normalised(box: list[float] | None, size: tuple[int, int]) -> Box | None:
    if box is None:
        return None
    x1, y1, x2, y2 = (min(1.0, max(0.0, v / max(1, side))) for v, side in zip(box, (*size, *size), strict=True))
    return x1, y1, x2, y2
