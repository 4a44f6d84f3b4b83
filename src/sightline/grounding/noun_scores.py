"""What a bundle's models have to say about sentences that others wrote: where each noun is, and whether it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import Caption, WordTrace
from sightline.errors import ConfigError
from sightline.grounding.caption_boxes import GroundingModels, choose_boxes
from sightline.grounding.evidence import Audit, AuditedNoun, Evidence, Grounding, verdict_of
from sightline.grounding.nouns import noun_tags
from sightline.grounding.photo_evidence import PhotoEvidence, noun_vectors
from sightline.grounding.region_names import RegionNames
from sightline.grounding.support_model import SupportModel, check_least
from sightline.grounding.synonyms import known_nouns, may_name_the_same
from sightline.grounding.visible_nouns import PLACES, names_thing
from sightline.models.captioner import Captioner
from sightline.models.matcher import Embedding
from sightline.scene import Array, Concept
from sightline.text.tagger import NOUNS, Tagger
from sightline.text.vocabulary import UNK, Rule, Vocabulary, rule
from sightline.vision.detector import Detector
from sightline.vision.encoder import VisionModel

LIKELY = 0.3  # what is seen in the place of a noun is told from this probability on
MOST_INSTEAD = 3  # of it, at most
TOGETHER = 32  # sentences of a photo that are read at once


@dataclass(frozen=True, eq=False)
class NounScores:
    """What is known about a sentence.

    Attributes:
        caption: its words, the nouns pointing at boxes.
        evidence: of each noun that names a thing, by its place among the words.
        seen: what is seen in the place of each of them, nothing of its kind among it, the surest first.
    """

    caption: Caption
    evidence: dict[int, Evidence]
    seen: dict[int, tuple[str, ...]]


class Grounder:
    """Asks the models of a bundle about one photo at a time.

    Args:
        bundle: whose matcher and rule of pointing are used.
        vision: the bundle's, in the form in which it is run.
        captioner: so too.
        auditing: from evidence to support.
    """

    def __init__(
        self, bundle: GroundingModels, vision: VisionModel, captioner: Captioner, auditing: SupportModel
    ) -> None:
        self.bundle, self._captioner, self.auditing = bundle, captioner, auditing
        self._vision = vision if isinstance(vision, Detector) else None
        self._names = None if self._vision is None else RegionNames(self._vision)
        self._vectors = noun_vectors(bundle.matcher)
        self._split = rule(bundle.captioner.text_rule)

    def ground(self, sentence: str, scenes: SceneBatch, row: int, path: str, size: tuple[int, int]) -> Grounding:
        """Where the nouns of a sentence are in one photo of a batch; `path` and `size` are the photo's."""
        words = self._split.all_words(sentence)
        if not words:
            raise ConfigError(f"no word in the sentence {sentence!r}", fix="say what to look for")
        known = self.score_nouns([words], one(scenes, row))[0]
        support = dict(zip(known.evidence, self.auditing.support([*known.evidence.values()]).tolist(), strict=True))
        trace = tuple(
            word
            if word.score is None
            else replace(word, score=support[at] * float(self.auditing.place_probability(word.score)))
            for at, word in enumerate(known.caption.trace)
        )
        return Grounding(known.caption.words, known.caption.log_prob, trace, path, sentence, size)

    def audit(
        self,
        captions: Sequence[str],
        scenes: SceneBatch,
        row: int,
        path: str,
        size: tuple[int, int],
        least: float | None = None,
    ) -> list[Audit]:
        """Which nouns of captions one photo of a batch does not support; `path` and `size` are the photo's."""
        least = check_least(self.auditing.least if least is None else least)
        scene, results = one(scenes, row), list[Audit]()
        for first in range(0, len(captions), TOGETHER):
            texts = [words_of(text, self._split) for text in captions[first : first + TOGETHER]]
            for text, known, (_, places) in zip(
                captions[first:], self.score_nouns([words for words, _ in texts], scene), texts, strict=False
            ):
                results.append(Audit(path, text, size, self._audited(known, places, least)))
        return results

    def _audited(self, known: NounScores, places: Sequence[int], least: float) -> tuple[AuditedNoun, ...]:
        support = self.auditing.support([*known.evidence.values()]).tolist()
        found = []
        for (at, evidence), sure in zip(known.evidence.items(), support, strict=True):
            if not names_thing(known.caption.words, at):
                continue
            word, trace, seen = known.caption.words[at], known.caption.trace[at], known.seen[at]
            flagged = sure < least
            instead = seen if flagged else ()
            verdict = verdict_of(sure, least)
            place, share = trace.box, trace.score
            found.append(AuditedNoun(word, places[at], sure, not flagged, place, share, instead, evidence, verdict))
        return tuple(found)

    def score_nouns(self, sentences: Sequence[Sequence[str]], scene: SceneBatch) -> list[NounScores]:
        """What is known about sentences, split into words. Every noun that a model knows points at its best box."""
        nouns_of = [[tag in NOUNS for tag in tags] for tags in noun_tags(sentences)]
        vocabulary = self.bundle.captioner.vocabulary
        known = [known_nouns(words, own, vocabulary) for words, own in zip(sentences, nouns_of, strict=True)]
        heard = _SentenceScores(self._captioner, known, vocabulary, scene)
        said = [heard.caption(row, words) for row, words in enumerate(sentences)]
        said = choose_boxes(self.bundle, said, scene, replace(self.bundle.pointing, least=0.0))
        nouns = [
            [at for at, noun in enumerate(own) if noun and words[at] not in PLACES]
            for words, own in zip(sentences, nouns_of, strict=True)
        ]
        odds = None if self._names is None else self._names.odds(scene)[0][scene.mask("regions")[0].cpu().numpy()]
        known_of = self.photo_evidence(scene)
        boxes = scene.part("boxes")[0].float().cpu().numpy()
        results = []
        for row, (caption, own) in enumerate(zip(said, nouns, strict=True)):
            words = caption.words
            seen_by_photo = known_of.of(0, [(words[at], words[at - 1] if at else "") for at in own])
            evidence = {}
            for at, one in zip(own, seen_by_photo, strict=True):
                by_captioner = dict(zip(("said", "asked", "rarity"), heard.of(row, at), strict=True))
                evidence[at] = one._replace(**by_captioner)
            seen = {at: self._seen(heard, row, caption, at, odds, boxes) for at in own}
            results.append(NounScores(caption, evidence, seen))
        return results

    def photo_evidence(
        self,
        scenes: SceneBatch,
        images: Embedding | None = None,
        concepts: Sequence[Sequence[Concept]] | None = None,
    ) -> PhotoEvidence:
        """What eyes and matcher know of scenes; `images` and `concepts` are what they make of them, where known."""
        if images is None and self._vectors is not None:
            images = self._vectors.matcher.model.embed_images(scenes)
        if concepts is None:
            concepts = [()] * len(scenes) if self._vision is None else self._vision.concepts(scenes)
        return PhotoEvidence(self._names, self._vectors, scenes, images, concepts)

    def _seen(
        self, heard: _SentenceScores, row: int, caption: Caption, at: int, odds: Array | None, boxes: Array
    ) -> tuple[str, ...]:
        before, box = caption.words[:at], caption.trace[at].box
        names = [word for word in heard.likely(row, at) if Tagger.default().nouns([*before, word])[at]]
        if self._names is not None and odds is not None and box is not None:
            names += self._names.at(odds, boxes, box, LIKELY)
        others = [name for name in dict.fromkeys(names) if not may_name_the_same(name.split()[-1], caption.words[at])]
        return tuple(others[:MOST_INSTEAD])


