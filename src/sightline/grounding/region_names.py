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
from sightline.text import wordnet
from sightline.text.lemmas import lemma
from sightline.text.vocabulary import Vocabulary
from sightline.vision.concept_names import Table, name_of, relations
from sightline.vision.detector import Detector
from sightline.vision.encoder import VisionModel


class RegionNames:
    """The names a detector knows."""

    def __init__(self, vision: Detector) -> None:
        self._vision, self._names = vision, Vocabulary(dict.fromkeys(vision.config.names))
        self._place = {name: at for at, name in enumerate(vision.config.names)}
        self._known: dict[tuple[str, str], int | None] = {}

    @cached_property
    def _relations(self) -> tuple[Table, Table]:
        """(K, K) whether a name is surely one of the columns' name too, and whether it is another of its family."""
        implied, undecided = relations(self._vision.config.names)
        family = np.array([family_of(name) for name in self._vision.config.names])
        same = (family[:, None] == family) & (family != "")
        return implied, same & ~(implied | implied.T | undecided | undecided.T)

    def odds(self, scenes: SceneBatch) -> Array:
        """(B, n, K) log-odds that each region has each name."""
        logits: Array = self._vision.naming(scenes.part("regions")).float().cpu().numpy()
        return logits

    def of(self, odds: Array, noun: str, before: str = "") -> tuple[float, float]:
        """The best log-odds that a region is what a noun names, after the word `before`: by this name or by one that
        says the same or more; and the same less those, above 0, that the region is another thing of the same family, or
        that any region is, where this one does not show it.

        Args:
            odds: (n, K) of the regions of one photo.
            noun: whatever it is; NaN where the detector has no name for it, not even for what it is a kind of.
            before: the word before it.
        """
        place = self._place_of(noun, before)
        if place is None or not len(odds):
            return math.nan, math.nan
        implied, rivals = self._relations
        own = odds[:, implied[:, place]].max(1)  # (n,)
        others = odds[:, rivals[place]].max(1, initial=0.0)
        others = np.where(own > 0, others, others.max())  # where nothing shows it, the whole photo is its rivals'
        return float(own.max()), float((own - others).max())

    def _place_of(self, noun: str, before: str) -> int | None:
        key = noun, before
        if key not in self._known:
            name = name_of([before, noun], self._place) or stand_in(noun, self._names)
            self._known[key] = self._place.get(name)
        return self._known[key]

    def at(self, odds: Array, boxes: Array, box: Box, least: float) -> list[str]:
        """What the region of a box is called with a probability of `least`, the surest first."""
        own = odds[int(np.abs(boxes - np.array(box)).sum(1).argmin())]
        names = self._vision.config.names
        return [names[at] for at in np.argsort(-own) if own[at] >= math.log(least / (1 - least))]


FAMILIES = ("vehicle", "furniture", "clothing", "building")  # and animals, food, persons, which WordNet calls so


@lru_cache(wordnet.REMEMBERED)
def family_of(name: str) -> str:
    """What a thing is one of, so that it is no other of these: an animal, food, a person, a vehicle, …; else "".

    >>> [family_of(name) for name in ("zebra", "giraffe", "couch", "sky")]
    ['animal', 'animal', 'furniture', '']
    """
    for sense in (wordnet.senses(name, "n") or wordnet.senses(lemma(name.rpartition(" ")[2], "n"), "n"))[:1]:
        kind = wordnet.lexfile(sense).removeprefix("noun.")
        if kind in ("animal", "food", "person"):
            return kind
        above = wordnet.ancestors(sense)
        return next((family for family in FAMILIES if wordnet.senses(family, "n")[0] in above), "")
    return ""


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
