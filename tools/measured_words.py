"""What the models make of people's sentences: heard once, and then pointed at boxes by any rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from measured_photos import TestPhoto

from sightline.batch import SceneBatch, TextBatch
from sightline.bundle import Bundle
from sightline.caption import Caption, WordTrace
from sightline.grounding import GroundedPhoto
from sightline.models.matcher import AligningMatcher
from sightline.scene import Array, Box
from sightline.text.vocabulary import UNK
from sightline.trust.pointing import Pointing


@dataclass(frozen=True, eq=False)
class Heard:
    """The sentences of a photo that people wrote, and the evidence for where their words are.

    Attributes:
        truth: the sentences, and the boxes people drew.
        size: of the photo those boxes refer to.
        boxes: (n, 4) that the detector found, normalised.
        captions: the sentences with what the captioner looked at.
        found: (words, n) where the matcher finds the words of each sentence, or None without one.
    """

    truth: GroundedPhoto
    size: tuple[int, int]
    boxes: Array
    captions: list[Caption]
    found: list[Array | None]

    def pixels(self, box: Sequence[float]) -> Box:
        """A box in pixels of the original photo."""
        (a, b, c, d), (width, height) = box, self.size
        return a * width, b * height, c * width, d * height

    def pointed(self, rule: Pointing) -> list[dict[int, tuple[Box, float]]]:
        """Where a rule points the annotated words of each sentence, in pixels, and how surely."""
        results = []
        for sentence, caption, found in zip(self.truth.sentences, self.captions, self.found, strict=True):
            annotated = {word.index for word in sentence.words}
            trace = rule.point(caption, [at in annotated for at in range(len(caption))], self.boxes, found).trace
            results.append(
                {
                    at: (self.pixels(word.box), word.score)
                    for at, word in enumerate(trace)
                    if word.box is not None and word.score is not None
                }
            )
        return results


@torch.inference_mode()
def hear(
    bundle: Bundle, photos: Sequence[TestPhoto], scenes: Sequence[SceneBatch], grounded: Mapping[str, GroundedPhoto]
) -> Iterator[Heard]:
    """What is made of the sentences of the photos that have annotated ones, each with its scene."""
    for photo, scene in zip(photos, scenes, strict=True):
        truth = grounded.get(photo.id)
        if truth is None or truth.size is None or not truth.sentences:
            continue
        boxes = scene.part("boxes")[0][scene.mask("boxes")[0]].float().cpu().numpy()
        sentences = [[token.lower() for token in sentence.tokens] for sentence in truth.sentences]
        captions, found = _captions(bundle, scene, sentences, len(boxes)), _found(bundle, scene, sentences, len(boxes))
        yield Heard(truth, truth.size, boxes, captions, found)


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


def _found(bundle: Bundle, scene: SceneBatch, sentences: list[list[str]], count: int) -> list[Array | None]:
    finds = bundle.matcher
    if finds is None or not isinstance(finds.model, AligningMatcher):
        return [None] * len(sentences)
    texts = TextBatch.collate(sentences, finds.vocabulary).to(scene.part("boxes").device)
    images = finds.model.embed_images(scene)
    images = {name: part.expand(len(texts), *part.shape[1:]) for name, part in images.items()}
    told = finds.model.alignment(images, finds.model.embed_texts(texts)) * (texts.ids != UNK)[..., None]
    weights = told[:, 1:, :count].float().cpu().numpy()  # START is first
    return [weights[row, : len(words)] for row, words in enumerate(sentences)]