class _SentenceScores:
    """What the captioner makes of sentences about one photo, their unknown nouns replaced by known ones."""

    def __init__(
        self, captioner: Captioner, known: Sequence[Sequence[str]], vocabulary: Vocabulary, scene: SceneBatch
    ) -> None:
        memory = captioner.encode(scene)
        device = next(iter(memory.values())).device
        self._ids = TextBatch.collate([*known, ["a"]], vocabulary).ids.to(device)
        output = captioner(memory, self._ids)
        self._told: Tensor = output.log_probs  # (N + 1, T, V)
        self._chosen = self._told.gather(2, self._ids[:, 1:, None]).squeeze(2).tolist()
        looks, self._words = output.trace.regions, vocabulary
        self._looks = None if looks is None else looks[:, :, : int(scene.mask("boxes").sum())].float().cpu().numpy()

    def caption(self, row: int, words: Sequence[str]) -> Caption:
        """A sentence with what the captioner looked at when it came to each word that it knows."""
        known = (self._ids[row, 1:] != UNK).tolist()
        looks = [
            self._looks[row, at].copy() if self._looks is not None and known[at] else None for at in range(len(words))
        ]
        trace = [WordTrace(self._chosen[row][at], look) for at, look in enumerate(looks)]
        return Caption(tuple(words), sum(self._chosen[row][: len(words) + 1]), tuple(trace))

    def of(self, row: int, at: int) -> tuple[float, float, float]:
        """`said`, `asked` and `rarity` of a word."""
        id = int(self._ids[row, at + 1])
        if id == UNK:
            return math.nan, math.nan, math.nan
        return self._chosen[row][at], float(self._told[-1, 1, id]), math.log(id)

    def likely(self, row: int, at: int) -> list[str]:
        """Words that the captioner would have said there, the likeliest first."""
        top, ids = torch.topk(self._told[row, at], min(MOST_INSTEAD, self._told.shape[2]))
        chances = zip(top.exp().tolist(), ids.tolist(), strict=True)
        return [self._words.word(id) for chance, id in chances if chance >= LIKELY and id > UNK]


def one(scenes: SceneBatch, row: int) -> SceneBatch:
    """One scene of a batch."""
    part = slice(row, row + 1)
    values = {item.name: getattr(scenes, item.name) for item in fields(scenes) if item.name != "fingerprint"}
    return replace(scenes, **{name: value[part] for name, value in values.items() if value is not None})


def words_of(text: str, split: Rule) -> tuple[list[str], list[int]]:
    """The words that a model reads in a text, and in which part of it, split at white space, each is.

    >>> words_of("A dog , running !", rule("self-critical"))
    (['a', 'dog', 'running'], [0, 1, 3])
    """
    words = split.all_words(text)
    parts = [(word, place) for place, part in enumerate(text.split()) for word in split.all_words(part)]
    if [word for word, _ in parts] != words:  # a rule that looks across white space
        return words, list(range(len(words)))
    return words, [place for _, place in parts]
