"""Do words point at the right boxes? Attention accuracy on given sentences, and F1 on generated ones.

The rules are those of the GVD evaluation of Flickr30k Entities (Zhou et al. 2019), without CoreNLP:
- IoU counts pixels inclusively (+1), and a box is right if its IoU is strictly above 0.5;
- a thing with several boxes is found if any of them is;
- numbers are averaged per class, then over classes (macro); the plain average over words (micro) stands beside.
"""

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sightline.caption import Caption
from sightline.data.records import GroundedPhoto, GroundedPrediction
from sightline.errors import CountError, DuplicateRecordError, MissingRecordError
from sightline.scene import Box, box_iou
from sightline.text.lemmas import lemma
from sightline.text.tagger import NOUNS, Tagger

THRESHOLD = 0.5  # IoU above which a box is right


def overlaps_enough(boxes: Sequence[Box], truth: Sequence[Box]) -> bool:
    """Whether one of `boxes` meets one of the `truth` with IoU > 0.5, borders counted."""
    if not len(boxes) or not truth:
        return False
    overlaps = box_iou(np.asarray(boxes, np.float64), np.asarray(truth, np.float64), border=1)
    return bool((overlaps > THRESHOLD).any())


@dataclass(frozen=True)
class Rate:
    """A share of words in [0, 1], by two averages."""

    macro: float  # the mean over classes
    micro: float  # the mean over words
    count: int  # how many words


Outcomes = dict[str, list[tuple[str, bool]]]  # whether words were right, by class, each with its image


def _rate(outcomes: Outcomes, classes: int) -> Rate:
    """`classes` is what macro divides by; those without words count 0."""
    hits = [sum(hit for _, hit in rows) for rows in outcomes.values()]
    counts = [len(rows) for rows in outcomes.values()]
    shares = [hit / count for hit, count in zip(hits, counts, strict=True)]
    return Rate(sum(shares) / max(1, classes), sum(hits) / max(1, sum(counts)), sum(counts))


@dataclass(frozen=True)
class AccuracyScores:
    """Attention accuracy, and the oracle beside it."""

    accuracy: Rate
    oracle: Rate


class AttentionAccuracy:
    """On ground-truth sentences: does the region a word attends to most overlap the word's box?

    A grounded word without a prediction counts as wrong. The oracle is the share of words for which any region would be
    right: no captioner can do better on these regions.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._hits: Outcomes = defaultdict(list)
        self._oracle: Outcomes = defaultdict(list)
        self._ids: set[str] = set()

    def update(self, photo: GroundedPhoto, pointed: Sequence[Mapping[int, Box]], regions: Sequence[Box]) -> None:
        """Add a photo: for each of its sentences the box that each word index points at, and all its regions."""
        if photo.id in self._ids:
            raise DuplicateRecordError(f"image {photo.id} was scored already", fix="give each image once")
        if len(pointed) != len(photo.sentences):
            what = f"{len(pointed)} predictions for {len(photo.sentences)} sentences"
            fix = "point the words of every reference sentence, in order"
            raise CountError(what, where=f"image {photo.id}", fix=fix)
        self._ids.add(photo.id)
        for sentence, boxes in zip(photo.sentences, pointed, strict=True):
            for word in sentence.words:
                chosen = [boxes[word.index]] if word.index in boxes else []
                self._hits[word.label].append((photo.id, overlaps_enough(chosen, word.boxes)))
                self._oracle[word.label].append((photo.id, overlaps_enough(regions, word.boxes)))

    def compute(self) -> AccuracyScores:
        return AccuracyScores(_rate(self._hits, len(self._hits)), _rate(self._oracle, len(self._oracle)))

    def by_class(self) -> Outcomes:
        """Each class's annotated words: the image and whether the box was right."""
        return dict(self._hits)


