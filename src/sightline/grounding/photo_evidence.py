"""What the eyes and the matcher have to say about nouns, whatever the captioner thinks of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.grounding.evidence import Evidence
from sightline.grounding.region_names import RegionNames, family_of
from sightline.grounding.synonyms import may_name_the_same, stand_in
from sightline.models.end_to_end import Reader
from sightline.models.matcher import Embedding, GlobalMatcher, Matcher
from sightline.scene import Array, Concept
from sightline.text import wordnet
from sightline.text.lemmas import lemma
from sightline.vision.imagenet_names import imagenet_chains

REMEMBERED = 20_000  # nouns whose vectors are kept
USUAL = 2  # senses of a noun that count
SUREST = 0.99  # no concept speaks more loudly than one of this score


class NounVectors:
    """The vectors of "a …" of a matcher, for nouns; those of a noun are made once."""

    def __init__(self, matcher: Reader[Matcher]) -> None:
        self.matcher = matcher
        self._known: dict[str, tuple[Tensor, Tensor] | None] = {}

    def of(self, nouns: Iterable[str], device: torch.device) -> dict[str, tuple[Tensor, Tensor]]:
        """(d,) of the sentence and (d,) of the noun in it, for each noun that the matcher knows or knows a word for."""
        nouns = set(nouns)
        if len(self._known) > REMEMBERED:
            self._known = {}
        known = self._known  # several batches may be at work at once: a noun is there with its vectors, or not there
        new = {noun: stand_in(noun, self.matcher.vocabulary) for noun in sorted(nouns - known.keys())}
        made: dict[str, tuple[Tensor, Tensor] | None] = dict.fromkeys(new)
        new = {noun: word for noun, word in new.items() if word in self.matcher.vocabulary}
        if new:
            texts = TextBatch.collate([["a", word] for word in new.values()], self.matcher.vocabulary).to(device)
            read = self.matcher.model.embed_texts(texts)
            words = read["words"][:, 2] if "words" in read else read["vector"]  # START, "a", the noun
            made.update(zip(new, zip(read["vector"], words, strict=True), strict=True))
        known.update(made)
        return {noun: found for noun in nouns if (found := known[noun]) is not None}


class PhotoEvidence:
    """What is known of the photos of a batch.

    Args:
        names: of regions, or None where vision is no detector.
        vectors: of nouns, or None without a matcher of whole photos.
        scenes: of the photos.
        images: what the matcher makes of them.
        concepts: of each photo.
    """

    def __init__(
        self,
        names: RegionNames | None,
        vectors: NounVectors | None,
        scenes: SceneBatch,
        images: Embedding | None,
        concepts: Sequence[Sequence[Concept]],
    ) -> None:
        self._names, self._vectors, self._images, self._concepts = names, vectors, images, concepts
        self._scenes = scenes

    @cached_property
    def _odds(self) -> list[Array]:
        """Of each photo (n, K), how likely each region has each name."""
        if self._names is None:
            return []
        mask = self._scenes.mask("regions").cpu().numpy()
        every = self._names.odds(self._scenes)
        return [odds[there] for odds, there in zip(every, mask, strict=True)]

    def of(self, photo: int, nouns: Sequence[tuple[str, str]]) -> list[Evidence]:
        """The evidence for nouns, each with the word before it; of what the captioner thinks, nothing is said."""
        cosines = self._cosines(photo, {noun for noun, _ in nouns})
        evidence = []
        for noun, before in nouns:
            named = unrivalled = math.nan
            if self._names is not None:
                named, unrivalled = self._names.of(self._odds[photo], noun, before)
            found, fits = cosines.get(noun, (math.nan, math.nan))
            concept = concept_odds(noun, self._concepts[photo])
            evidence.append(Evidence(named=named, found=found, fits=fits, unrivalled=unrivalled, concept=concept))
        return evidence

    def _cosines(self, photo: int, nouns: set[str]) -> dict[str, tuple[float, float]]:
        if self._vectors is None or self._images is None or not nouns:
            return {}
        whole = self._images["vector"][photo]
        known = self._vectors.of(nouns, whole.device)
        if not known:
            return {}
        fits = (torch.stack([sentence for sentence, _ in known.values()]) @ whole).float().tolist()
        found = [math.nan] * len(known)
        if "regions" in self._images:
            regions = self._images["regions"][photo][self._scenes.mask("regions")[photo]]
            if len(regions):
                words = torch.stack([word for _, word in known.values()])
                found = (words.float() @ regions.float().T).amax(1).tolist()
        return dict(zip(known, zip(found, fits, strict=True), strict=True))


def noun_vectors(matcher: Reader[Matcher] | None) -> NounVectors | None:
    """Of a matcher that gives whole photos vectors; None of any other."""
    return NounVectors(matcher) if matcher is not None and isinstance(matcher.model, GlobalMatcher) else None


def concept_odds(noun: str, concepts: Sequence[Concept]) -> float:
    """What the concepts of a photo say of a noun (`Evidence.concept`).

    >>> seen = [Concept("leopard", 0.8), Concept("tree", 0.6)]
    >>> [round(concept_odds(noun, seen), 2) for noun in ("animal", "tree", "giraffe", "sky")]
    [1.39, 0.41, -1.39, nan]
    """
    best = max((concept.score for concept in concepts if implies(concept.name, noun)), default=None)
    if best is not None:
        return _odds(best)
    worst = max((concept.score for concept in concepts if excludes(concept.name, noun)), default=None)
    return math.nan if worst is None else -_odds(worst)


@lru_cache(wordnet.REMEMBERED)
def implies(concept: str, noun: str) -> bool:
    """Whether what is called by the name of a concept is what the noun names: the same, or a kind of it."""
    base, chain = lemma(noun, "n"), imagenet_chains().get(concept, (concept,))
    if any(base in (name, name.rpartition(" ")[2]) for name in chain):
        return True
    own = frozenset(wordnet.senses(base, "n")[:USUAL])
    return any(not own.isdisjoint(wordnet.ancestors(sense)) for sense in _senses(concept))


@lru_cache(wordnet.REMEMBERED)
def excludes(concept: str, noun: str) -> bool:
    """Whether what is called by the name of a concept cannot be what the noun names: two animals, or two vehicles."""
    base = lemma(noun, "n")
    if (
        implies(concept, noun)
        or may_name_the_same(concept.rpartition(" ")[2], base)
        or may_name_the_same(concept, base)
    ):
        return False
    return _family(concept) is not None and _family(concept) == _family(base)


@lru_cache(wordnet.REMEMBERED)
def _family(name: str) -> str | None:
    family = imagenet_chains()[name][-1] if name in imagenet_chains() else family_of(name)
    return family if family in ("animal", "vehicle") and name != family else None


@lru_cache(wordnet.REMEMBERED)
def usual_kind(name: str) -> str:
    """What WordNet's lexicographers file the usual meaning of a noun under: animal, artifact, person, …; "" for none.

    >>> [usual_kind(name) for name in ("spotted cat", "people", "bench", "xyzzy")]
    ['animal', 'group', 'artifact', '']
    """
    return next((wordnet.lexfile(sense).removeprefix("noun.") for sense in _senses(lemma(name, "n"))), "")


@lru_cache(wordnet.REMEMBERED)
def is_thing(name: str) -> bool:
    """Whether the usual meaning of a noun is something people use, and no place.

    >>> [is_thing(name) for name in ("suitcase", "parking meter", "kitchen", "street", "dog")]
    [True, True, False, False, False]
    """
    return any(not _used().isdisjoint(wordnet.ancestors(sense)) for sense in _senses(lemma(name, "n"))[:1])


@lru_cache(1)
def _used() -> frozenset[int]:
    """What people use: the senses of these words that are artifacts."""
    senses = [sense for kind in ("instrumentality", "covering", "commodity") for sense in wordnet.senses(kind, "n")]
    return frozenset(sense for sense in senses if wordnet.lexfile(sense) == "noun.artifact")


def _senses(name: str) -> Sequence[int]:
    """The usual meanings of a name, or of its last word where WordNet does not have it whole."""
    return wordnet.senses(name, "n")[:USUAL] or wordnet.senses(lemma(name.rpartition(" ")[2], "n"), "n")[:USUAL]


def _odds(score: float) -> float:
    sure = min(max(score, 1 - SUREST), SUREST)
    return math.log(sure / (1 - sure))
