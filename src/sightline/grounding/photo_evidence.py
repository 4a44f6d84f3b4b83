"""Evidence for nouns from the vision model and the matcher; the captioner has no part in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.grounding.evidence import Evidence
from sightline.grounding.noun_kinds import excludes, implies, stand_in
from sightline.grounding.region_names import RegionNames
from sightline.models.end_to_end import Reader
from sightline.models.matcher import Embedding, Matcher
from sightline.scene import Array, Box, Concept

CACHE_SIZE = 20_000  # nouns whose vectors are kept
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


class PhotoEvidence:
    """What vision and matcher know of the photos of a batch.

    Args:
        scenes: of the photos.
        images: what the matcher makes of them; None without a matcher.
        concepts: of each photo.
        names: of regions, or None where vision is no detector.
        vectors: of nouns, or None without a matcher of whole photos.
    """

    def __init__(
        self,
        scenes: SceneBatch,
        images: Embedding | None,
        concepts: Sequence[tuple[Concept, ...]],
        names: RegionNames | None,
        vectors: NounVectors | None,
    ) -> None:
        self.scenes, self.images, self.concepts = scenes, images, concepts
        self._names, self._vectors = names, vectors

    @cached_property
    def region_odds(self) -> list[Array]:
        """For each photo (n, K) log-odds that each region has each name; empty where vision is no detector."""
        return [] if self._names is None else self._names.odds(self.scenes)

    def of(self, photo: int, words: Sequence[str], nouns: Sequence[int]) -> list[Evidence]:
        """The evidence for nouns of a caption, by their places; what the captioner thinks of them is left open."""
        cosines = self._cosines(photo, {words[at] for at in nouns})
        evidence = []
        for at in nouns:
            name_odds = name_margin = math.nan
            if self._names is not None:
                before = words[at - 1] if at else ""
                name_odds, name_margin = self._names.of(self.region_odds[photo], words[at], before)
            region_cosine, photo_cosine = cosines.get(words[at], (math.nan, math.nan))
            evidence.append(
                Evidence(
                    name_odds=name_odds,
                    region_cosine=region_cosine,
                    photo_cosine=photo_cosine,
                    name_margin=name_margin,
                    concept_odds=concept_odds(words[at], self.concepts[photo]),
                )
            )
        return evidence

    def names_at(self, photo: int, box: Box, least: float) -> list[str]:
        """What the detector calls the region of a box with a probability of `least`, the surest first."""
        if self._names is None:
            return []
        boxes = self.scenes.part("boxes")[photo][self.scenes.mask("boxes")[photo]].float().cpu().numpy()
        return self._names.at(self.region_odds[photo], boxes, box, least)

    def _cosines(self, photo: int, nouns: set[str]) -> dict[str, tuple[float, float]]:
        """`Evidence.region_cosine` and `photo_cosine` of each noun that the matcher knows."""
        if self._vectors is None or self.images is None or not nouns:
            return {}
        image = self.images["vector"][photo]
        vectors = self._vectors.of(nouns, image.device)
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
