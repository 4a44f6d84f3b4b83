"""Where the words of a caption point: which box, or boxes, and how sure that is.

Each region has a share of 1 of a word. A word pointer (`sightline.models.word_pointer`) has learned these shares, and
how far the thing reaches. Where there is none, or the matcher does not know the word, they are evidence: what the
captioner looked at when it said the word, mixed with where the matcher finds it, and weighed by how surely a region is
a thing at all, and by how probably the detector gives it the word's name. The best region gets the word. Its score is
the share that it has together with the regions that overlap it by half or more: boxes of one thing divide it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import Caption, WordTrace
from sightline.config import check_ranges
from sightline.grounding.nouns import box_counts, known_nouns, may_share, noun_tags
from sightline.grounding.photo_evidence import name_regions
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import Reader
from sightline.models.matcher import AligningMatcher, Embedding, Matcher
from sightline.models.word_pointer import WordPointer
from sightline.scene import Array, as_box, box_iou
from sightline.text.tagger import NOUNS
from sightline.text.vocabulary import UNK
from sightline.vision.encoder import VisionModel

SAME = 0.5  # boxes of this IoU show the same thing
DOUBLE = 0.7  # boxes of this IoU are as good as one box: two words do not have both
# A plural's further boxes have at least this part of the first one's share, and overlap no box of the word by more than
# this IoU. In a sweep on Flickr8k's dev photos, plurals without a number: 35 % of people's boxes found, 53 % of ours
# right. 0.3 finds more (38 %, 50 % right) and has the better F1 by a point; fewer wrong boxes are preferred here.
FURTHER, APART = 0.4, 0.2


class WordBoxes(NamedTuple):
    """What a word pointer makes of a word."""

    weights: Array  # (n,) shares of 1
    boxes: Array  # (n, 4) the regions, as far as the thing that the word names would reach


@dataclass(frozen=True)
class BoxChooser:
    """The rule by which boxes are chosen, and its numbers."""

    matcher: float = 0.5  # the matcher's part of the evidence, the rest is the captioner's; 0 without a matcher
    least: float = 0.15  # a word whose box has a smaller score than this points nowhere
    # Evidence is multiplied by a region's score to this power. More than 1 would draw words to what catches the eye,
    # whatever they name.
    objectness: float = 1.0
    name: float = 0.5  # and by the probability of the word's name there, to this power

    def __post_init__(self) -> None:
        check_ranges(self, "pointing.", **dict.fromkeys(("matcher", "least", "objectness", "name"), "[0, 1]"))

    def point(
        self,
        caption: Caption,  # its words carry attention over regions; if not, the matcher's weights count alone
        most: Sequence[int],  # how many boxes each of its words may have
        boxes: Array,  # (n, 4) of the scene
        alignment: Array | None = None,  # (words, n) the matcher's weights of regions; zeros for words unknown to it
        *,
        scores: Array | None = None,  # (n,) how sure the detector is of each box
        named: Array | None = None,  # (words, n) probabilities of each word's name; ones where it has no name for it
        learned: Mapping[int, WordBoxes] | None = None,  # of the words that a pointer knows, by their places
    ) -> Caption:
        """The caption with normalised boxes and a score for each word that passes."""
        if not len(boxes):
            return caption
        overlaps = box_iou(boxes, boxes)  # (n, n)
        np.fill_diagonal(overlaps, 1)  # of boxes without area too
        learned, weights = learned or {}, dict[int, Array]()
        places = {at: learned[at].boxes if at in learned else boxes for at in np.flatnonzero(most).tolist()}
        for at in places:
            if at in learned:
                weights[at] = learned[at].weights
                continue
            evidence = self._evidence(caption.trace[at], None if alignment is None else alignment[at])
            if evidence is not None:
                weights[at] = self._weigh(evidence, scores, None if named is None else named[at])
        best = self._best_regions(caption.words, weights, places, overlaps)
        trace = list(caption.trace)
        for at, region in best.items():
            holders = [other for other in best if other != at and not may_share(caption.words, at, other)]
            taken = [places[other][best[other]] for other in holders]
            others = _further_regions(weights[at], region, taken, places[at], most[at] - 1)
            trace[at] = replace(
                trace[at],
                box=as_box(places[at][region]),
                score=min(1.0, _share_around(weights[at], region, overlaps)),
                others=tuple(as_box(places[at][other]) for other in others),
            )
        return replace(caption, trace=tuple(trace))

    def _evidence(self, word: WordTrace, alignment: Array | None) -> Array | None:
        """(n,) shares of 1 by captioner and matcher, or None where neither knows the word."""
        by_captioner, by_matcher = _shares(word.regions), _shares(alignment)
        if by_captioner is None or by_matcher is None:
            return by_matcher if by_captioner is None else by_captioner
        mixed: Array = (1 - self.matcher) * by_captioner + self.matcher * by_matcher
        return mixed

    def _weigh(self, evidence: Array, scores: Array | None, named: Array | None) -> Array:
        """(n,) shares of 1: evidence × objectness × √P(name), by the usual powers."""
        weighed = evidence
        if scores is not None:
            weighed = weighed * scores**self.objectness
        if named is not None:
            weighed = weighed * named**self.name
        shares = _shares(weighed)
        return evidence if shares is None else shares

    def _best_regions(
        self, words: Sequence[str], weights: dict[int, Array], places: dict[int, Array], overlaps: Array
    ) -> dict[int, int]:
        """Each word's region, the surest word first; what another word has is free only to words that may share it."""
        best: dict[int, int] = {}
        for at in sorted(weights, key=lambda at: -float(weights[at].max())):
            free = weights[at].copy()
            while free.any():
                region = int(free.argmax())
                if all(
                    may_share(words, at, other) or _overlap(places[at][region], places[other][held]) < DOUBLE
                    for other, held in best.items()
                ):
                    if _share_around(weights[at], region, overlaps) >= self.least:
                        best[at] = region
                    break
                free[region] = 0
        return best


