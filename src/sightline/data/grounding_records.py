"""What people annotated: which words of a sentence stand for which boxes of the photo. numpy-free currency."""

from __future__ import annotations

from dataclasses import dataclass

from sightline.scene import Box


@dataclass(frozen=True)
class GroundedWord:
    """A word of a sentence that names something in the picture.

    Attributes:
        index: the word's place in the sentence's tokens, from 0.
        label: its class, the lemma of a head noun ("dog").
        boxes: x1 y1 x2 y2 in pixels of the photo's original size; one thing may have several.
    """

    index: int
    label: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class GroundedSentence:
    """A sentence with its grounded words."""

    tokens: tuple[str, ...]
    words: tuple[GroundedWord, ...] = ()


@dataclass(frozen=True)
class GroundedPhoto:
    """The grounded sentences of one photo; `size` is the width and height the boxes refer to."""

    id: str
    sentences: tuple[GroundedSentence, ...]
    size: tuple[int, int] | None = None
    split: str | None = None


@dataclass(frozen=True)
class GroundedPrediction:
    """A class that a generated sentence mentions, and the box its word points at (pixels)."""

    index: int
    label: str
    box: Box
