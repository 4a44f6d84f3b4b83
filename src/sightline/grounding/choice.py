"""Which caption of a photo is chosen: by how likely it is, how well it fits the photo, and whether its nouns are there.

The score of a caption is

    log p(caption | photo) + fit · cosine(caption, photo) − doubt · Σ over its nouns of (1 − support)
        + WORD · (its words − PHRASE · Σ over its nouns of (1 − support))

with the matcher's cosine, and with a support (`SupportModel`) of which the captioner itself is no part: it is always
sure of what it says. The last term makes up for each word costing likelihood, but for words that come with a noun
which is not there. Candidates are the captions of the beam. Where the best has a noun of little support, there are
more: its own beginnings, which say less, and a second beam in which words cost what they are doubted. At last, a noun
may give its place to the name of a concept that is surer than it, or to a word for its kind: "an animal"; a landscape
is said without the animals and things that nothing supports: "a view of a lake"; and no caption ends in what nothing
supports: "a snake", not "a snake on top of a table".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from sightline.batch import TextBatch
from sightline.decoding.decode import caption_words, decode
from sightline.decoding.decode_result import DecodeResult
from sightline.decoding.rules import CAREFUL, Rules
from sightline.decoding.strategies import Beam
from sightline.errors import ConfigError
from sightline.grounding.calibration import Signs, SupportModel
from sightline.grounding.evidence import Evidence
from sightline.grounding.noun_scores import Grounder
from sightline.grounding.nouns import box_counts, concept_kind, excludes, family_of, implies, is_one_name, noun_tags
from sightline.grounding.photo_evidence import PhotoEvidence
from sightline.grounding.wording import (
    Words,
    beginnings,
    is_alone,
    mentions,
    place_alone,
    replaceable,
    reword,
    with_noun,
    with_true_colours,
    without_last_phrase,
)
from sightline.models.captioner import Memory, select
from sightline.models.matcher import Embedding, GlobalMatcher
from sightline.photo import Pixels
from sightline.scene import Concept
from sightline.text.grammar import noun_forms
from sightline.text.lemmas import lemma
from sightline.vision.concept_names import class_names, imagenet_chains
from sightline.vision.photo_colours import colour_spread

# What a word is worth, in nats, and how many words come with a noun ("on a table"), which are worth nothing where it is
# not there. On 1,000 of COCO's val photos and 500 of Flickr8k's dev photos, beams of 5 have a CIDEr-D of 115.5 and 53.5
# with it and 114.4 and 53.3 without (of 3: 114.5, 50.9 and 113.6, 51.0), at as few captions with unsupported nouns. On
# all test photos a beam of 5 with it has 110.4 and 55.8, one of 3 without 109.9 and 55.1.
WORD, PHRASE = 0.5, 3.0
DEAR = 8.0  # what a word costs in a second beam that is not supported at all, in nats
SURE = 0.35  # a concept of the whole photo takes the place of a noun from this score on
SURE_THING = 0.5  # the same, if it is no animal
SURE_REGION = 0.8  # and one of a region
# What a caption says is in a landscape is left out if it is less probable than `UNLIKELY`, and all else in the caption
# more than `LIKELY`. Of 150 captions of landscapes of two public collections 19 lose an animal or a thing so, of 1,200
# of COCO's val photos none; with 0.5, or with the probability of the landscape, those lose five that are there.
UNLIKELY, LIKELY = 0.4, 0.5
# A caption does not end in what is less probable than `IMPROBABLE`, nor in a room, which says next to nothing, that is
# less probable than `UNLIKELY`. What the captioner is sure of, by its log-probability, is mostly there, and so is an
# ending with which the caption fits the photo better, by the matcher's cosine. Of 2,000 photos of a public collection
# some 75 captions end sooner so, of 2,000 of COCO's val photos 5, of 1,000 of Flickr8k's dev photos 4. COCO's captions
# lose 0.01 of CIDEr-D; without the last two conditions 0.2, and with 0.3 instead of 0.2 then 0.8.
IMPROBABLE, CERTAIN, BETTER = 0.2, -2.0, 0.03
KINDS = ("animal", "vehicle", "building", "food")  # words that say less, of families of things


@dataclass(frozen=True)
class Choice:
    """How captions are chosen; by default by likelihood and fit alone (`Bundle.fit`)."""

    doubt: float = 0.0  # what a noun costs that is surely not there, in nats
    shorten: float = 0.0  # where a noun of the best caption has less support, its beginnings are candidates too
    second_look: float = 0.0  # where one has less support than this, so are the captions of a second beam
    swap: float = 2.0  # a concept replaces a noun if its score is above the noun's support by this; 2 is never
    # A word for its kind replaces it if its own support is above the noun's by this. Where that is never, neither are
    # landscapes said alone.
    vague: float = 2.0
    support: SupportModel = field(default_factory=SupportModel)  # of nouns, from evidence that is not the captioner's

    def __post_init__(self) -> None:
        for name in ("doubt", "shorten", "second_look", "swap", "vague"):
            if not math.isfinite(getattr(self, name)):
                raise ConfigError(f"`{name}` is {getattr(self, name)}", fix="fit it again")


@dataclass(frozen=True, eq=False)
class EncodedPhotos:
    """What the models make of a batch of photos: the captioner, and vision and matcher."""

    memory: Memory
    evidence: PhotoEvidence
    pixels: Sequence[Pixels] = ()  # none where scenes came without their photos


@dataclass(frozen=True)
class Candidate:
    """A caption that a photo may have."""

    words: Words
    score: float  # by which the captioner ranked it
    log_prob: float  # of words and END
    cosine: float = math.nan  # with the photo, by the matcher; NaN without one
    nouns: tuple[int, ...] = ()  # places of those that name a thing
    support: tuple[float, ...] = ()  # of each of them
    evidence: tuple[Evidence, ...] = ()  # of each of them
    origin: str = "beam"  # or beginning, second, swap, place, vague, ending
    # The caption in which a noun was replaced. How likely the captioner finds the new one tells nothing.
    instead_of: Candidate | None = None
    left_out: float = 1.0  # the least support of the caption that this one ends sooner than

    def total(self, fit: float, doubt: float) -> float:
        fitting = 0.0 if math.isnan(self.cosine) else fit * self.cosine
        missing = sum(1 - support for support in self.support)
        worth = WORD * (len(self.words) - PHRASE * missing) if doubt else 0.0  # without a fit, support tells nothing
        return self.score + fitting - doubt * missing + worth

    @property
    def least(self) -> float:
        """The support of the noun with the least; 1 without nouns."""
        return min(self.support, default=1.0)


class CaptionChooser:
    """Chooses among the captions of a batch of photos; `fit` is what the cosine with the photo counts."""

    def __init__(self, grounder: Grounder, choice: Choice, fit: float) -> None:
        self.choice, self.fit = choice, fit
        self._captioner = grounder.captioner
        self._vocabulary = grounder.bundle.captioner.vocabulary
        self._matcher = grounder.bundle.matcher

    def choose(self, photos: EncodedPhotos, decoded: DecodeResult, rules: Rules) -> list[Candidate]:
        """The caption of each photo, of those that were decoded and those that say less."""
        best = [self.best(candidates) for candidates in self.candidates(photos, decoded, rules)]
        if _names_words(rules) or min(self.choice.swap, self.choice.vague) > 1:
            return best
        changes: list[tuple[int, Words, str]] = []
        for photo, candidate in enumerate(best):
            for words, origin, gain in self.other_nouns(candidate, photo, photos.evidence):
                needed = {"swap": self.choice.swap, "vague": self.choice.vague}.get(origin, 0.0)
                if gain > needed and self._is_sayable(words, rules):
                    changes.append((photo, words, origin))
                    break
        for (photo, _, _), candidate in zip(changes, self._score(changes, photos), strict=True):
            best[photo] = replace(candidate, instead_of=best[photo])
        return self._reword(self._end_sooner(best, photos, rules), photos, rules)

    def _is_sayable(self, words: Words, rules: Rules) -> bool:
        return rules.min_words <= len(words) <= rules.max_words and all(word in self._vocabulary for word in words)

    def _end_sooner(self, best: list[Candidate], photos: EncodedPhotos, rules: Rules) -> list[Candidate]:
        """The captions without the last of what they say, as long as nothing supports that."""
        changes: list[tuple[int, Words, str]] = []
        for photo, candidate in enumerate(best):
            if candidate.log_prob >= CERTAIN:
                continue
            shorter = words = candidate.words
            while (rest := without_last_phrase(words, noun_tags([words])[0])) is not None:
                least = UNLIKELY if words[-1] == "room" else IMPROBABLE
                if self._alone(photos.evidence, photo, words, len(words) - 1) >= least:
                    break
                words = rest
                if self._is_sayable(words, rules):
                    shorter = words
            if shorter != candidate.words:
                changes.append((photo, shorter, "ending"))
        for (photo, _, _), candidate in zip(changes, self._score(changes, photos), strict=True):
            before = best[photo]
            if not candidate.cosine < before.cosine - BETTER:  # neither is known without a matcher
                best[photo] = replace(candidate, instead_of=before.instead_of or before, left_out=before.least)
        return best

    def _alone(self, evidence: PhotoEvidence, photo: int, words: Words, at: int) -> float:
        """The support of a noun, or of its kind, asked for alone.

        In its caption, the vector of a noun knows the words around it: a bird on a mountain is found where the
        mountain is.
        """
        kinds = [kind for kind in KINDS if kind == family_of(words[at]) != words[at]]
        known = evidence.of(photo, words, [at]) + evidence.of(photo, kinds, range(len(kinds)))
        return float(self.choice.support.support(known, [words[at], *kinds]).max())

    def _reword(self, best: list[Candidate], photos: EncodedPhotos, rules: Rules) -> list[Candidate]:
        """The captions as people would word them, where the captioner knows the words and there is room for them."""
        most = rules.max_words if rules.whole else None
        spreads = [colour_spread(pixels) for pixels in photos.pixels] or [math.nan] * len(best)
        changes: list[tuple[int, Words, str]] = []
        for photo, (candidate, spread) in enumerate(zip(best, spreads, strict=True)):
            drafts = (reword(words, most) for words in (with_true_colours(candidate.words, spread), candidate.words))
            words = next((draft for draft in drafts if self._is_sayable(draft, rules)), candidate.words)
            if words != candidate.words:
                changes.append((photo, words, candidate.origin))
        for (photo, _, _), candidate in zip(changes, self._score(changes, photos), strict=True):
            before = best[photo]
            best[photo] = replace(candidate, instead_of=before.instead_of or before, left_out=before.left_out)
        return best

    def best(self, candidates: Sequence[Candidate]) -> Candidate:
        return max(candidates, key=lambda candidate: candidate.total(self.fit, self.choice.doubt))

    def candidates(self, photos: EncodedPhotos, decoded: DecodeResult, rules: Rules) -> list[list[Candidate]]:
        """All captions that are weighed for each photo."""
        candidates = self._decoded(decoded, range(len(decoded.words)), photos, "beam")
        if _names_words(rules):
            return candidates
        least, beam = [self.best(own).least for own in candidates], decoded.words.shape[1]
        doubtful = [photo for photo, support in enumerate(least) if support < self.choice.second_look]
        if doubtful and beam > 1:
            self._look_again(candidates, doubtful, photos, rules, beam)
        doubtful = [photo for photo, support in enumerate(least) if support < self.choice.shorten]
        if doubtful:
            self._say_less(candidates, doubtful, photos, rules)
        return [[one for one in own if not is_alone(one.words)] or own for own in candidates]

    def _say_less(
        self, candidates: list[list[Candidate]], doubtful: Sequence[int], photos: EncodedPhotos, rules: Rules
    ) -> None:
        """Add the beginnings of the best captions of the doubtful photos."""
        best = [self.best(candidates[photo]).words for photo in doubtful]
        shorter = [
            (photo, beginning, "beginning")
            for photo, words, tags in zip(doubtful, best, noun_tags(best), strict=True)
            for beginning in beginnings(words, tags)
            if len(beginning) >= rules.min_words
        ]
        for (photo, _, _), candidate in zip(shorter, self._score(shorter, photos), strict=True):
            candidates[photo].append(candidate)

    def _look_again(
        self, candidates: list[list[Candidate]], doubtful: list[int], photos: EncodedPhotos, rules: Rules, beam: int
    ) -> None:
        """Add a second beam of the doubtful photos, in which the nouns that were said cost what they are doubted."""
        rows = torch.tensor(doubtful, device=next(iter(photos.memory.values())).device)
        bias = torch.zeros(len(doubtful), len(self._vocabulary), device=rows.device)
        for row, photo in enumerate(doubtful):
            for noun, support in _supports(candidates[photo]).items():
                ids = [self._vocabulary.id(form) for form in noun_forms(noun) or (noun,) if form in self._vocabulary]
                bias[row, ids] = -DEAR * (1 - support)
        memory, strategy = select(photos.memory, rows), Beam(beam, keep=beam)
        decoded = decode(self._captioner, memory, strategy, rules, self._vocabulary, bias)
        for photo, more in zip(doubtful, self._decoded(decoded, doubtful, photos, "second"), strict=True):
            known = {candidate.words for candidate in candidates[photo]}
            candidates[photo] += [replace(new, score=new.log_prob) for new in more if new.words not in known]

    def _decoded(
        self, decoded: DecodeResult, rows: Sequence[int], photos: EncodedPhotos, origin: str
    ) -> list[list[Candidate]]:
        """The captions of each photo that was decoded; `rows` are the places of these photos in the batch."""
        words = caption_words(decoded, self._vocabulary)
        scores, log_probs = decoded.scores.tolist(), decoded.log_probs.tolist()
        drafts = [
            (photo, Candidate(words[row][rank], scores[row][rank], log_probs[row][rank], origin=origin))
            for row, photo in enumerate(rows)
            for rank in range(len(words[row]))
            if log_probs[row][rank] > -math.inf
        ]
        candidates: dict[int, list[Candidate]] = {photo: [] for photo in rows}
        for (photo, _), candidate in zip(drafts, self._weigh(drafts, photos.evidence), strict=True):
            candidates[photo].append(candidate)
        return list(candidates.values())

    def _score(self, captions: Sequence[tuple[int, Words, str]], photos: EncodedPhotos) -> list[Candidate]:
        """Captions that no beam gave (photo, words, origin), with their likelihood."""
        if not captions:
            return []
        rows = torch.tensor([photo for photo, _, _ in captions], device=next(iter(photos.memory.values())).device)
        ids = TextBatch.collate([words for _, words, _ in captions], self._vocabulary).ids.to(rows.device)
        log_probs = self._captioner.log_prob(select(photos.memory, rows), ids).tolist()
        drafts = [
            (photo, Candidate(words, log_prob, log_prob, origin=origin))
            for (photo, words, origin), log_prob in zip(captions, log_probs, strict=True)
        ]
        return self._weigh(drafts, photos.evidence)

    def _weigh(self, drafts: Sequence[tuple[int, Candidate]], evidence: PhotoEvidence) -> list[Candidate]:
        """Captions, each of the photo at a place of the batch, with their cosine, and their nouns' support."""
        all_words = [draft.words for _, draft in drafts]
        texts = self._embed(all_words, evidence)
        candidates = []
        for row, ((photo, draft), tags) in enumerate(zip(drafts, noun_tags(all_words), strict=True)):
            nouns = [at for at, count in enumerate(box_counts(draft.words, tags)) if count]
            known, cosine = evidence.of(photo, draft.words, nouns), math.nan
            if texts is not None and evidence.images is not None:
                cosine = float(texts["vector"][row] @ evidence.images["vector"][photo])
                if nouns and "words" in texts:
                    states = texts["words"][row, [at + 1 for at in nouns]]  # START is first
                    cosines = evidence.region_cosines(photo, states)
                    known = [one._replace(region_cosine=value) for one, value in zip(known, cosines, strict=True)]
            candidates.append(replace(draft, cosine=cosine, nouns=tuple(nouns), evidence=tuple(known)))
        every = [one for candidate in candidates for one in candidate.evidence]
        names = [candidate.words[at] for candidate in candidates for at in candidate.nouns]
        supports = iter(self.choice.support.support(every, names).tolist())
        return [replace(one, support=tuple(itertools.islice(supports, len(one.nouns)))) for one in candidates]

    def _embed(self, texts: Sequence[Words], evidence: PhotoEvidence) -> Embedding | None:
        """What the matcher makes of captions; None without a matcher of whole photos."""
        matcher = self._matcher
        if matcher is None or evidence.images is None or not isinstance(matcher.model, GlobalMatcher):
            return None
        batch = TextBatch.collate(texts, matcher.vocabulary).to(evidence.images["vector"].device)
        return matcher.model.embed_texts(batch)

    def other_nouns(
        self, candidate: Candidate, photo: int, evidence: PhotoEvidence
    ) -> Iterator[tuple[Words, str, float]]:
        """The caption with another word for a noun, where that came from, and by how much more it is supported.

        Names of concepts come first, the surest one first; then a landscape alone, and words for kinds of things.
        """
        words, support = candidate.words, dict(zip(candidate.nouns, candidate.support, strict=True))
        for concept in sorted(evidence.concepts[photo], key=lambda concept: -concept.score):
            if not is_sure(concept) or mentions(words, concept.name):
                continue
            if concept_kind(concept.name) != "animal" and (concept.box is not None or concept.score < SURE_THING):
                continue  # many things are in a photo, and those that a caption names are mostly there
            if places := replaceable(words, candidate.nouns, concept.name):
                left = {at: beside(concept, words[at], support[at]) for at in places}
                at = min(left, key=left.__getitem__)
                yield with_noun(words, at, concept.name), "swap", concept.score - left[at]
        if self.choice.vague <= 1 and (place := self._place_alone(candidate, photo, evidence)) is not None:
            yield place
        if support:
            at = min(support, key=support.__getitem__)
            kind = family_of(words[at])
            if kind in KINDS and kind != words[at] and not mentions([*words[:at], *words[at + 1 :]], kind):
                by_kind = self.choice.support.support(evidence.of(photo, [kind], [0]), [kind])
                yield with_noun(words, at, kind), "vague", float(by_kind[0]) - support[at]

    def _place_alone(
        self, candidate: Candidate, photo: int, evidence: PhotoEvidence
    ) -> tuple[Words, str, float] | None:
        """The caption of a landscape without what is said to be in it, and by how much that is too little supported."""
        words, found = candidate.words, place_alone(candidate.words, candidate.nouns)
        if found is None:
            return None
        at, place = found
        of_whole = [concept for concept in evidence.concepts[photo] if concept.box is None]
        rest = [support for noun, support in zip(candidate.nouns, candidate.support, strict=True) if noun > at]
        if min(rest) < LIKELY or any(implies(concept.name, words[at]) for concept in of_whole):
            return None
        return place, "place", UNLIKELY - self._alone(evidence, photo, words, at)


