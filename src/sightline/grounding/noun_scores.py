"""Sentences that people wrote, compared with a photo: where each noun is, and whether it is there at all."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import Caption, WordTrace
from sightline.errors import ConfigError
from sightline.grounding.box_chooser import GroundingModels, choose_boxes
from sightline.grounding.calibration import SupportModel, check_least
from sightline.grounding.evidence import Audit, AuditedNoun, Evidence, Grounding, verdict_of
from sightline.grounding.nouns import PLACES, is_one_name, known_nouns, may_name_the_same, names_thing, noun_tags
from sightline.grounding.photo_evidence import NounVectors, PhotoEvidence, RegionNames
from sightline.models.captioner import Captioner
from sightline.models.matcher import Embedding, GlobalMatcher
from sightline.photo import Photo
from sightline.text.lemmas import lemma
from sightline.text.tagger import NOUNS, Tagger
from sightline.text.vocabulary import UNK, Rule, Vocabulary, rule
from sightline.vision.detector import Detector
from sightline.vision.encoder import VisionModel

LIKELY = 0.3  # the least probability of what is seen in the place of a noun
MOST_INSTEAD = 3  # words for what is seen there instead
TOGETHER = 32  # sentences of a photo that are read at once


@dataclass(frozen=True, eq=False)
class NounScores:
    """What is known about a sentence: its nouns that name a thing, by their places among the words."""

    caption: Caption  # every noun that a model knows points at its best box
    evidence: dict[int, Evidence]
    instead: dict[int, tuple[str, ...]]  # what is seen in a noun's place, nothing of its kind, the surest first


class Grounder:
    """Asks the models of a bundle about one photo at a time.

    Vision is the bundle's, folded for inference; so is the captioner, with 8-bit weights on a CPU. `auditing` gives the
    support of a noun from its evidence.
    """

    def __init__(
        self, bundle: GroundingModels, vision: VisionModel, captioner: Captioner, auditing: SupportModel
    ) -> None:
        self.bundle, self.captioner, self.auditing = bundle, captioner, auditing
        self._vision = vision if isinstance(vision, Detector) else None
        self._names = None if self._vision is None else RegionNames(self._vision)
        self._vectors = None
        if bundle.matcher is not None and isinstance(bundle.matcher.model, GlobalMatcher):
            self._vectors = NounVectors(bundle.matcher)
        self._split = rule(bundle.captioner.text_rule)

    def photo_evidence(self, scenes: SceneBatch, images: Embedding | None = None) -> PhotoEvidence:
        """What vision and matcher know of scenes; `images` is what the matcher makes of them, where known."""
        if images is None and self.bundle.matcher is not None:
            images = self.bundle.matcher.model.embed_images(scenes)
        concepts = [()] * len(scenes) if self._vision is None else self._vision.concepts(scenes)
        return PhotoEvidence(scenes, images, concepts, self._names, self._vectors)

    def ground(self, sentence: str, photo: Photo, scenes: SceneBatch, row: int) -> Grounding:
        """Where the nouns of a sentence are in a photo, whose scene is a row of the batch."""
        words = self._split.all_words(sentence)
        if not words:
            raise ConfigError(f"no word in the sentence {sentence!r}", fix="say what to look for")
        (scores,) = self.score_nouns([words], one_scene(scenes, row))
        caption, nouns = scores.caption, list(scores.evidence)
        trace = list(caption.trace)
        for at, support in zip(nouns, self.auditing.support(list(scores.evidence.values())).tolist(), strict=True):
            share = trace[at].score
            if share is not None:
                trace[at] = replace(trace[at], score=support * float(self.auditing.place_probability(share)))
        return Grounding(caption.words, caption.log_prob, tuple(trace), os.fspath(photo.path), sentence, photo.size)

    def audit(
        self, captions: Sequence[str], photo: Photo, scenes: SceneBatch, row: int, least: float | None = None
    ) -> list[Audit]:
        """Which nouns of captions a photo does not support; its scene is a row of the batch."""
        least = check_least(self.auditing.least if least is None else least)
        scene, path, audits = one_scene(scenes, row), os.fspath(photo.path), list[Audit]()
        for first in range(0, len(captions), TOGETHER):
            texts = captions[first : first + TOGETHER]
            split = [words_of(text, self._split) for text in texts]
            scores = self.score_nouns([words for words, _ in split], scene)
            for text, own_scores, (_, places) in zip(texts, scores, split, strict=True):
                audits.append(Audit(path, text, photo.size, self._audited(own_scores, places, least)))
        return audits

    def _audited(self, scores: NounScores, places: Sequence[int], least: float) -> tuple[AuditedNoun, ...]:
        """The nouns that name things, the second of "snow leopard"; `places` tells where in the text each word is."""
        words, trace = scores.caption.words, scores.caption.trace
        supports = self.auditing.support(list(scores.evidence.values())).tolist()
        return tuple(
            AuditedNoun(
                word=words[at],
                index=places[at],
                support=support,
                supported=support >= least,
                box=trace[at].box,
                share=trace[at].score,
                instead=() if support >= least else scores.instead[at],
                evidence=evidence,
                verdict=verdict_of(support, least),
            )
            for (at, evidence), support in zip(scores.evidence.items(), supports, strict=True)
            if names_thing(words, at) and not (at + 1 in scores.evidence and is_one_name(words[at], words[at + 1]))
        )

    def score_nouns(self, sentences: Sequence[Sequence[str]], scene: SceneBatch) -> list[NounScores]:
        """What is known about sentences, split into words, of the one photo of a batch."""
        is_noun = [[tag in NOUNS for tag in tags] for tags in noun_tags(sentences)]
        vocabulary = self.bundle.captioner.vocabulary
        known = [known_nouns(words, nouns, vocabulary) for words, nouns in zip(sentences, is_noun, strict=True)]
        likelihoods = _SentenceLikelihoods(self.captioner, known, vocabulary, scene)
        evidence = self.photo_evidence(scene)
        captions = [likelihoods.caption(row, words) for row, words in enumerate(sentences)]
        anywhere = replace(self.bundle.pointing, least=0.0)
        captions = choose_boxes(self.bundle, captions, scene, anywhere, evidence.images)
        results = []
        for row, caption in enumerate(captions):
            words = caption.words
            nouns = [at for at, noun in enumerate(is_noun[row]) if noun and words[at] not in PLACES]
            by_noun = {
                at: likelihoods.add_to(by_photo, row, at)
                for at, by_photo in zip(nouns, evidence.of(0, words, nouns), strict=True)
            }
            instead = {at: self._instead(likelihoods.likely(row, at), caption, at, evidence) for at in nouns}
            results.append(NounScores(caption, by_noun, instead))
        return results

    def _instead(self, likely: list[str], caption: Caption, at: int, evidence: PhotoEvidence) -> tuple[str, ...]:
        """What is seen in the place of a noun: `likely` words of the captioner, and names of its box's region."""
        before, box = caption.words[:at], caption.trace[at].box
        names = [word for word in likely if Tagger.default().nouns([*before, word])[at]]
        if box is not None:
            names += evidence.names_at(0, box, LIKELY)
        # One of a thing and several of it are the same news.
        by_lemma = {lemma(name, "n"): name for name in reversed(names)}
        others = [by_lemma[base] for base in dict.fromkeys(lemma(name, "n") for name in names)]
        others = [name for name in others if not may_name_the_same(name.split()[-1], caption.words[at])]
        return tuple(others[:MOST_INSTEAD])