def _share_around(weights: Array, region: int, overlaps: Array) -> float:
    """What a region has, with those that show the same thing."""
    return float(weights[overlaps[region] >= SAME].sum())


def _further_regions(weights: Array, first: int, taken: list[Array], boxes: Array, count: int) -> list[int]:
    """The next best regions of a word, at most `count`: apart from each other, and none that another word has."""
    chosen = [first]
    for region in np.argsort(-weights).tolist():
        if len(chosen) > count or weights[region] < FURTHER * weights[first]:
            break
        apart = all(_overlap(boxes[region], boxes[other]) <= APART for other in chosen)
        if apart and all(_overlap(boxes[region], box) < DOUBLE for box in taken):
            chosen.append(region)
    return chosen[1:]


def _overlap(one: Array, other: Array) -> float:
    """The IoU of two boxes; the same box twice has 1, without area too."""
    return 1.0 if np.array_equal(one, other) else float(box_iou(one[None], other[None])[0, 0])


def _shares(weights: Array | None) -> Array | None:
    """Weights as shares of 1; None where there are none."""
    total = 0.0 if weights is None else float(weights.sum())
    return None if weights is None or not total > 0 else weights / total


class GroundingModels(Protocol):
    """What grounding uses of a bundle (`sightline.checkpoint.bundle.Bundle`), which is a room above."""

    @property
    def vision(self) -> VisionModel: ...
    @property
    def captioner(self) -> Reader[Captioner]: ...
    @property
    def matcher(self) -> Reader[Matcher] | None: ...
    @property
    def pointer(self) -> WordPointer | None: ...
    @property
    def pointing(self) -> BoxChooser: ...


