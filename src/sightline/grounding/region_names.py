"""What the detector calls the regions of a photo, asked about a noun or about a box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
import torch.nn.functional as F

from sightline.batch import SceneBatch
from sightline.grounding.noun_kinds import family_of, stand_in
from sightline.scene import Array, Box
from sightline.text.vocabulary import Vocabulary
from sightline.vision.concept_names import Table, name_of, relations
from sightline.vision.detector import Detector
from sightline.vision.encoder import VisionModel

CACHE_SIZE = 20_000  # nouns whose names are kept: a server is asked about any words


class RegionNames:
    """The names a detector knows."""

    def __init__(self, vision: Detector) -> None:
        self._vision, self._names = vision, Vocabulary(dict.fromkeys(vision.config.names))
        self._ids = _name_ids(vision.config.names)
        self._id_of_noun: dict[tuple[str, str], int | None] = {}

    @cached_property
    def _relations(self) -> tuple[Table, Table]:
        """(K, K) whether a name is surely one of the columns' name too, and whether it is another of its family."""
        implied, undecided = relations(self._vision.config.names)
        family = np.array([family_of(name) for name in self._vision.config.names])
        same = (family[:, None] == family) & (family != "")
        return implied, same & ~(implied | implied.T | undecided | undecided.T)

    def odds(self, scenes: SceneBatch) -> list[Array]:
        """(n, K) of each photo: log-odds that each of its regions has each name."""
        logits = self._vision.naming(scenes.part("regions")).float().cpu().numpy()
        masks = scenes.mask("regions").cpu().numpy()
        return [odds[mask] for odds, mask in zip(logits, masks, strict=True)]

    def of(self, odds: Array, noun: str, before: str = "") -> tuple[float, float]:
        """`Evidence.name_odds` and `name_margin` of a noun after the word `before`; `odds` are those of one photo.

        Both are NaN where the detector has no name for the noun, not even for what it is a kind of.
        """
        id = self._id_of(noun, before)
        if id is None or not len(odds):
            return math.nan, math.nan
        implied, rivals = self._relations
        named = odds[:, implied[:, id]].max(1)  # (n,)
        rival = odds[:, rivals[id]].max(1, initial=0.0)  # (n,)
        rival = np.where(named > 0, rival, rival.max())  # where nothing shows it, the whole photo is its rivals'
        return float(named.max()), float((named - rival).max())

    def _id_of(self, noun: str, before: str) -> int | None:
        if len(self._id_of_noun) >= CACHE_SIZE:
            self._id_of_noun = {}
        known, key = self._id_of_noun, (noun, before)  # several batches may be at work at once
        if key not in known:
            name = name_of([before, noun], self._ids) or stand_in(noun, self._names)
            known[key] = self._ids.get(name)
        return known[key]

    def at(self, odds: Array, boxes: Array, box: Box, least: float) -> list[str]:
        """What the region of a box is called with a probability of `least`, the surest first."""
        region = int(np.abs(boxes - np.array(box)).sum(1).argmin())
        names, least_odds = self._vision.config.names, math.log(least / (1 - least))
        return [names[id] for id in np.argsort(-odds[region]) if odds[region, id] >= least_odds]


def name_regions(
    vision: VisionModel, scenes: SceneBatch, photo: int, words: Sequence[str], wanted: Sequence[int]
) -> Array | None:
    """(words, n) probabilities that the regions of one photo have the names of the wanted words.

    All are 1 for a word that the detector has no name for. None where vision is no detector.
    """
    if not isinstance(vision, Detector):
        return None
    ids = _name_ids(vision.config.names)
    regions = scenes.part("regions")[photo][scenes.mask("regions")[photo]]
    probabilities: Array = np.ones((len(words), len(regions)), np.float32)
    names = {at: name_of(words[max(0, at - 1) : at + 1], ids) for at, count in enumerate(wanted) if count}
    id_at = {at: ids[name] for at, name in names.items() if name is not None}
    if id_at:
        rows = list(id_at.values())
        logits = F.linear(regions, vision.naming.weight[rows], vision.naming.bias[rows])
        probabilities[list(id_at)] = logits.float().sigmoid().T.cpu().numpy()
    return probabilities


@lru_cache(4)
def _name_ids(names: tuple[str, ...]) -> dict[str, int]:
    return {name: id for id, name in enumerate(names)}
