"""Evidence for nouns from the matcher and from the detector's names of regions; the captioner has no part in it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.grounding.evidence import Evidence
from sightline.grounding.nouns import excludes, family_of, implies, stand_in
from sightline.models.end_to_end import Reader
from sightline.models.matcher import Embedding, Matcher
from sightline.scene import Array, Box, Concept
from sightline.text.vocabulary import Vocabulary
from sightline.vision.concept_names import Table, name_of, relations
from sightline.vision.detector import Detector
from sightline.vision.encoder import VisionModel

CACHE_SIZE = 20_000  # nouns whose vectors and names are kept: a server is asked about any words
SUREST = 0.99  # no concept speaks more loudly than one of this score


class NounVectors:
    """The vectors of "a …" of a matcher of whole photos, for nouns; those of a noun are made once."""

    def __init__(self, matcher: Reader[Matcher]) -> None:
        self._matcher = matcher
        self._vectors: dict[str, tuple[Tensor, Tensor] | None] = {}

    def of(self, nouns: set[str], device: torch.device) -> dict[str, tuple[Tensor, Tensor]]:
        """(d,) of the sentence and (d,) of the noun in it, for each noun that the matcher knows or knows a word for."""
        if len(self._vectors) > CACHE_SIZE:
            self._vectors = {}
        vectors = self._vectors  # several batches may be at work at once: a noun is there with its vectors, or not
        vocabulary = self._matcher.vocabulary
        stand_ins = {noun: stand_in(noun, vocabulary) for noun in sorted(nouns - vectors.keys())}
        new: dict[str, tuple[Tensor, Tensor] | None] = dict.fromkeys(stand_ins)
        stand_ins = {noun: word for noun, word in stand_ins.items() if word in vocabulary}
        if stand_ins:
            texts = TextBatch.collate([["a", word] for word in stand_ins.values()], vocabulary).to(device)
            embedding = self._matcher.model.embed_texts(texts)
            sentences = embedding["vector"]
            words = embedding["words"][:, 2] if "words" in embedding else sentences  # START, "a", the noun
            new.update(zip(stand_ins, zip(sentences, words, strict=True), strict=True))
        vectors.update(new)
        return {noun: pair for noun in nouns if (pair := vectors[noun]) is not None}


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


@dataclass(eq=False)
class PhotoEvidence:
    """What vision and matcher know of the photos of a batch."""

    scenes: SceneBatch
    images: Embedding | None  # what the matcher makes of them; None without a matcher
    concepts: Sequence[tuple[Concept, ...]]  # of each photo
    region_names: RegionNames | None  # None where vision is no detector
    noun_vectors: NounVectors | None  # None without a matcher of whole photos

    @cached_property
    def region_odds(self) -> list[Array]:
        """For each photo (n, K) log-odds that each region has each name; empty where vision is no detector."""
        return [] if self.region_names is None else self.region_names.odds(self.scenes)

    def of(self, photo: int, words: Sequence[str], nouns: Sequence[int]) -> list[Evidence]:
        """The evidence for nouns of a caption, by their places; what the captioner thinks of them is left open."""
        cosines = self._cosines(photo, {words[at] for at in nouns})
        evidence = []
        for at in nouns:
            noun, before = words[at], words[at - 1] if at else ""
            known = Evidence(concept_odds=concept_odds(noun, self.concepts[photo]))
            if self.region_names is not None:
                odds, margin = self.region_names.of(self.region_odds[photo], noun, before)
                known = known._replace(name_odds=odds, name_margin=margin)
            if noun in cosines:
                best_region, whole_photo = cosines[noun]
                known = known._replace(region_cosine=best_region, photo_cosine=whole_photo)
            evidence.append(known)
        return evidence

    def names_at(self, photo: int, box: Box, least: float) -> list[str]:
        """What the detector calls the region of a box with a probability of `least`, the surest first."""
        if self.region_names is None:
            return []
        boxes = self.scenes.part("boxes")[photo][self.scenes.mask("boxes")[photo]].float().cpu().numpy()
        return self.region_names.at(self.region_odds[photo], boxes, box, least)

    def _cosines(self, photo: int, nouns: set[str]) -> dict[str, tuple[float, float]]:
        """`Evidence.region_cosine` and `photo_cosine` of each noun that the matcher knows."""
        if self.noun_vectors is None or self.images is None or not nouns:
            return {}
        image = self.images["vector"][photo]
        vectors = self.noun_vectors.of(nouns, image.device)
        if not vectors:
            return {}
        with_photo = (torch.stack([sentence for sentence, _ in vectors.values()]) @ image).float().tolist()
        with_region = self.region_cosines(photo, torch.stack([word for _, word in vectors.values()]))
        return dict(zip(vectors, zip(with_region, with_photo, strict=True), strict=True))

    def region_cosines(self, photo: int, words: Tensor) -> list[float]:
        """For each word (k, d) the cosine with the region that it fits best; NaN where the photo has no region."""
        if self.images is not None and "regions" in self.images:
            regions = self.images["regions"][photo][self.scenes.mask("regions")[photo]]
            if len(regions):
                cosines: list[float] = (words.float() @ regions.float().T).amax(1).tolist()
                return cosines
        return [math.nan] * len(words)


def concept_odds(noun: str, concepts: Sequence[Concept]) -> float:
    """What the concepts of a photo say of a noun (`Evidence.concept_odds`).

    >>> seen = [Concept("leopard", 0.8), Concept("tree", 0.6)]
    >>> [round(concept_odds(noun, seen), 2) for noun in ("animal", "tree", "giraffe", "sky")]
    [1.39, 0.41, -1.39, nan]
    """
    best = max((concept.score for concept in concepts if implies(concept.name, noun)), default=None)
    if best is not None:
        return _odds(best)
    worst = max((concept.score for concept in concepts if excludes(concept.name, noun)), default=None)
    return math.nan if worst is None else -_odds(worst)


def _odds(score: float) -> float:
    sure = min(max(score, 1 - SUREST), SUREST)
    return math.log(sure / (1 - sure))


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
