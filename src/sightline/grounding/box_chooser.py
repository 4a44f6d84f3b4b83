"""Where the words of a caption point: which box, or boxes, and how sure that is. numpy only.

A word's evidence is a share of 1 for each region: what the captioner looked at when it said the word, mixed with where
the matcher finds the word. It is weighed by how surely a region is a thing at all, and by how probably the detector
gives it the word's name. The best region gets the word. Its score is the share of all weighed evidence that it has
together with the regions that overlap it by half or more: boxes of one thing divide the evidence between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sightline.caption import Caption, WordTrace
from sightline.errors import ConfigError
from sightline.scene import Array, Box, box_iou

SAME = 0.5  # boxes of this IoU show the same thing
DOUBLE = 0.7  # boxes of this IoU are as good as one box: two words do not have both
# A plural's further boxes have at least this part of the first one's evidence, and overlap no box of the word by more
# than this IoU. In a sweep on Flickr8k's dev photos, plurals without a number: 48 % of people's boxes found, 55 % of
# ours right. 0.3 finds more (53 %, 52 % right) and has the better F1 by a point; fewer wrong boxes are preferred here.
FURTHER, APART = 0.4, 0.2


@dataclass(frozen=True)
class BoxChooser:
    """The rule's numbers.

    Attributes:
        matcher: the matcher's part of the evidence; the rest is the captioner's. 0 without a matcher.
        least: a word whose box has a smaller score than this points nowhere.
        objectness: evidence is multiplied by a region's score to this power. More than 1 would draw words to what
            catches the eye, whatever they name.
        name: and by the probability of the word's name there, to this power.
    """

    matcher: float = 0.5
    least: float = 0.15
    objectness: float = 1.0
    name: float = 0.5

    def __post_init__(self) -> None:
        for name in ("matcher", "least", "objectness", "name"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"`pointing.{name}` is {getattr(self, name)}", fix="give a number from 0 to 1")

    def point(
        self,
        caption: Caption,
        most: Sequence[int],
        boxes: Array,
        found: Array | None = None,
        *,
        scores: Array | None = None,
        named: Array | None = None,
        share: Callable[[int, int], bool] | None = None,
    ) -> Caption:
        """The caption with normalised boxes and a score for each word that passes.

        Args:
            caption: its words carry attention over regions (a captioner that looks at none has the matcher's alone).
            most: how many boxes each of its words may have.
            boxes: (n, 4) of the scene.
            found: (words, n) the matcher's weights of regions for each word; a row of zeros where it does not know it.
            scores: (n,) how sure the detector is of each box.
            named: (words, n) probabilities of each word's name; ones where the detector has no name for it.
            share: whether two words, by their places, may have one box. Without it, only the same word twice may.
        """
        if not len(boxes):
            return caption
        overlaps, weighed = _overlaps(boxes), dict[int, Array]()
        for at in np.flatnonzero(most).tolist():
            evidence = self._evidence(caption.trace[at], None if found is None else found[at])
            if evidence is not None:
                weighed[at] = self._weighed(evidence, scores, None if named is None else named[at])
        words = caption.words
        may_share = (lambda a, b: words[a] == words[b]) if share is None else share
        first = self._first(weighed, overlaps, may_share)
        trace = list(caption.trace)
        for at, best in first.items():
            others = list[int]()
            if most[at] > 1:
                held = [region for other, region in first.items() if other != at and not may_share(at, other)]
                others = _further(weighed[at], best, held, overlaps, most[at] - 1)
            trace[at] = replace(
                trace[at],
                box=_box(boxes[best]),
                score=min(1.0, _around(weighed[at], best, overlaps)),
                others=tuple(_box(boxes[region]) for region in others),
            )
        return replace(caption, trace=tuple(trace))

    def _evidence(self, word: WordTrace, found: Array | None) -> Array | None:
        """(n,) shares of 1, or None where nobody knows."""
        looked, told = _shares(word.regions), _shares(found)
        if looked is None or told is None:
            return told if looked is None else looked
        mixed: Array = (1 - self.matcher) * looked + self.matcher * told
        return mixed

    def _weighed(self, evidence: Array, scores: Array | None, named: Array | None) -> Array:
        """(n,) shares of 1: evidence × objectness × √P(name), by the usual powers."""
        weighed = evidence
        if scores is not None:
            weighed = weighed * scores**self.objectness
        if named is not None:
            weighed = weighed * named**self.name
        shares = _shares(weighed)
        return evidence if shares is None else shares

    def _first(
        self, weighed: dict[int, Array], overlaps: Array, may_share: Callable[[int, int], bool]
    ) -> dict[int, int]:
        """Each word's region, the surest word first; one that another word has is free only to words that may share."""
        chosen: dict[int, int] = {}
        for at in sorted(weighed, key=lambda at: -float(weighed[at].max())):
            free = weighed[at].copy()
            while free.any():
                best = int(free.argmax())
                held = [other for other, region in chosen.items() if overlaps[region, best] >= DOUBLE]
                if all(may_share(at, other) for other in held):
                    if _around(weighed[at], best, overlaps) >= self.least:
                        chosen[at] = best
                    break
                free[best] = 0
        return chosen


def _around(weighed: Array, region: int, overlaps: Array) -> float:
    """What a region has, with those that show the same thing."""
    return float(weighed[overlaps[region] >= SAME].sum())


def _further(weighed: Array, first: int, held: list[int], overlaps: Array, count: int) -> list[int]:
    """The next best regions of a word, at most `count`: apart from each other, and none that another word holds."""
    chosen = [first]
    for region in np.argsort(-weighed).tolist():
        if len(chosen) > count or weighed[region] < FURTHER * weighed[first]:
            break
        if (overlaps[region, chosen] <= APART).all() and (overlaps[region, held] < DOUBLE).all():
            chosen.append(region)
    return chosen[1:]


def _box(box: Array) -> Box:
    x1, y1, x2, y2 = box.tolist()
    return x1, y1, x2, y2


def _shares(weights: Array | None) -> Array | None:
    """Weights as shares of 1; None where there are none."""
    total = 0.0 if weights is None else float(weights.sum())
    return None if weights is None or not total > 0 else weights / total


def _overlaps(boxes: Array) -> Array:
    """(n, n) IoU; 1 with itself."""
    overlaps = box_iou(boxes, boxes)
    np.fill_diagonal(overlaps, 1)
    return overlaps