@dataclass(frozen=True)
class F1Scores:
    """Precision, recall and F1 of generated sentences.

    `all` counts a wrong or missing word as a wrong box; `loc` looks only at words that are right. F1 is the harmonic
    mean of macro precision and macro recall, as published.
    """

    precision_all: Rate
    recall_all: Rate
    precision_loc: Rate
    recall_loc: Rate

    def f1(self) -> dict[str, float]:
        """F1_all and F1_loc in percent, as published and micro."""
        return {
            "F1_all": 100 * _harmonic(self.precision_all.macro, self.recall_all.macro),
            "F1_loc": 100 * _harmonic(self.precision_loc.macro, self.recall_loc.macro),
            "F1_all micro": 100 * _harmonic(self.precision_all.micro, self.recall_all.micro),
            "F1_loc micro": 100 * _harmonic(self.precision_loc.micro, self.recall_loc.micro),
        }


class GroundingF1:
    """On generated sentences: are the right things mentioned, and do their words point at the right boxes?

    A prediction is compared with each reference sentence of the photo separately. In a reference, the first word of
    the predicted class is its target; a class that the reference only mentions without a box is ignored. Macro averages
    divide by the number of classes in the references.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        kinds = ("precision_all", "precision_loc", "recall_all", "recall_loc")
        self._hits: dict[str, Outcomes] = {kind: defaultdict(list) for kind in kinds}
        self._labels: set[str] = set()
        self._ids: set[str] = set()

    def update(self, photo: GroundedPhoto, predictions: Sequence[GroundedPrediction]) -> None:
        """Add a photo with what its generated sentence mentions."""
        if photo.id in self._ids:
            raise DuplicateRecordError(f"image {photo.id} was scored already", fix="give each image once")
        if not photo.sentences:
            raise MissingRecordError(f"image {photo.id} has no reference sentence", fix="leave it out")
        self._ids.add(photo.id)
        for sentence in photo.sentences:
            self._labels.update(word.label for word in sentence.words)
            annotated = {word.index for word in sentence.words}
            without_box = {lemma(token, "n") for i, token in enumerate(sentence.tokens) if i not in annotated}
            for prediction in predictions:
                target = next((word for word in sentence.words if word.label == prediction.label), None)
                hit = target is not None and overlaps_enough([prediction.box], target.boxes)
                if target is not None:
                    self._hits["precision_loc"][prediction.label].append((photo.id, hit))
                if target is not None or prediction.label not in without_box:
                    self._hits["precision_all"][prediction.label].append((photo.id, hit))
            for word in sentence.words:
                first = next((prediction for prediction in predictions if prediction.label == word.label), None)
                hit = first is not None and overlaps_enough([first.box], word.boxes)
                if first is not None:
                    self._hits["recall_loc"][word.label].append((photo.id, hit))
                self._hits["recall_all"][word.label].append((photo.id, hit))

    @property
    def classes(self) -> int:
        """How many classes the references name: what macro averages divide by."""
        return len(self._labels)

    def by_class(self, kind: str) -> Outcomes:
        """The images and outcomes of each class; `kind` is a field of `F1Scores`, such as `recall_all`."""
        return dict(self._hits[kind])

    def compute(self) -> F1Scores:
        return F1Scores(**{kind: _rate(hits, self.classes) for kind, hits in self._hits.items()})


def mentions(caption: Caption, size: tuple[int, int], classes: Container[str]) -> list[GroundedPrediction]:
    """The classes that the nouns of a grounded caption mention, each with its box, in pixels of `size`.

    The same word as another part of speech mentions nothing: "people dress" has no dress in it.
    """
    width, height = size
    predictions: list[GroundedPrediction] = []
    tags = Tagger.default().tag(caption.words)
    for index, (word, tag, trace) in enumerate(zip(caption.words, tags, caption.trace, strict=False)):
        label = lemma(word, "n")
        if tag in NOUNS and trace.box is not None and label in classes:
            x1, y1, x2, y2 = trace.box
            predictions.append(GroundedPrediction(index, label, (x1 * width, y1 * height, x2 * width, y2 * height)))
    return predictions


def _harmonic(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
