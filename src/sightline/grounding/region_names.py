"""What the detector calls the regions of a photo, asked about a noun or about a box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
import torch.nn.functional as F

from sightline.batch import SceneBatch
from sightline.grounding.synonyms import stand_in
from sightline.scene import Array, Box
from sightline.text.vocabulary import Vocabulary
from sightline.vision.concept_names import Table, name_of, relations
from sightline.vision.detector import Detector
from sightline.vision.vision_models import VisionModel


class RegionNames:
    """The names a detector knows."""

    def __init__(self, vision: Detector) -> None:
        self._vision, self._names = vision, Vocabulary(dict.fromkeys(vision.config.names))
        self._place = {name: at for at, name in enumerate(vision.config.names)}

    @cached_property
    def _implied(self) -> Table:
        implied, _ = relations(self._vision.config.names)
        return implied

    def odds(self, scene: SceneBatch) -> Array:
        """(n, K) log-odds that each region of one photo has each name."""
        regions = scene.part("regions")[0][scene.mask("regions")[0]]
        logits: Array = self._vision.naming(regions).float().cpu().numpy()
        return logits

    def of(self, odds: Array, noun: str, before: str = "") -> float:
        """The best log-odds that a region is what a noun names, after the word `before`: by this name or by one that
        says the same or more. NaN where the detector has no name for it, not even for what it is a kind of.
        """
        name = name_of([before, noun], self._place) or stand_in(noun, self._names)
        if name not in self._place or not len(odds):
            return math.nan
        return float(odds[:, self._implied[:, self._place[name]]].max())

    def at(self, odds: Array, boxes: Array, box: Box, least: float) -> list[str]:
        """What the region of a box is called with a probability of `least`, the surest first."""
        own = odds[int(np.abs(boxes - np.array(box)).sum(1).argmin())]
        names = self._vision.config.names
        return [names[at] for at in np.argsort(-own) if own[at] >= math.log(least / (1 - least))]


def name_regions(
    vision: VisionModel, scenes: SceneBatch, photo: int, words: Sequence[str], wanted: Sequence[int]
) -> Array | None:
    """(words, n) probabilities that the regions of one photo have the names of the wanted words.

    All are 1 for a word that the detector has no name for. None where vision is no detector.
    """
    if not isinstance(vision, Detector):
        return None
    place = _places(vision.config.names)
    regions = scenes.part("regions")[photo][scenes.mask("regions")[photo]]
    found: Array = np.ones((len(words), len(regions)), np.float32)
    names = {at: name_of(words[max(0, at - 1) : at + 1], place) for at, count in enumerate(wanted) if count}
    rows = {at: place[name] for at, name in names.items() if name is not None}
    if rows:
        ids = list(rows.values())
        logits = F.linear(regions, vision.naming.weight[ids], vision.naming.bias[ids])
        found[list(rows)] = logits.float().sigmoid().T.cpu().numpy()
    return found


@lru_cache(4)
def _places(names: tuple[str, ...]) -> dict[str, int]:
    return {name: at for at, name in enumerate(names)}
