"""Captions whose nouns point at boxes: the captioner's attention and the matcher's, by the bundle's rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import Caption
from sightline.grounding.box_chooser import BoxChooser
from sightline.grounding.noun_kinds import known_nouns
from sightline.grounding.nouns import box_counts, noun_tags
from sightline.grounding.region_names import name_regions
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import Reader
from sightline.models.matcher import AligningMatcher, Embedding, Matcher
from sightline.scene import Array
from sightline.text.tagger import NOUNS
from sightline.text.vocabulary import UNK
from sightline.vision.encoder import VisionModel


class GroundingModels(Protocol):
    """What grounding uses of a bundle (`sightline.checkpoint.bundle.Bundle`), which is a room above."""

    @property
    def vision(self) -> VisionModel: ...

    @property
    def captioner(self) -> Reader[Captioner]: ...

    @property
    def matcher(self) -> Reader[Matcher] | None: ...

    @property
    def pointing(self) -> BoxChooser: ...


def choose_boxes(
    bundle: GroundingModels,
    captions: Sequence[Caption],
    scenes: SceneBatch,
    rule: BoxChooser | None = None,
    images: Embedding | None = None,
) -> list[Caption]:
    """Captions, one a scene, or several of one scene, their nouns pointing at boxes by `rule`, or the bundle's own.

    `images` is what the matcher makes of the scenes, where that is known.
    """
    tags = noun_tags([caption.words for caption in captions])
    rule = bundle.pointing if rule is None else rule
    boxes = scenes.part("boxes").float().cpu().numpy()
    scores = None if scenes.scores is None else scenes.scores.float().cpu().numpy()
    counts = scenes.mask("boxes").sum(1).tolist()
    alignment = _alignment(bundle, captions, tags, scenes, images)
    results = []
    for i, caption in enumerate(captions):
        photo = i % len(counts)
        n, most = counts[photo], box_counts(caption.words, tags[i])
        results.append(
            rule.point(
                caption,
                most,
                boxes[photo, :n],
                None if alignment is None else alignment[i, 1 : len(caption) + 1, :n],
                scores=None if scores is None else scores[photo, :n],
                named=name_regions(bundle.vision, scenes, photo, caption.words, most),
            )
        )
    return results


def _alignment(
    bundle: GroundingModels,
    captions: Sequence[Caption],
    tags: list[list[str]],
    scenes: SceneBatch,
    images: Embedding | None,
) -> Array | None:
    """(B, T, n) where the matcher finds each word, START first; zeros for words that it does not know."""
    matcher = bundle.matcher
    if matcher is None or not isinstance(matcher.model, AligningMatcher):
        return None
    nouns = [[tag in NOUNS for tag in own_tags] for own_tags in tags]
    vocabulary = matcher.vocabulary
    words = [known_nouns(caption.words, own, vocabulary) for caption, own in zip(captions, nouns, strict=True)]
    images = matcher.model.embed_images(scenes) if images is None else images
    texts = TextBatch.collate(words, vocabulary, mark=lambda _: nouns).to(scenes.part("boxes").device)
    if len(captions) != len(scenes):
        images = {name: part.expand(len(captions), *part.shape[1:]) for name, part in images.items()}
    weights = matcher.model.alignment(images, matcher.model.embed_texts(texts))
    known: Array = (weights * (texts.ids != UNK)[..., None]).float().cpu().numpy()
    return known
