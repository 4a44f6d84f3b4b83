"""What the models make of people's sentences: read once, and then pointed at boxes by any rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from measured_photos import TestPhoto

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import Caption, WordTrace
from sightline.checkpoint.bundle import Bundle
from sightline.data.records import GroundedPhoto, GroundedSentence
from sightline.grounding.box_chooser import BoxChooser, WordBoxes, point_words
from sightline.grounding.nouns import box_counts, noun_tags
from sightline.grounding.photo_evidence import name_regions
from sightline.models.matcher import AligningMatcher
from sightline.scene import Array, Box
from sightline.text.vocabulary import UNK


@dataclass(frozen=True, eq=False)
class SentenceEvidence:
    """The sentences of a photo that people wrote, and the evidence for where their words are."""

    truth: GroundedPhoto  # the sentences, and the boxes people drew
    size: tuple[int, int]  # of the photo those boxes refer to
    boxes: Array  # (n, 4) that the detector found, normalised
    captions: list[Caption]  # the sentences with what the captioner looked at
    found: list[Array | None]  # (words, n) where the matcher finds the words of each sentence, or None without one
    scores: Array | None = None  # (n,) how sure the detector is of its boxes, or None
    # (words, n) how probably they have the names of the words of each sentence, or None
    named: list[Array | None] | None = None
    # how many boxes the words of each sentence get where the model chooses the words
    counts: list[list[int]] | None = None
    learned: list[dict[int, WordBoxes]] | None = (
        None  # what the pointer makes of the words it knows, or None without one
    )

    def pixels(self, box: Sequence[float]) -> Box:
        """A box in pixels of the original photo."""
        (a, b, c, d), (width, height) = box, self.size
        return a * width, b * height, c * width, d * height

    def pointed(self, rule: BoxChooser, choosing: bool = False) -> list[dict[int, tuple[Box, float]]]:
        """Where a rule points the annotated words of each sentence, in pixels, and how surely.

        It is told which words these are, and points no others; if `choosing`, it points the nouns that the model
        chooses, as `sightline ground` does.
        """
        results = []
        for row, (sentence, caption) in enumerate(zip(self.truth.sentences, self.captions, strict=True)):
            annotated = {word.index for word in sentence.words}
            most = [int(at in annotated) for at in range(len(caption))]
            if choosing:
                assert self.counts is not None
                most = self.counts[row]
            trace = rule.point(
                caption,
                most,
                self.boxes,
                self.found[row],
                scores=self.scores,
                named=None if self.named is None else self.named[row],
                learned=None if self.learned is None else self.learned[row],
            ).trace
            results.append(
                {
                    at: (self.pixels(word.box), word.score)
                    for at, word in enumerate(trace)
                    if at in annotated and word.box is not None and word.score is not None
                }
            )
        return results


@torch.inference_mode()
def sentence_evidence(
    bundle: Bundle, photos: Sequence[TestPhoto], scenes: Sequence[SceneBatch], grounded: Mapping[str, GroundedPhoto]
) -> Iterator[SentenceEvidence]:
    """What is made of the sentences of the photos that have annotated ones, each with its scene."""
    for photo, scene in zip(photos, scenes, strict=True):
        truth = grounded.get(photo.id)
        if truth is None or truth.size is None or not truth.sentences:
            continue
        boxes = scene.part("boxes")[0][scene.mask("boxes")[0]].float().cpu().numpy()
        sentences = [[token.lower() for token in sentence.tokens] for sentence in truth.sentences]
        captions = _captions(bundle, scene, sentences, len(boxes))
        counts = [box_counts(words, tags) for words, tags in zip(sentences, noun_tags(sentences), strict=True)]
        wanted = [_wanted(own, most) for own, most in zip(truth.sentences, counts, strict=True)]
        found, learned = _found(bundle, scene, sentences, wanted, len(boxes))
        names = [
            name_regions(bundle.vision, scene, 0, words, own) for words, own in zip(sentences, wanted, strict=True)
        ]
        scores = None if scene.scores is None else scene.scores[0][scene.mask("boxes")[0]].float().cpu().numpy()
        yield SentenceEvidence(truth, truth.size, boxes, captions, found, scores, names, counts, learned)


def _wanted(sentence: GroundedSentence, most: list[int]) -> list[int]:
    """1 for words that people drew boxes for, or that the model would choose."""
    annotated = {word.index for word in sentence.words}
    return [int(count > 0 or at in annotated) for at, count in enumerate(most)]


def _captions(bundle: Bundle, scene: SceneBatch, sentences: list[list[str]], count: int) -> list[Caption]:
    says = bundle.captioner
    texts = TextBatch.collate(sentences, says.vocabulary).to(scene.part("boxes").device)
    regions = says.model(says.model.encode(scene), texts.ids).trace.regions
    looks = None if regions is None else regions[:, :, :count].float().cpu().numpy()
    return [
        Caption(
            tuple(words),
            0.0,
            tuple(WordTrace(regions=None if looks is None else looks[row, at]) for at in range(len(words))),
        )
        for row, words in enumerate(sentences)
    ]


def _found(
    bundle: Bundle, scene: SceneBatch, sentences: list[list[str]], wanted: list[list[int]], count: int
) -> tuple[list[Array | None], list[dict[int, WordBoxes]] | None]:
    """Where the matcher finds all words, and where the pointer does the wanted ones that the matcher knows."""
    finds = bundle.matcher
    if finds is None or not isinstance(finds.model, AligningMatcher):
        return [None] * len(sentences), None
    texts = TextBatch.collate(sentences, finds.vocabulary).to(scene.part("boxes").device)
    images, embedded = finds.model.embed_images(scene), finds.model.embed_texts(texts)
    learned = None
    if bundle.pointer is not None:
        known = [
            [at for at, is_wanted in enumerate(own) if is_wanted and ids[at + 1] != UNK]
            for ids, own in zip(texts.ids.tolist(), wanted, strict=True)
        ]
        learned = [
            {at: WordBoxes(word.weights[:count], word.boxes[:count]) for at, word in own.items()}
            for own in point_words(bundle.pointer, embedded["words"], known, images, scene)
        ]
    images = {name: part.expand(len(texts), *part.shape[1:]) for name, part in images.items()}
    alignment = finds.model.alignment(images, embedded) * (texts.ids != UNK)[..., None]
    weights = alignment[:, 1:, :count].float().cpu().numpy()  # START is first
    return [weights[row, : len(words)] for row, words in enumerate(sentences)], learned