def is_sure(concept: Concept) -> bool:
    """Whether a concept may take the place of a noun.

    The score of one without a box is a probability. That of one with a box is how well the best of many regions fits,
    which some region does that shows something else.
    """
    return concept.score >= (SURE if concept.box is None else SURE_REGION)


def beside(concept: Concept, noun: str, support: float) -> float:
    """The support of a noun, if the photo is as surely of a concept as it says.

    To an animal that cannot be the concept, a probability leaves no more than the rest, where ImageNet has a class for
    both: a tiger may be called a zebra, which alone is striped in COCO's captions. No class is a giraffe, so that the
    classifier calls one an antelope or some spotted cat. A swan and an egret are told apart by the support: both are
    birds.
    """
    if concept.box is not None or concept_kind(concept.name) != "animal" or not excludes(concept.name, noun):
        return support
    if not {concept.name, lemma(noun, "n")} <= class_names():
        return support
    both = any(implies(noun, kind) for kind in imagenet_chains().get(concept.name, ()) if kind != "animal")
    return support if both else min(support, 1 - concept.score)


def signs_of(candidate: Candidate, concepts: Sequence[Concept]) -> Signs:
    """What speaks for a caption. One that ends sooner is no surer: where a table was seen in vain, all is doubtful."""
    missing = (concept.score for concept in concepts if not mentions(candidate.words, concept.name))
    return Signs(candidate.cosine, min(candidate.least, candidate.left_out), 1 - max(missing, default=0.0))


def _supports(candidates: Iterable[Candidate]) -> dict[str, float]:
    """The support of every noun that candidates say, and of what begins its name: *cell* has that of the phone."""
    supports, beginnings = dict[str, float](), dict[str, float]()
    for candidate in candidates:
        for at, support in zip(candidate.nouns, candidate.support, strict=True):
            supports[candidate.words[at]] = support
            if at and is_one_name(*candidate.words[at - 1 : at + 1]):
                first = candidate.words[at - 1]
                beginnings[first] = max(support, beginnings.get(first, 0.0))
    return beginnings | supports


def _names_words(rules: Rules) -> bool:
    """True where somebody asked for words, or for none of some: then no other words take the place of what is said."""
    return bool(rules.must_include or set(rules.must_not) - set(CAREFUL.must_not))
