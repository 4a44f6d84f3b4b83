"""Do words point at the right boxes? Attention accuracy on given sentences, and F1 on generated ones.

The rules are those of the GVD evaluation of Flickr30k Entities (Zhou et al. 2019), without CoreNLP:
- IoU counts pixels inclusively (+1), and a box is right if its IoU is strictly above 0.5;
- a thing with several boxes is found if any of them is;
- numbers are averaged per class, then over classes (macro); the plain average over words (micro) stands beside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sightline.caption import Caption
from sightline.data.records import GroundedPhoto, GroundedPrediction, GroundedSentence
from sightline.errors import CountError, DuplicateRecordError, MissingRecordError
from sightline.scene import Box, box_iou
from sightline.text.lemmas import lemma
from sightline.text.tagger import NOUNS, Tagger

THRESHOLD = 0.5


def overlaps_enough(boxes: Sequence[Box], truth: Sequence[Box]) -> bool:
    """Whether one of `boxes` meets one of the `truth` with IoU > 0.5, borders counted."""
    if not len(boxes) or not truth:
        return False
    overlaps = box_iou(np.asarray(boxes, np.float64), np.asarray(truth, np.float64), border=1)
    return bool((overlaps > THRESHOLD).any())


@dataclass(frozen=True)
class Rate:
    """A share of words, by two averages and by class, in [0, 1]."""

    macro: float
    micro: float
    per_class: dict[str, float] = field(default_factory=dict)
    count: int = 0


class _Outcomes:
    """Whether words were right, by class, each with its image."""

    def __init__(self) -> None:
        self.by_class: dict[str, list[tuple[str, bool]]] = defaultdict(list)

    def add(self, label: str, image: str, hit: bool) -> bool:
        self.by_class[label].append((image, hit))
        return hit

    def rate(self, classes: int | None = None) -> Rate:
        """`classes` is what macro divides by: those without words count 0."""
        hits = {label: sum(hit for _, hit in rows) for label, rows in self.by_class.items()}
        per_class = {label: hits[label] / len(rows) for label, rows in self.by_class.items()}
        count = sum(map(len, self.by_class.values()))
        macro = sum(per_class.values()) / max(1, len(per_class) if classes is None else classes)
        return Rate(macro, sum(hits.values()) / max(1, count), dict(sorted(per_class.items())), count)


@dataclass(frozen=True)
class AccuracyScores:
    """Attention accuracy, the oracle beside it, and the accuracy of each sentence (None without grounded words)."""

    accuracy: Rate
    oracle: Rate | None
    per_sentence: dict[str, tuple[float | None, ...]]


class AttentionAccuracy:
    """On ground-truth sentences: does the region a word attends to most overlap the word's box?

    A grounded word without a prediction counts as wrong. The oracle is the share of words for which any region would be
    right: no captioner can do better on these regions.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._hits, self._oracle = _Outcomes(), _Outcomes()
        self._sentences: dict[str, tuple[float | None, ...]] = {}

    def update(
        self, photo: GroundedPhoto, pointed: Sequence[Mapping[int, Box]], regions: Iterable[Box] | None = None
    ) -> None:
        """Add a photo: for each of its sentences the box that each word index points at, and all its regions."""
        if photo.id in self._sentences:
            raise DuplicateRecordError(f"image {photo.id} was scored already", fix="give each image once")
        if len(pointed) != len(photo.sentences):
            raise CountError(
                f"{len(pointed)} predictions for {len(photo.sentences)} sentences",
                where=f"image {photo.id}",
                fix="point the words of every reference sentence, in order",
            )
        boxes = None if regions is None else list(regions)
        shares: list[float | None] = []
        for sentence, points in zip(photo.sentences, pointed, strict=True):
            hits = []
            for word in sentence.words:
                chosen = [points[word.index]] if word.index in points else []
                hits.append(self._hits.add(word.label, photo.id, overlaps_enough(chosen, word.boxes)))
                if boxes is not None:
                    self._oracle.add(word.label, photo.id, overlaps_enough(boxes, word.boxes))
            shares.append(_mean(hits) if hits else None)
        self._sentences[photo.id] = tuple(shares)

    def compute(self) -> AccuracyScores:
        oracle = self._oracle.rate() if self._oracle.by_class else None
        return AccuracyScores(self._hits.rate(), oracle, dict(self._sentences))

    def by_class(self) -> dict[str, list[tuple[str, bool]]]:
        """Each class's annotated words: the image and whether the box was right."""
        return dict(self._hits.by_class)