def choose_boxes(
    bundle: GroundingModels,
    captions: Sequence[Caption],
    scenes: SceneBatch,
    rule: BoxChooser | None = None,
    images: Embedding | None = None,  # what the matcher makes of the scenes, where that is known
) -> list[Caption]:
    """Captions, one a scene, or several of one scene, their nouns pointing at boxes by `rule`, or the bundle's own."""
    tags = noun_tags([caption.words for caption in captions])
    counts = [box_counts(caption.words, own) for caption, own in zip(captions, tags, strict=True)]
    rule = bundle.pointing if rule is None else rule
    boxes = scenes.part("boxes").float().cpu().numpy()
    scores = None if scenes.scores is None else scenes.scores.float().cpu().numpy()
    sizes = scenes.mask("boxes").sum(1).tolist()
    alignment, learned = _find_words(bundle, captions, tags, counts, scenes, images)
    results = []
    for i, caption in enumerate(captions):
        photo = i % len(sizes)
        n, most = sizes[photo], counts[i]
        aligned = None if alignment is None else alignment[i, 1 : len(caption) + 1, :n]
        sure = None if scores is None else scores[photo, :n]
        own = {at: WordBoxes(word.weights[:n], word.boxes[:n]) for at, word in learned[i].items()}
        by_rule = [0 if at in own else count for at, count in enumerate(most)]
        named = name_regions(bundle.vision, scenes, photo, caption.words, by_rule)
        results.append(rule.point(caption, most, boxes[photo, :n], aligned, scores=sure, named=named, learned=own))
    return results


def _find_words(
    bundle: GroundingModels,
    captions: Sequence[Caption],
    tags: list[list[str]],
    counts: list[list[int]],
    scenes: SceneBatch,
    images: Embedding | None,
) -> tuple[Array | None, list[dict[int, WordBoxes]]]:
    """Where each word is: (B, T, n) by the matcher, START first, zeros for words that it does not know; with a pointer,
    by that instead, and of each caption's words that get boxes and that the matcher knows.
    """
    matcher, nothing = bundle.matcher, [dict[int, WordBoxes]() for _ in captions]
    if matcher is None or not isinstance(matcher.model, AligningMatcher):
        return None, nothing
    nouns = [[tag in NOUNS for tag in own_tags] for own_tags in tags]
    vocabulary = matcher.vocabulary
    words = [known_nouns(caption.words, own, vocabulary) for caption, own in zip(captions, nouns, strict=True)]
    images = matcher.model.embed_images(scenes) if images is None else images
    texts = TextBatch.collate(words, vocabulary, mark=lambda _: nouns).to(scenes.part("boxes").device)
    embedded = matcher.model.embed_texts(texts)
    if bundle.pointer is not None and scenes.scores is not None:
        known = [
            [at for at, count in enumerate(most) if count and ids[at + 1] != UNK]
            for ids, most in zip(texts.ids.tolist(), counts, strict=True)
        ]
        return None, point_words(bundle.pointer, embedded["words"], known, images, scenes)
    if len(captions) != len(scenes):
        images = {name: part.expand(len(captions), *part.shape[1:]) for name, part in images.items()}
    weights = matcher.model.alignment(images, embedded)
    aligned: Array = (weights * (texts.ids != UNK)[..., None]).float().cpu().numpy()
    return aligned, nothing


def point_words(
    pointer: WordPointer, words: torch.Tensor, wanted: Sequence[Sequence[int]], images: Embedding, scenes: SceneBatch
) -> list[dict[int, WordBoxes]]:
    """Where the wanted words of each sentence are, by their places, from a matcher's vectors (B, T, d), START first."""
    most = max(map(len, wanted), default=0)
    if not most:
        return [{} for _ in wanted]
    places = torch.tensor([[at + 1 for at in own] + [0] * (most - len(own)) for own in wanted], device=words.device)
    chosen = words.gather(1, places.unsqueeze(2).expand(-1, -1, words.shape[2]))  # (B, most, d)
    pointed = pointer.point(images, chosen, scenes)
    weights, boxes = pointed.weights.float().cpu().numpy(), pointed.boxes.float().cpu().numpy()
    return [
        {at: WordBoxes(weights[row, k], boxes[row, k]) for k, at in enumerate(own)} for row, own in enumerate(wanted)
    ]
