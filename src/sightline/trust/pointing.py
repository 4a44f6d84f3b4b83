"""Where the words of a caption point: which words get a box, which box, and how sure that is. numpy only.

A word's evidence is a share of 1 for each region: what the captioner looked at when it said the word, mixed with where
the matcher finds the word. Boxes of one thing overlap and divide its evidence between them, so a region counts with all
that overlap it by half or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sightline.caption import Caption, WordTrace
from sightline.errors import ConfigError
from sightline.scene import Array

SAME = 0.5  # boxes of this IoU count as boxes of the same thing
PLACES = frozenset("front back top bottom side middle center centre end".split())  # nouns that name no thing


@dataclass(frozen=True)
class Pointing:
    """The rule's numbers.

    Attributes:
        matcher: the matcher's part of the evidence; the rest is the captioner's. 0 without a matcher.
        least: a word whose best region has less evidence than this points nowhere.
    """

    matcher: float = 0.5
    least: float = 0.15

    def __post_init__(self) -> None:
        for name in ("matcher", "least"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"`pointing.{name}` is {getattr(self, name)}", fix="give a number from 0 to 1")

    def point(self, caption: Caption, nouns: Sequence[bool], boxes: Array, found: Array | None = None) -> Caption:
        """The caption with a box, normalised, and a score for each noun that passes.

        Args:
            caption: its words carry attention over regions (a captioner that looks at none has the matcher's alone).
            nouns: which of its words may point; `PLACES` never do.
            boxes: (n, 4) of the scene.
            found: (words, n) the matcher's weights of regions for each word; a row of zeros where it does not know it.
        """
        if not len(boxes):
            return caption
        same = (_overlaps(boxes) >= SAME).astype(np.float32)  # (n, n)
        trace = []
        for i, (word, noun) in enumerate(zip(caption.trace, nouns, strict=True)):
            points = noun and caption.words[i] not in PLACES
            evidence = self._evidence(word, None if found is None else found[i]) if points else None
            trace.append(word if evidence is None else self._pointed(word, evidence, boxes, same))
        return replace(caption, trace=tuple(trace))

    def _evidence(self, word: WordTrace, found: Array | None) -> Array | None:
        """(n,) shares of 1, or None where nobody knows."""
        looked, told = _shares(word.regions), _shares(found)
        if looked is None or told is None:
            return told if looked is None else looked
        mixed: Array = (1 - self.matcher) * looked + self.matcher * told
        return mixed

    def _pointed(self, word: WordTrace, evidence: Array, boxes: Array, same: Array) -> WordTrace:
        together = same @ evidence
        # Of regions that see the same, the one with most of its own.
        best = int(np.argmax(together + 1e-3 * evidence))
        score = min(1.0, float(together[best]))
        if score < self.least:
            return word
        x1, y1, x2, y2 = (float(v) for v in boxes[best])
        return replace(word, box=(x1, y1, x2, y2), score=score)


def _shares(weights: Array | None) -> Array | None:
    """Weights as shares of 1; None where there are none."""
    total = 0.0 if weights is None else float(weights.sum())
    return None if weights is None or not total > 0 else weights / total


def _overlaps(boxes: Array) -> Array:
    """(n, n) IoU; 1 with itself."""
    low = np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    both = np.clip(high - low, 0, None).prod(-1)
    size = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    overlaps: Array = both / np.maximum(size[:, None] + size - both, 1e-9)
    np.fill_diagonal(overlaps, 1)
    return overlaps