class _SentenceLikelihoods:
    """What the captioner makes of sentences about one photo, their unknown nouns replaced by known ones."""

    def __init__(
        self, captioner: Captioner, sentences: Sequence[Sequence[str]], vocabulary: Vocabulary, scene: SceneBatch
    ) -> None:
        memory = captioner.encode(scene)
        device = next(iter(memory.values())).device
        self._vocabulary = vocabulary
        self._ids = TextBatch.collate([*sentences, ["a"]], vocabulary).ids.to(device)  # the last asks for any noun
        output = captioner(memory, self._ids)
        self._log_probs: Tensor = output.log_probs  # (N + 1, T, V)
        self._of_words = self._log_probs.gather(2, self._ids[:, 1:, None]).squeeze(2).tolist()
        attention, count = output.trace.regions, int(scene.mask("boxes").sum())
        self._attention = None if attention is None else attention[:, :, :count].float().cpu().numpy()

    def caption(self, row: int, words: Sequence[str]) -> Caption:
        """A sentence with what the captioner looked at when it came to each word that it knows."""
        trace = []
        for at in range(len(words)):
            regions = None
            if self._attention is not None and int(self._ids[row, at + 1]) != UNK:
                regions = self._attention[row, at].copy()
            trace.append(WordTrace(self._of_words[row][at], regions))
        return Caption(tuple(words), sum(self._of_words[row][: len(words) + 1]), tuple(trace))

    def add_to(self, evidence: Evidence, row: int, at: int) -> Evidence:
        """The evidence for a word, with the captioner's part of it."""
        id = int(self._ids[row, at + 1])
        if id == UNK:
            return evidence
        alone = float(self._log_probs[-1, 1, id])
        return evidence._replace(log_prob=self._of_words[row][at], log_prob_alone=alone, log_rank=math.log(id))

    def likely(self, row: int, at: int) -> list[str]:
        """Words that the captioner would have said there, the likeliest first."""
        top, ids = torch.topk(self._log_probs[row, at], min(MOST_INSTEAD, self._log_probs.shape[2]))
        probabilities = zip(top.exp().tolist(), ids.tolist(), strict=True)
        return [self._vocabulary.word(id) for chance, id in probabilities if chance >= LIKELY and id > UNK]


def one_scene(scenes: SceneBatch, row: int) -> SceneBatch:
    parts = {item.name: getattr(scenes, item.name) for item in fields(scenes) if item.name != "fingerprint"}
    return replace(scenes, **{name: part[row : row + 1] for name, part in parts.items() if part is not None})


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
