"""Do words point at the right boxes? Attention accuracy on people's sentences, F1 on the model's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import Caption
from sightline.data.records import GroundedPhoto, GroundedSentence
from sightline.errors import ConfigError
from sightline.metrics.bootstrap import PRECISION, RECALL, PerImage
from sightline.metrics.grounding_accuracy import AccuracyScores, AttentionAccuracy, GroundingF1, mentions
from sightline.models.captioner import Captioner
from sightline.models.matcher import AligningMatcher
from sightline.scene import Box
from sightline.text.vocabulary import Rule, Vocabulary
from sightline.training.positives import align, letters
from sightline.training.tensor_tables import Mark, Pool

GroundedSplit = Mapping[str, GroundedPhoto]
AttentionBoxes = Callable[[SceneBatch, TextBatch, Tensor], Tensor]  # with annotated places: (sentences, words, regions)


def accuracy_of_captioner(
    model: Captioner,
    vocabulary: Vocabulary,
    rule: Rule,
    pool: Pool,
    grounded: GroundedSplit,
    per_image: PerImage | None = None,
) -> dict[str, float]:
    """Teacher-force people's sentences; does the region a word attends to most overlap the word's box?

    Sentences are split by `rule`, that of the model's training captions, and are not cut.
    """

    def attended(scenes: SceneBatch, texts: TextBatch, annotated: Tensor) -> Tensor:
        regions: Tensor | None = model(model.encode(scenes), texts.ids).trace.regions
        if regions is None:
            raise ConfigError("this captioner attends to no regions", fix="measure grounding on one that does")
        return regions  # (S, T, n): step t predicts word t

    splits = _Splits(vocabulary, rule)
    return _as_percentages(_accuracy(attended, splits, next(model.parameters()).device, pool, grounded, per_image))


def accuracy_of_matcher(
    model: AligningMatcher,
    vocabulary: Vocabulary,
    rule: Rule,
    pool: Pool,
    grounded: GroundedSplit,
    per_image: PerImage | None = None,
) -> dict[str, float]:
    """The same for a matcher's alignment; annotated words take part whatever the tagger calls them.

    `forced words` is the share of annotated words that are not of the matcher's parts of speech.
    """
    tagged = annotated_words = 0

    def attended(scenes: SceneBatch, texts: TextBatch, annotated: Tensor) -> Tensor:
        nonlocal tagged, annotated_words
        annotated_words += int(annotated.sum())
        tagged += int((annotated if texts.tagged is None else annotated & texts.tagged).sum())
        images = {name: part.expand(len(texts), *part.shape[1:]) for name, part in model.embed_images(scenes).items()}
        return model.alignment(images, model.embed_texts(texts), annotated)[:, 1:]  # START is no word

    splits = _Splits(vocabulary, rule, getattr(model.config, "mark", None))  # POS-SCAN's parts of speech
    scores = _as_percentages(_accuracy(attended, splits, next(model.parameters()).device, pool, grounded, per_image))
    if splits.mark is not None:
        scores["forced words"] = 100 * (1 - tagged / max(1, annotated_words))
    return scores


@dataclass(frozen=True)
class _Splits:
    """How a model reads sentences: its words, the rule that splits them, and what marks parts of speech."""

    vocabulary: Vocabulary
    rule: Rule
    mark: Mark | None = None

    def read(self, sentences: Sequence[GroundedSentence], captions: Sequence[str]) -> tuple[TextBatch, list[list[int]]]:
        """The sentences as the model reads them, and for each the place of each of its tokens, -1 where none is."""
        texts = {letters(text): text for text in captions}
        both = [self._split(sentence.tokens, texts.get(letters("".join(sentence.tokens)))) for sentence in sentences]
        batch = TextBatch.collate([words for words, _ in both], self.vocabulary, mark=self.mark)
        return batch, [places for _, places in both]

    def _split(self, tokens: Sequence[str], text: str | None) -> tuple[list[str], list[int]]:
        """Words and the places of tokens, from the caption that says the same; token by token where none does."""
        words = [] if text is None else self.rule.all_words(text)
        places = align(words, tokens) if words else None
        if places is not None:
            return words, places
        parts = [self.rule.all_words(token) for token in tokens]
        ends = accumulate(map(len, parts))
        return [word for part in parts for word in part], [
            end - 1 if part else -1 for part, end in zip(parts, ends, strict=True)
        ]


def _accuracy(
    attended: AttentionBoxes,
    splits: _Splits,
    device: torch.device,
    pool: Pool,
    grounded: GroundedSplit,
    per_image: PerImage | None = None,
) -> AccuracyScores:
    metric = AttentionAccuracy()
    for row, id in enumerate(pool.ids):
        photo = grounded.get(id)
        if photo is None or photo.size is None or not photo.sentences:
            continue
        assert pool.scenes is not None
        scenes = pool.scenes.batch(torch.tensor([row])).to(device)
        boxes = _pixel_boxes(scenes, photo.size)
        texts, places = splits.read(photo.sentences, pool.references[row] if pool.references else ())
        annotated = torch.zeros_like(texts.mask)
        for number, sentence in enumerate(photo.sentences):
            for word in sentence.words:
                annotated[number, places[number][word.index] + 1] = True
        annotated[:, 0] = False  # where a token without a place was written
        best = attended(scenes, texts.to(device), annotated.to(device)).argmax(-1).tolist()
        pointed = [
            {word.index: boxes[best[number][at]] for word in sentence.words if (at := places[number][word.index]) >= 0}
            for number, sentence in enumerate(photo.sentences)
        ]
        metric.update(photo, pointed, boxes)
    if per_image is not None:
        per_image.add_classes("attention accuracy", metric.by_class())
    return metric.compute()


def f1_of_captions(
    said: Mapping[str, Caption], pool: Pool, grounded: GroundedSplit, per_image: PerImage | None = None
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


def _as_percentages(scores: AccuracyScores) -> dict[str, float]:
    found = {"attention accuracy": 100 * scores.accuracy.macro, "attention accuracy micro": 100 * scores.accuracy.micro}
    if scores.oracle is not None:
        found |= {
            "attention oracle": 100 * scores.oracle.macro,
            "attention oracle micro": 100 * scores.oracle.micro,
        }
    return found
