"""Which regions truly show a word: tables that box supervision learns from, and metrics of where a model looks.

    pool = replace(pool, positives=word_overlaps(pool, {photo.id: photo for photo in annotated}))

A table holds overlaps rather than yes and no, so that every form of supervision can be made from it: a region is
positive where its IoU is above 0.5 (`POSITIVE`), the best one is the largest, and a softmax of them is soft. Attention
accuracy is measured on people's sentences, F1 on the model's own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import Caption
from sightline.data.records import GroundedPhoto, GroundedSentence
from sightline.errors import ConfigError, CountError, DataError
from sightline.metrics.bootstrap import PRECISION, RECALL, PerImage
from sightline.metrics.grounding_accuracy import AttentionAccuracy, GroundingF1, mentions
from sightline.models.captioner import Captioner
from sightline.models.matcher import AligningMatcher
from sightline.scene import Array, Box, box_iou
from sightline.text.vocabulary import Rule, Vocabulary
from sightline.training.tensor_tables import Pool

POSITIVE = 0.5  # a region shows a thing if its IoU is strictly above
UNKNOWN = -1.0  # rows of words that nobody annotated
PHOTOS = 64  # whose scenes are read at once


def word_overlaps(pool: Pool, photos: Mapping[str, GroundedPhoto]) -> dict[int, Tensor]:
    """For each caption row of `pool` with annotated words, their overlap with its image's regions.

    Returns: by caption row (t, n) float32, t ids up to the last annotated word (START is the first): the IoU of each
    region with the nearest of the word's boxes, -1 in the rows of other words. Captions without any are left out.
    """
    texts, first = pool.captions("grounding")
    annotated = [row for row, id in enumerate(pool.ids) if id in photos]
    tables: dict[int, Tensor] = {}
    for start in range(0, len(annotated), PHOTOS):
        rows = annotated[start : start + PHOTOS]
        scenes = pool.scene_batch(torch.tensor(rows))
        boxes, mask = scenes.part("boxes", by="grounding").cpu(), scenes.part("region_mask", by="grounding").cpu()
        sizes = scenes.part("sizes", by="grounding").tolist()
        for row, box, real, size in zip(rows, boxes, mask, sizes, strict=True):
            photo = photos[pool.ids[row]]
            regions = box[real].double().numpy() * _scale(photo, size)  # (n, 4) pixels
            for caption in range(int(first[row]), int(first[row + 1])):
                table = _table(texts.words[caption], photo.sentences, regions)
                if table is not None:
                    tables[caption] = table
    return tables


def overlaps(regions: Array, boxes: Sequence[Box]) -> Array:
    """(n,) IoU of regions (n, 4) with the nearest of `boxes`, in pixels, borders counted (the +1 convention)."""
    nearest: Array = box_iou(np.asarray(regions, np.float64), np.asarray(boxes, np.float64), border=1).max(1)
    return nearest


def align(words: Sequence[str], tokens: Sequence[str]) -> list[int] | None:
    """For each of `tokens` the place in `words` that holds it, -1 where none does: two splits of one sentence.

    They are compared by letters and digits alone, whatever the case, so that punctuation may be kept, dropped or glued;
    `words` may be cut at its end. A token that is spread over several words belongs to the one with most of it. None
    where the sentences differ.

    >>> align(["a", "tshirt", "is", "hung"], ["A", "T-shirt", "is", "hung", "up", "."])
    [0, 1, 2, 3, -1, -1]
    """
    word_letters, token_letters = [letters(word) for word in words], [letters(token) for token in tokens]
    if not "".join(token_letters).startswith("".join(word_letters)):
        return None
    word_of = [place for place, word in enumerate(word_letters) for _ in word]  # of each character
    places, start = [], 0
    for token in token_letters:
        holders = word_of[start : start + len(token)]
        places.append(max(holders, key=holders.count) if holders else -1)
        start += len(token)
    return places


@lru_cache(maxsize=1 << 16)
def letters(word: str) -> str:
    return "".join(character for character in word.lower() if character.isalnum())


def _scale(photo: GroundedPhoto, size: Sequence[int]) -> Array:
    """What normalised boxes are multiplied by: the annotation's own size, else the scene's."""
    width, height = photo.size or size
    if width <= 0 or height <= 0:
        fix = "give annotations or features that hold the photo's original size"
        raise DataError("its size in pixels is unknown", where=f"image {photo.id}", fix=fix)
    return np.array([width, height, width, height], np.float64)


def _table(words: Sequence[str], sentences: Sequence[GroundedSentence], regions: Array) -> Tensor | None:
    """(t, n) overlaps of a caption's words; None if it is none of the sentences, or its annotated words are cut off.

    Sentences are found by what they say: in files of the same photos their order differs.
    """
    for sentence in sentences:
        places = align(words, sentence.tokens)
        if places is not None:
            break
    else:
        return None
    grounded: dict[int, Array] = {}
    for word in sentence.words:
        if not 0 <= word.index < len(places):
            raise CountError(f"word {word.index} is annotated, of {len(places)}", where=" ".join(sentence.tokens))
        place = places[word.index]
        if place >= 0 and word.boxes:
            best = overlaps(regions, word.boxes)
            grounded[place] = np.maximum(grounded.get(place, best), best)  # two annotated tokens may be in one word
    if not grounded:
        return None
    table = torch.full((max(grounded) + 2, len(regions)), UNKNOWN)
    for place, values in grounded.items():
        table[place + 1] = torch.from_numpy(values)
    return table


def attention_accuracy(
    model: Captioner | AligningMatcher,
    vocabulary: Vocabulary,
    rule: Rule,
    pool: Pool,
    grounded: Mapping[str, GroundedPhoto],
    per_image: PerImage | None = None,
) -> dict[str, float]:
    """On people's sentences, does the region a word attends to most overlap the word's box?

    Sentences are split by `rule`, that of the model's training captions, and are not cut. A captioner is
    teacher-forced; of a matcher it is the alignment, and annotated words take part whatever the tagger calls them:
    `forced words` is the share of those that are not of its parts of speech.
    """
    mark = getattr(model.config, "mark", None) if isinstance(model, AligningMatcher) else None  # POS-SCAN's nouns
    device = next(model.parameters()).device
    metric, tagged, total = AttentionAccuracy(), 0, 0
    for row, photo, size, scenes in _annotated_photos(pool, grounded):
        boxes = _pixel_boxes(scenes, size)
        captions = pool.references[row] if pool.references else ()
        split = [split_tokens(sentence.tokens, captions, rule) for sentence in photo.sentences]
        texts = TextBatch.collate([words for words, _ in split], vocabulary, mark=mark)
        places = [places for _, places in split]
        annotated = torch.zeros_like(texts.mask)
        for number, sentence in enumerate(photo.sentences):
            for word in sentence.words:
                annotated[number, places[number][word.index] + 1] = True
        annotated[:, 0] = False  # where a token without a place was written
        total += int(annotated.sum())
        tagged += int((annotated if texts.tagged is None else annotated & texts.tagged).sum())
        best = _attended(model, scenes.to(device), texts.to(device), annotated.to(device)).argmax(-1).tolist()
        pointed = [
            {word.index: boxes[best[number][at]] for word in sentence.words if (at := places[number][word.index]) >= 0}
            for number, sentence in enumerate(photo.sentences)
        ]
        metric.update(photo, pointed, boxes)
    if per_image is not None:
        per_image.add_classes("attention accuracy", metric.by_class())
    scores = metric.compute()
    metrics: dict[str, float] = {}
    for name, rate in (("attention accuracy", scores.accuracy), ("attention oracle", scores.oracle)):
        metrics |= {name: 100 * rate.macro, f"{name} micro": 100 * rate.micro}
    return metrics if mark is None else metrics | {"forced words": 100 * (1 - tagged / max(1, total))}


def _attended(model: Captioner | AligningMatcher, scenes: SceneBatch, texts: TextBatch, annotated: Tensor) -> Tensor:
    """(S, T, n) the regions that the words of S sentences of one photo attend to."""
    if isinstance(model, AligningMatcher):
        images = {name: part.expand(len(texts), *part.shape[1:]) for name, part in model.embed_images(scenes).items()}
        return model.alignment(images, model.embed_texts(texts), annotated)[:, 1:]  # START is no word
    regions: Tensor | None = model(model.encode(scenes), texts.ids).trace.regions
    if regions is None:
        raise ConfigError("this captioner attends to no regions", fix="measure grounding on one that does")
    return regions  # step t predicts word t


def split_tokens(tokens: Sequence[str], captions: Sequence[str], rule: Rule) -> tuple[list[str], list[int]]:
    """The words of a sentence by `rule`, and the place of each of its tokens among them, -1 where none is.

    They are those of the caption that says the same; where none does, the rule splits token by token.
    """
    for caption in captions:
        if letters(caption) == letters("".join(tokens)):
            words = rule.all_words(caption)
            places = align(words, tokens) if words else None
            if places is not None:
                return words, places
    words, places = [], []
    for token in tokens:
        part = rule.all_words(token)
        words += part
        places.append(len(words) - 1 if part else -1)
    return words, places


def f1_of_captions(
    captions: Mapping[str, Caption],
    pool: Pool,
    grounded: Mapping[str, GroundedPhoto],
    per_image: PerImage | None = None,
) -> dict[str, float]:
    """F1_all and F1_loc of generated captions that carry their attention: a word is at the box it attends to most."""
    classes = {word.label for photo in grounded.values() for sentence in photo.sentences for word in sentence.words}
    metric = GroundingF1()
    for _, photo, size, scenes in _annotated_photos(pool, grounded):
        boxes, caption = _pixel_boxes(scenes, (1, 1)), captions[photo.id]
        trace = tuple(
            word if word.regions is None else replace(word, box=boxes[int(word.regions.argmax())])
            for word in caption.trace
        )
        metric.update(photo, mentions(Caption(caption.words, caption.log_prob, trace), size, classes))
    if per_image is not None:
        for name in ("all", "loc"):
            for part in (PRECISION, RECALL):
                kind = f"{part.strip()}_{name}"
                per_image.add_classes(f"F1_{name}{part}", metric.by_class(kind), metric.classes)
    return metric.compute().f1()


def _annotated_photos(
    pool: Pool, grounded: Mapping[str, GroundedPhoto]
) -> Iterator[tuple[int, GroundedPhoto, tuple[int, int], SceneBatch]]:
    """The photos of a pool with annotated sentences: row, annotation, size in pixels, scene."""
    for row, id in enumerate(pool.ids):
        photo = grounded.get(id)
        if photo is not None and photo.size is not None and photo.sentences:
            yield row, photo, photo.size, pool.scene_batch(torch.tensor([row]))


def _pixel_boxes(scenes: SceneBatch, size: tuple[int, int]) -> list[Box]:
    boxes, mask = scenes.part("boxes", by="grounding")[0], scenes.part("region_mask", by="grounding")[0]
    width, height = size
    return [(x1 * width, y1 * height, x2 * width, y2 * height) for x1, y1, x2, y2 in boxes[mask].float().cpu().tolist()]