@dataclass(frozen=True)
class F1Scores:
    """Precision, recall and F1 of generated sentences.

    `all` counts a wrong or missing word as a wrong box; `loc` looks only at words that are right. F1 is the harmonic
    mean of macro precision and macro recall, as published; `per_sentence_all` is the mean F1 of image-reference pairs.
    """

    precision_all: Rate
    recall_all: Rate
    precision_loc: Rate
    recall_loc: Rate
    per_sentence_all: float
    oracle_recall: Rate | None = None

    @property
    def f1_all(self) -> float:
        return _harmonic(self.precision_all.macro, self.recall_all.macro)

    @property
    def f1_loc(self) -> float:
        return _harmonic(self.precision_loc.macro, self.recall_loc.macro)

    @property
    def f1_all_micro(self) -> float:
        return _harmonic(self.precision_all.micro, self.recall_all.micro)

    @property
    def f1_loc_micro(self) -> float:
        return _harmonic(self.precision_loc.micro, self.recall_loc.micro)


class GroundingF1:
    """On generated sentences: are the right things mentioned, and do their words point at the right boxes?

    A prediction is compared with each reference sentence of the photo separately. In a reference, the first word of
    the predicted class is its target; a class that the reference only mentions without a box is ignored. Macro averages
    divide by the number of classes in the references.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        kinds = ("precision_all", "precision_loc", "recall_all", "recall_loc", "oracle")
        self._hits = {kind: _Outcomes() for kind in kinds}
        self._labels: set[str] = set()
        self._sentence_f1: list[float] = []
        self._ids: set[str] = set()

    def update(
        self,
        photo: GroundedPhoto,
        predictions: Sequence[GroundedPrediction] | None,
        regions: Iterable[Box] | None = None,
    ) -> None:
        """Add a photo with what its generated sentence mentions; None if it has no prediction at all.

        A photo without prediction is left out of precision and counts as wrong in both recalls.
        """
        if photo.id in self._ids:
            raise DuplicateRecordError(f"image {photo.id} was scored already", fix="give each image once")
        if not photo.sentences:
            raise MissingRecordError(f"image {photo.id} has no reference sentence", fix="leave it out")
        self._ids.add(photo.id)
        boxes = None if regions is None else list(regions)
        for sentence in photo.sentences:
            self._labels.update(word.label for word in sentence.words)
            precision = self._precision(photo.id, sentence, predictions or ())
            recall = self._recall(photo.id, sentence, predictions)
            if sentence.words or predictions:
                self._sentence_f1.append(_harmonic(_mean(precision), _mean(recall)))
            for word in sentence.words if boxes is not None else ():
                hit = overlaps_enough(boxes or (), word.boxes)
                self._hits["oracle"].add(word.label, photo.id, hit)

    @property
    def classes(self) -> int:
        """How many classes the references name: what macro averages divide by."""
        return len(self._labels)

    def by_class(self, kind: str) -> dict[str, list[tuple[str, bool]]]:
        """Of `precision_all`, `recall_all`, `precision_loc` or `recall_loc`, each class's images and outcomes."""
        return dict(self._hits[kind].by_class)

    def compute(self) -> F1Scores:
        rates = {kind: hits.rate(self.classes) for kind, hits in self._hits.items()}
        oracle = rates.pop("oracle")
        return F1Scores(
            **rates, per_sentence_all=_mean(self._sentence_f1), oracle_recall=oracle if oracle.count else None
        )

    def _precision(self, id: str, sentence: GroundedSentence, predictions: Sequence[GroundedPrediction]) -> list[bool]:
        annotated = {word.index for word in sentence.words}
        mentioned = {lemma(token, "n") for i, token in enumerate(sentence.tokens) if i not in annotated}
        outcome: list[bool] = []
        for prediction in predictions:
            target = next((word for word in sentence.words if word.label == prediction.label), None)
            hit = target is not None and overlaps_enough([prediction.box], target.boxes)
            if target is not None:
                self._hits["precision_loc"].add(prediction.label, id, hit)
            elif prediction.label in mentioned:
                continue
            outcome.append(self._hits["precision_all"].add(prediction.label, id, hit))
        return outcome

    def _recall(
        self, id: str, sentence: GroundedSentence, predictions: Sequence[GroundedPrediction] | None
    ) -> list[bool]:
        outcome: list[bool] = []
        for word in sentence.words:
            first = next((p for p in predictions or () if p.label == word.label), None)
            hit = first is not None and overlaps_enough([first.box], word.boxes)
            if first is not None or predictions is None:
                self._hits["recall_loc"].add(word.label, id, hit)
            outcome.append(self._hits["recall_all"].add(word.label, id, hit))
        return outcome


def mentions(caption: Caption, size: tuple[int, int], classes: Container[str]) -> list[GroundedPrediction]:
    """The classes that the nouns of a grounded caption mention, each with its box, in pixels of `size`.

    The same word as another part of speech mentions nothing: "people dress" has no dress in it.
    """
    width, height = size
    found: list[GroundedPrediction] = []
    tags = Tagger.default().tag(caption.words)
    for index, (word, tag, trace) in enumerate(zip(caption.words, tags, caption.trace, strict=False)):
        label = lemma(word, "n")
        if tag in NOUNS and trace.box is not None and label in classes:
            x1, y1, x2, y2 = trace.box
            found.append(GroundedPrediction(index, label, (x1 * width, y1 * height, x2 * width, y2 * height)))
    return found


def _harmonic(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
