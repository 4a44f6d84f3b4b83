"""Do words point at the right boxes? Attention accuracy on people's sentences, F1 on the model's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import Caption
from sightline.errors import ConfigError
from sightline.grounding import GroundedPhoto
from sightline.learning.tables import Mark, Pool
from sightline.metrics.grounding import AccuracyScores, AttentionAccuracy, GroundingF1, mentions
from sightline.metrics.per_image import PRECISION, RECALL, PerImage
from sightline.models.captioner import Captioner
from sightline.models.matcher import AligningMatcher
from sightline.scene import Box
from sightline.text.vocabulary import Vocabulary

Grounded = Mapping[str, GroundedPhoto]
Attended = Callable[[SceneBatch, TextBatch, GroundedPhoto], Tensor]  # (sentences, words, regions)


def accuracy_of_captioner(
    model: Captioner, vocabulary: Vocabulary, pool: Pool, grounded: Grounded, per_image: PerImage | None = None
) -> dict[str, float]:
    """Teacher-force people's sentences; does the region a word attends to most overlap the word's box?"""

    def attended(scenes: SceneBatch, texts: TextBatch, photo: GroundedPhoto) -> Tensor:
        regions: Tensor | None = model(model.encode(scenes), texts.ids).trace.regions
        if regions is None:
            raise ConfigError("this captioner attends to no regions", fix="measure grounding on one that does")
        return regions  # (S, T, n): step t predicts word t

    return _told(_accuracy(attended, None, next(model.parameters()).device, vocabulary, pool, grounded, per_image))


def accuracy_of_matcher(
    model: AligningMatcher,
    vocabulary: Vocabulary,
    pool: Pool,
    grounded: Grounded,
    per_image: PerImage | None = None,
) -> dict[str, float]:
    """The same for a matcher's alignment; annotated words take part whatever the tagger calls them."""

    def attended(scenes: SceneBatch, texts: TextBatch, photo: GroundedPhoto) -> Tensor:
        forced = torch.zeros_like(texts.mask)
        for row, sentence in zip(forced, photo.sentences, strict=True):
            for word in sentence.words:
                row[word.index + 1] = True
        images = {name: part.expand(len(texts), *part.shape[1:]) for name, part in model.embed_images(scenes).items()}
        return model.alignment(images, model.embed_texts(texts), forced)[:, 1:]  # START is no word

    mark: Mark | None = getattr(model.config, "mark", None)  # POS-SCAN's parts of speech
    return _told(_accuracy(attended, mark, next(model.parameters()).device, vocabulary, pool, grounded, per_image))


def _accuracy(
    attended: Attended,
    mark: Mark | None,
    device: torch.device,
    vocabulary: Vocabulary,
    pool: Pool,
    grounded: Grounded,
    per_image: PerImage | None,
) -> AccuracyScores:
    metric = AttentionAccuracy()
    for row, id in enumerate(pool.ids):
        photo = grounded.get(id)
        if photo is None or photo.size is None or not photo.sentences:
            continue
        assert pool.scenes is not None
        scenes = pool.scenes.batch(torch.tensor([row])).to(device)
        boxes = _pixel_boxes(scenes, photo.size)
        sentences = [[token.lower() for token in sentence.tokens] for sentence in photo.sentences]
        texts = TextBatch.collate(sentences, vocabulary, mark=mark).to(device)
        best = attended(scenes, texts, photo).argmax(-1).tolist()
        pointed = [
            {word.index: boxes[best[number][word.index]] for word in sentence.words}
            for number, sentence in enumerate(photo.sentences)
        ]
        metric.update(photo, pointed, boxes)
    if per_image is not None:
        per_image.add_classes("attention accuracy", metric.by_class())
    return metric.compute()


def f1_of_captions(
    said: Mapping[str, Caption], pool: Pool, grounded: Grounded, per_image: PerImage | None = None
) -> dict[str, float]:
    """F1_all and F1_loc of generated captions that carry their attention."""
    classes = {word.label for photo in grounded.values() for sentence in photo.sentences for word in sentence.words}
    metric = GroundingF1()
    for row, id in enumerate(pool.ids):
        photo = grounded.get(id)
        if photo is None or photo.size is None or not photo.sentences:
            continue
        assert pool.scenes is not None
        scenes = pool.scenes.batch(torch.tensor([row]))
        pixel = _pixel_boxes(scenes, (1, 1))
        caption = _pointing(said[id], pixel)
        metric.update(photo, mentions(caption, photo.size, classes), _pixel_boxes(scenes, photo.size))
    if per_image is not None:
        for name in ("all", "loc"):
            for part in (PRECISION, RECALL):
                kind = f"{part.strip()}_{name}"
                per_image.add_classes(f"F1_{name}{part}", metric.by_class(kind), metric.classes)
    scores = metric.compute()
    return {
        "F1_all": 100 * scores.f1_all,
        "F1_loc": 100 * scores.f1_loc,
        "F1_all micro": 100 * scores.f1_all_micro,
        "F1_loc micro": 100 * scores.f1_loc_micro,
    }


def _pointing(caption: Caption, boxes: Sequence[Box]) -> Caption:
    """The caption with each word at the box it attends to most."""
    trace = tuple(
        word if word.regions is None else replace(word, box=boxes[int(word.regions.argmax())]) for word in caption.trace
    )
    return Caption(caption.words, caption.log_prob, trace)


def _pixel_boxes(scenes: SceneBatch, size: tuple[int, int]) -> list[Box]:
    boxes = scenes.part("boxes", by="grounding")[0]
    mask = scenes.part("region_mask", by="grounding")[0]
    width, height = size
    return [(x1 * width, y1 * height, x2 * width, y2 * height) for x1, y1, x2, y2 in boxes[mask].float().cpu().tolist()]


def _told(scores: AccuracyScores) -> dict[str, float]:
    told = {"attention accuracy": 100 * scores.accuracy.macro, "attention accuracy micro": 100 * scores.accuracy.micro}
    if scores.oracle is not None:
        told["attention oracle"] = 100 * scores.oracle.macro
    return told
