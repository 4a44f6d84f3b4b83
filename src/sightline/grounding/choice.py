"""Which caption of a photo is chosen: by how likely it is, how well it fits the photo, and whether its nouns are there.

The score of a caption is

    log p(caption | photo) + fit · cosine(caption, photo) − doubt · Σ over its nouns of (1 − support)

with the matcher's cosine, and with a support (`support_model`) of which the captioner itself is no part: it is always
sure of what it says. Candidates are the captions of the beam. Where the best has a noun of little support, there are
more: its own beginnings, which say less, and a second beam in which words cost what they are doubted. At last, a noun
may give its place to the name of a concept that is surer than it, or to a word for its kind: "an animal".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from sightline.batch import SceneBatch, TextBatch
from sightline.decoding.decode import caption_words, decode
from sightline.decoding.decode_result import DecodeResult
from sightline.decoding.rules import CAREFUL, Rules
from sightline.decoding.strategies import Beam
from sightline.errors import ConfigError
from sightline.grounding.calibration import Signs
from sightline.grounding.evidence import Evidence
from sightline.grounding.noun_scores import Grounder
from sightline.grounding.nouns import PAIRS, PLURAL, box_counts, noun_tags
from sightline.grounding.photo_evidence import PhotoEvidence, implies, is_thing, usual_kind
from sightline.grounding.region_names import family_of
from sightline.grounding.support_model import SupportModel
from sightline.models.captioner import Captioner, Memory, select
from sightline.models.matcher import Embedding, GlobalMatcher
from sightline.scene import Concept
from sightline.text.grammar import noun_forms, with_right_articles
from sightline.text.tagger import NOUNS

DEAR = 8.0  # what a word costs in a second beam that is not supported at all, in nats
SURE = 0.35  # a concept of the whole photo takes the place of a noun from this score on
SURE_THING = 0.5  # the same, if it is no animal
SURE_REGION = 0.8  # and one of a region
LEAST_WORDS = 3  # of the beginning of a caption
KEPT_BEFORE = frozenset(  # adjectives that suit a thing whatever it is
    "black white brown red green blue yellow orange pink purple grey gray golden small little large big young".split()
)
ALIKE = ("animal", "artifact", "food", "object")  # kinds of things that are taken for each other
KINDS = ("animal", "vehicle", "building", "food")  # words that say less, of families of things
Words = tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """How captions are chosen; by default by likelihood and fit alone (`Bundle.fit`).

    Attributes:
        doubt: what a noun costs that is surely not there, in nats.
        shorten: where the best caption has a noun of less support than this, its beginnings are candidates too.
        second_look: so too, captions of a second beam, which take longer.
        swap: a concept takes the place of a noun if its score is above the noun's support by this; 2 is never.
        vague: so does a word for its kind, by its own support.
        support: of a noun that the captioner said, from evidence that is not its own.
    """

    doubt: float = 0.0
    shorten: float = 0.0
    second_look: float = 0.0
    swap: float = 2.0
    vague: float = 2.0
    support: SupportModel = field(default_factory=SupportModel)

    def __post_init__(self) -> None:
        for name in ("doubt", "shorten", "second_look", "swap", "vague"):
            if not math.isfinite(getattr(self, name)):
                raise ConfigError(f"`{name}` is {getattr(self, name)}", fix="fit it again")


@dataclass(frozen=True)
class Candidate:
    """A caption that a photo may have.

    Attributes:
        words: its words.
        score: by which the captioner ranked it.
        log_prob: of words and END.
        cosine: with the photo, by the matcher; NaN without one.
        nouns: places of those that name a thing.
        support: of each of them.
        evidence: of each of them.
        origin: beam, beginning, second, swap or vague.
        instead_of: the caption in which a noun was replaced. How likely the captioner finds the new one tells nothing.
    """

    words: Words
    score: float
    log_prob: float
    cosine: float
    nouns: tuple[int, ...]
    support: tuple[float, ...]
    evidence: tuple[Evidence, ...]
    origin: str = "beam"
    instead_of: Candidate | None = None

    def total(self, fit: float, doubt: float) -> float:
        """The score by which it is chosen."""
        fitting = 0.0 if math.isnan(self.cosine) else fit * self.cosine
        return self.score + fitting - doubt * sum(1 - support for support in self.support)

    @property
    def least(self) -> float:
        """The support of the noun with the least; 1 without nouns."""
        return min(self.support, default=1.0)


class CaptionChooser:
    """Chooses among the captions of a batch of photos.

    Args:
        grounder: knows what eyes and matcher say of nouns.
        captioner: in the form in which it is run.
        choice: how to choose.
        fit: what the cosine with the photo counts.
    """

    def __init__(self, grounder: Grounder, captioner: Captioner, choice: Choice, fit: float) -> None:
        self.choice, self.fit = choice, fit
        self._grounder, self._captioner = grounder, captioner
        self._vocabulary = grounder.bundle.captioner.vocabulary
        self._matcher = grounder.bundle.matcher

    def choose(
        self,
        scenes: SceneBatch,
        memory: Memory,
        decoded: DecodeResult,
        images: Embedding | None,
        concepts: Sequence[Sequence[Concept]],
        rules: Rules,
    ) -> list[Candidate]:
        """The caption of each photo.

        Args:
            scenes: of the photos.
            memory: what the captioner makes of them.
            decoded: what it says of each.
            images: what the matcher makes of them.
            concepts: of each.
            rules: that captions keep.
        """
        evidence = self._grounder.photo_evidence(scenes, images, concepts)
        best = [self.best(own) for own in self._candidates(memory, decoded, images, evidence, rules)]
        if _names_words(rules) or min(self.choice.swap, self.choice.vague) > 1:
            return best
        asked: list[tuple[int, Words, str]] = []
        for photo, one in enumerate(best):
            for words, origin, gain in self.other_nouns(one, photo, concepts[photo], evidence):
                known = len(words) <= rules.max_words and all(word in self._vocabulary for word in words)
                if known and gain > (self.choice.swap if origin == "swap" else self.choice.vague):
                    asked.append((photo, words, origin))
                    break
        for photo, one in self._scored(asked, memory, images, evidence):
            best[photo] = replace(one, instead_of=best[photo])
        return best

    def best(self, candidates: Sequence[Candidate]) -> Candidate:
        """The one with the best score."""
        return max(candidates, key=lambda one: one.total(self.fit, self.choice.doubt))

    def candidates(
        self,
        scenes: SceneBatch,
        memory: Memory,
        decoded: DecodeResult,
        images: Embedding | None,
        concepts: Sequence[Sequence[Concept]],
        rules: Rules,
    ) -> list[list[Candidate]]:
        """All captions that are weighed for each photo."""
        evidence = self._grounder.photo_evidence(scenes, images, concepts)
        return self._candidates(memory, decoded, images, evidence, rules)

    def _candidates(
        self,
        memory: Memory,
        decoded: DecodeResult,
        images: Embedding | None,
        evidence: PhotoEvidence,
        rules: Rules,
    ) -> list[list[Candidate]]:
        found = self._decoded(decoded, range(len(decoded.words)), images, evidence, "beam")
        if _names_words(rules):
            return found
        beam, least = decoded.words.shape[1], [self.best(own).least for own in found]
        if again := [photo for photo, support in enumerate(least) if support < self.choice.second_look and beam > 1]:
            self._look_again(found, again, memory, images, evidence, rules, beam)
        if short := [photo for photo, support in enumerate(least) if support < self.choice.shorten]:
            self._say_less(found, short, memory, images, evidence, rules)
        return found

    def _say_less(
        self,
        found: list[list[Candidate]],
        doubtful: Sequence[int],
        memory: Memory,
        images: Embedding | None,
        evidence: PhotoEvidence,
        rules: Rules,
    ) -> None:
        best = {photo: self.best(found[photo]).words for photo in doubtful}
        tags = dict(zip(best, noun_tags(list(best.values())), strict=True))
        asked = [
            (photo, words, "beginning")
            for photo in doubtful
            for words in beginnings(best[photo], tags[photo])
            if len(words) >= rules.min_words
        ]
        for photo, one in self._scored(asked, memory, images, evidence):
            found[photo].append(one)

    def _look_again(
        self,
        found: list[list[Candidate]],
        doubtful: Sequence[int],
        memory: Memory,
        images: Embedding | None,
        evidence: PhotoEvidence,
        rules: Rules,
        beam: int,
    ) -> None:
        """A second beam of the doubtful photos, in which the nouns that were said cost what they are doubted."""
        rows = torch.tensor(doubtful, device=next(iter(memory.values())).device)
        bias = torch.zeros(len(doubtful), len(self._vocabulary), device=rows.device)
        for row, photo in enumerate(doubtful):
            for noun, support in _supports(found[photo]).items():
                ids = [self._vocabulary.id(form) for form in noun_forms(noun) or (noun,) if form in self._vocabulary]
                bias[row, ids] = -DEAR * (1 - support)
        again = decode(self._captioner, select(memory, rows), Beam(beam, keep=beam), rules, self._vocabulary, bias)
        for photo, more in zip(doubtful, self._decoded(again, doubtful, images, evidence, "second"), strict=True):
            known = {one.words for one in found[photo]}
            found[photo] += [replace(one, score=one.log_prob) for one in more if one.words not in known]

    def _decoded(
        self,
        decoded: DecodeResult,
        photos: Iterable[int],
        images: Embedding | None,
        evidence: PhotoEvidence,
        origin: str,
    ) -> list[list[Candidate]]:
        places = list(photos)
        words, scores = caption_words(decoded, self._vocabulary), decoded.scores.tolist()
        log_probs = decoded.log_probs.tolist()
        asked = [
            (row, text, score, log_prob)
            for row, own in enumerate(zip(words, scores, log_probs, strict=True))
            for text, score, log_prob in zip(*own, strict=True)
            if log_prob > -math.inf
        ]
        found: list[list[Candidate]] = [[] for _ in places]
        read = self._read([(places[row], text) for row, text, _, _ in asked], images, evidence)
        for (row, text, score, log_prob), known in zip(asked, read, strict=True):
            found[row].append(Candidate(text, score, log_prob, *known, origin))
        return found

    def _scored(
        self,
        asked: Sequence[tuple[int, Words, str]],
        memory: Memory,
        images: Embedding | None,
        evidence: PhotoEvidence,
    ) -> list[tuple[int, Candidate]]:
        """Captions of photos that no beam gave, with their likelihood."""
        if not asked:
            return []
        rows = torch.tensor([photo for photo, _, _ in asked], device=next(iter(memory.values())).device)
        ids = TextBatch.collate([words for _, words, _ in asked], self._vocabulary).ids.to(rows.device)
        log_probs = self._captioner.log_prob(select(memory, rows), ids).tolist()
        read = self._read([(photo, words) for photo, words, _ in asked], images, evidence)
        return [
            (photo, Candidate(words, log_prob, log_prob, *known, origin))
            for (photo, words, origin), log_prob, known in zip(asked, log_probs, read, strict=True)
        ]

    def _read(
        self, captions: Sequence[tuple[int, Words]], images: Embedding | None, evidence: PhotoEvidence
    ) -> list[tuple[float, tuple[int, ...], tuple[float, ...], tuple[Evidence, ...]]]:
        """Of captions of photos the cosine with it, the places of nouns, and the support and evidence of each."""
        texts = [words for _, words in captions]
        vectors = self._vectors(texts, images)
        found: list[tuple[float, list[int], list[Evidence]]] = []
        for row, ((photo, words), tags) in enumerate(zip(captions, noun_tags(texts), strict=True)):
            nouns = [at for at, count in enumerate(box_counts(words, tags)) if count]
            known = evidence.of(photo, [(words[at], words[at - 1] if at else "") for at in nouns])
            cosine = math.nan
            if vectors is not None and images is not None:
                cosine = float(vectors["vector"][row] @ images["vector"][photo])
                if nouns and "words" in vectors and "regions" in images:
                    states = vectors["words"][row, [at + 1 for at in nouns]]  # START is first
                    cosines = (states.float() @ images["regions"][photo].float().T).amax(1).tolist()
                    known = [one._replace(found=value) for one, value in zip(known, cosines, strict=True)]
            found.append((cosine, nouns, known))
        every = [one for _, _, known in found for one in known]
        names = [words[at] for (_, words), (_, nouns, _) in zip(captions, found, strict=True) for at in nouns]
        support = iter(self.choice.support.support(every, names).tolist())
        return [
            (cosine, tuple(nouns), tuple(next(support) for _ in nouns), tuple(known)) for cosine, nouns, known in found
        ]

    def _vectors(self, texts: Sequence[Words], images: Embedding | None) -> Embedding | None:
        matcher = self._matcher
        if matcher is None or images is None or not isinstance(matcher.model, GlobalMatcher):
            return None
        batch = TextBatch.collate(texts, matcher.vocabulary).to(images["vector"].device)
        return matcher.model.embed_texts(batch)

    def other_nouns(
        self, one: Candidate, photo: int, concepts: Sequence[Concept], evidence: PhotoEvidence
    ) -> Iterator[tuple[Words, str, float]]:
        """The caption with another word for a noun, where that came from, and by how much more it is supported.

        Names of concepts come first, the surest one first; then words for kinds of things.
        """
        doubted = dict(zip(one.nouns, one.support, strict=True))
        for concept in sorted(concepts, key=lambda each: -each.score):
            if is_sure(concept) and not mentions(one.words, concept.name):
                if usual_kind(concept.name) != "animal" and (concept.box is not None or concept.score < SURE_THING):
                    continue  # many things are in a photo, and those that a caption names are mostly there
                for at in sorted(replaceable(one.words, one.nouns, concept.name), key=doubted.__getitem__)[:1]:
                    yield with_noun(one.words, at, concept.name), "swap", concept.score - doubted[at]
        for at, support in sorted(doubted.items(), key=lambda each: each[1])[:1]:
            kind = family_of(one.words[at])
            if kind in KINDS and not mentions([*one.words[:at], *one.words[at + 1 :]], kind) and kind != one.words[at]:
                known = self.choice.support.support(evidence.of(photo, [(kind, "")]), [kind])
                yield with_noun(one.words, at, kind), "vague", float(known[0]) - support


def is_sure(concept: Concept) -> bool:
    """Whether a concept may take the place of a noun.

    The score of one without a box is a probability. That of one with a box is how well the best of many regions fits,
    which some region does that shows something else.
    """
    return concept.score >= (SURE if concept.box is None else SURE_REGION)


def signs_of(chosen: Candidate, concepts: Sequence[Concept]) -> Signs:
    """What speaks for the caption that was chosen."""
    missing = (concept.score for concept in concepts if not mentions(chosen.words, concept.name))
    return Signs(chosen.cosine, chosen.least, 1 - max(missing, default=0.0))


def beginnings(words: Words, tags: Sequence[str]) -> list[Words]:
    """The beginnings of a caption that are captions: they end in a noun, before what is added to them.

    >>> words = tuple("a cat on a bed next to a table".split())
    >>> [" ".join(one) for one in beginnings(words, noun_tags([words])[0])]
    ['a cat on a bed']
    """
    return [
        words[:at]
        for at in range(LEAST_WORDS, len(words))
        if (tags[at] in ("IN", "CC") or words[at] == "next") and words[at] != "of" and tags[at - 1] in NOUNS
    ]


def mentions(words: Sequence[str], name: str) -> bool:
    """Whether a caption says a name, what it is a kind of, or a kind of it."""
    return any(implies(name, word) or implies(word, name.rpartition(" ")[2]) for word in words)


def replaceable(words: Words, nouns: Sequence[int], name: str) -> list[int]:
    """The nouns, by their places, that may have been said where something of this name is.

    One animal is taken for another, or for whatever the caption begins with, unless that is a person; one thing that
    people made for another, unless that is a place (a room, a street); food for food, a volcano for a rock.
    """
    kind = usual_kind(name)
    alike = [at for at in nouns if usual_kind(words[at]) == kind and (kind != "artifact" or is_thing(words[at]))]
    if alike and kind in ALIKE:
        return alike
    first = [at for at in nouns[:1] if usual_kind(words[at]) not in ("person", "group")]
    return first if kind == "animal" else []


def with_noun(words: Words, at: int, name: str) -> Words:
    """A caption with another name in the place of a noun; of the words that describe it, colours and sizes stay.

    >>> " ".join(with_noun(tuple("a brown teddy bear in a tree".split()), 3, "owl"))
    'a brown owl in a tree'
    >>> " ".join(with_noun(tuple("a pair of scissors on a rock".split()), 3, "snake"))
    'a snake on a rock'
    """
    (tags,) = noun_tags([words])
    first = at
    while first and (tags[first - 1] in NOUNS or tags[first - 1] in ("JJ", "JJR", "JJS", "VBN", "VBG")):
        first -= 1
    kept = [word for word in words[first:at] if word in KEPT_BEFORE]
    plural = tags[at] in PLURAL
    if name.rpartition(" ")[2] in PAIRS:
        plural, name = False, name if plural else f"pair of {name}"
    if first >= 3 and words[first - 3 : first] == ("a", "pair", "of"):
        first, plural = first - 2, False
    new = (*words[:first], *kept, *(plural_of(name) if plural else name).split(), *words[at + 1 :])
    return tuple(with_right_articles(new))


def plural_of(name: str) -> str:
    """The plural of a name.

    >>> [plural_of(name) for name in ("fox", "wild cat", "wolf", "fly")]
    ['foxes', 'wild cats', 'wolves', 'flies']
    """
    *before, noun = name.split()
    forms = [form for form in noun_forms(noun) if form != noun]
    regular = f"{noun}es" if noun.endswith(("s", "x", "z", "ch", "sh")) else f"{noun}s"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        regular = f"{noun[:-1]}ies"
    irregular = [form for form in forms if form not in (f"{noun}s", f"{noun}es", f"{noun.removesuffix('y')}ies")]
    return " ".join([*before, irregular[0] if irregular else regular])


def _supports(candidates: Iterable[Candidate]) -> dict[str, float]:
    return {one.words[at]: support for one in candidates for at, support in zip(one.nouns, one.support, strict=True)}


def _names_words(rules: Rules) -> bool:
    """True where somebody asked for words, or for none of some: then no other words take the place of what is said."""
    return bool(rules.must_include or set(rules.must_not) - set(CAREFUL.must_not))
