"""How good the parts of the default model are: boxes, matching, where people's words are. Shares are percentages."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from measured_photos import REFERENCES, TestPhoto, refuse
from measured_words import sentence_evidence
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.checkpoint.bundle import Bundle
from sightline.data.entities import EntitiesPhoto, ground, read_classes
from sightline.data.records import GroundedPhoto
from sightline.errors import ConfigError, DataError
from sightline.metrics.grounding_accuracy import AttentionAccuracy
from sightline.metrics.ngrams import IntArray
from sightline.metrics.retrieval import consecutive_folds, evaluate_retrieval
from sightline.models.matcher import AligningMatcher, Embedding, GlobalMatcher
from sightline.models.scene_matcher import SceneMatcher
from sightline.photo import Pixels
from sightline.scene import box_iou
from sightline.text.vocabulary import rule
from sightline.training.tensor_tables import Pool, SceneTable
from sightline.training.training_photos import of_entities
from sightline.training.word_boxes import attention_accuracy
from sightline.vision.detector import Detector, Maps
from sightline.vision.fold_batch_norm import fold_int8
from sightline.vision.photo_reader import progress_bar, read_photos

BATCH, TEXTS = 8, 1000
FOLD, FOLDS = 1000, 4
COUNTS = (10, 36, 100)  # boxes of a photo
BOTH = ", both read-outs"
Scores = npt.NDArray[np.float32]
Boxes = np.ndarray[tuple[int, int], np.dtype[np.float32]]


@dataclass(frozen=True, eq=False)
class VisionOutput:
    """What the model saw in photos, in their order."""

    images: Embedding | None  # what the matcher makes of them, or None without one of whole photos
    scenes: tuple[SceneBatch, ...] = ()  # of each photo, where they are kept
    # (n, 4) of each photo when the detector is asked for the most of `COUNTS`, where they are kept
    boxes: tuple[Boxes, ...] = ()

    def __len__(self) -> int:
        """How many photos' scenes are kept."""
        return len(self.scenes)

    def batch(self, rows: Tensor) -> SceneBatch:
        """The scene of one photo."""
        return self.scenes[int(rows)]


@torch.inference_mode()
def look(
    bundle: Bundle, photos: Sequence[TestPhoto], device: torch.device, title: str, keep: bool = False
) -> VisionOutput:
    """Look at photos; what takes memory (half a megabyte a photo) is kept only where it is asked for."""
    vision, finds = fold_int8(bundle.vision), bundle.matcher
    assert isinstance(vision, Detector)
    wide = widened(vision)
    images: list[Embedding] = []
    scenes: list[SceneBatch] = []
    boxes: list[Boxes] = []
    for group in groups(photos, vision.size, title):
        pixels = torch.from_numpy(np.stack(group)).permute(0, 3, 1, 2).to(device)
        maps = vision(pixels)
        seen = vision.scenes_of(maps, [""] * len(group))
        if finds is not None and isinstance(finds.model, GlobalMatcher):
            images.append(finds.model.embed_images(seen))
        if keep:
            scenes += [SceneTable(seen).batch(torch.tensor([at])) for at in range(len(group))]
            boxes += boxes_of(wide, maps)
    joined = {name: torch.cat([part[name] for part in images]) for name in images[0]} if images else None
    return VisionOutput(joined, tuple(scenes), tuple(boxes))


def widened(vision: Detector) -> Detector:
    """The same detector, asked for the most of `COUNTS`."""
    wide = copy.copy(vision)
    wide.config = replace(vision.config, boxes=max(COUNTS))
    return wide


def boxes_of(vision: Detector, maps: Maps) -> list[Boxes]:
    """(n, 4) of each photo, best first."""
    boxes, scores = vision.propose(maps)
    return [own[valid].cpu().numpy() for own, valid in zip(boxes, scores > 0, strict=True)]


def regions(boxes: Sequence[Boxes], truth: Sequence[EntitiesPhoto]) -> dict[str, float]:
    """The share of the boxes people drew that the best k boxes of the detector overlap with an IoU above one half."""
    real = [of_entities(photo, {}).boxes for photo in truth]
    found = coverage(boxes, real)
    return {f"{k} boxes": 100 * share for k, share in found.items()} | {"boxes people drew": float(sum(map(len, real)))}


def coverage(boxes: Sequence[Boxes], truth: Sequence[Boxes]) -> dict[int, float]:
    """For each k of `COUNTS`, the share of all true boxes that one of their photo's first k boxes overlaps.

    That is an IoU strictly above one half. Every true box weighs the same.
    """
    found, total = dict.fromkeys(COUNTS, 0), sum(map(len, truth))
    if not total:
        raise DataError("no photo has a true box, so there is no share of them", fix="give photos with annotated boxes")
    for own, real in zip(boxes, truth, strict=True):
        overlaps = box_iou(np.asarray(own, np.float64).reshape(-1, 4), np.asarray(real, np.float64).reshape(-1, 4))
        for k in COUNTS:
            found[k] += int((overlaps[:k].max(0, initial=0) > 0.5).sum())
    return {k: count / total for k, count in found.items()}


@torch.inference_mode()
def matching(
    bundle: Bundle, looked: VisionOutput, photos: Sequence[TestPhoto], device: torch.device
) -> dict[str, float]:
    """Recall of captions for photos and of photos for captions: the mean of up to 4 folds of 1,000 photos.

    Folds are consecutive. Where there are fewer photos than one fold, all are one fold. Photos and captions are
    compared by their vectors, which are all that an index keeps, and by both read-outs of a matcher that has two.
    """
    finds, images = bundle.matcher, looked.images
    if finds is None or images is None:
        raise ConfigError("the model has no matcher of whole photos", fix="use --skip matcher")
    model = finds.model
    size = min(FOLD, len(photos))
    count = min(FOLDS, len(photos) // size)
    photos = photos[: size * count]
    split = rule(finds.text_rule)
    sentences = [split.words(text) for photo in photos for text in photo.references[:REFERENCES]]
    owner = np.repeat(np.arange(len(photos)), [len(photo.references[:REFERENCES]) for photo in photos])

    scorers = {"": model.similarity}
    if isinstance(model, SceneMatcher):
        scorers[BOTH] = model.joint_similarity

    @functools.cache
    def scores(fold: int) -> tuple[int, dict[str, Scores]]:
        """Of all pairs of a fold, by each scorer; and its first caption."""
        own = {name: part[fold * size : (fold + 1) * size] for name, part in images.items()}
        places = np.flatnonzero(owner // size == fold).tolist()
        found: dict[str, list[Tensor]] = {title: [] for title in scorers}
        for start in range(0, len(places), TEXTS):
            words = [sentences[place] for place in places[start : start + TEXTS]]
            texts = model.embed_texts(TextBatch.collate(words, finds.vocabulary).to(device))
            for title, score in scorers.items():
                found[title].append(score(own, texts).float().cpu())
        return places[0], {title: torch.cat(parts, 1).numpy() for title, parts in found.items()}

    recalls: dict[str, float] = {}
    for title in scorers:

        def similarity(some: IntArray, few: IntArray, title: str = title) -> Scores:
            first, found = scores(int(some[0]) // size)
            return found[title][some % size][:, few - first]

        found = evaluate_retrieval(similarity, owner, folds=consecutive_folds(size, count)).metrics
        for way, of in {"i2t": "captions", "t2i": "photos"}.items():
            recalls |= {f"{of} R@{k}{title}": found[f"{way}_R@{k}"] for k in (1, 5, 10)}
    return recalls | {"folds": float(count), "photos of a fold": float(size)}


@torch.inference_mode()
def pointing(
    bundle: Bundle, looked: VisionOutput, photos: Sequence[TestPhoto], grounded: Mapping[str, GroundedPhoto]
) -> dict[str, float]:
    """Do the words of people's captions point at the boxes people drew for them? Micro and by class, as GVD does.

    The captioner's attention alone, the matcher's alone, and *as shipped*, as in `sightline caption`, where a word may
    also point nowhere, which counts as wrong. It is told which words people drew boxes for; with *its
    own nouns* it is not, and a word that is not taken for the noun of a thing counts as wrong, too.
    """
    pool = Pool(tuple(photo.id for photo in photos), looked, references=tuple(photo.references for photo in photos))
    says, finds = bundle.captioner, bundle.matcher
    found: dict[str, float] = {}
    alone = {"captioner": attention_accuracy(says.model, says.vocabulary, rule(says.text_rule), pool, grounded)}
    if finds is not None and isinstance(finds.model, AligningMatcher):
        alone["matcher"] = attention_accuracy(finds.model, finds.vocabulary, rule(finds.text_rule), pool, grounded)
    for name, rates in alone.items():
        found[f"{name} alone"] = rates["attention accuracy micro"]
        found[f"{name} alone, by class"] = rates["attention accuracy"]
    metric, own = AttentionAccuracy(), AttentionAccuracy()
    for one in sentence_evidence(bundle, photos, looked.scenes, grounded):
        boxes = [one.pixels(box) for box in one.boxes.tolist()]
        for kept, choosing in ((metric, False), (own, True)):
            pointed = one.pointed(bundle.pointing, choosing)
            kept.update(one.truth, [{at: box for at, (box, _) in sentence.items()} for sentence in pointed], boxes)
    scores = metric.compute()
    found |= {"as shipped": 100 * scores.accuracy.micro, "as shipped, by class": 100 * scores.accuracy.macro}
    found["as shipped, its own nouns"] = 100 * own.compute().accuracy.micro
    found["some box is right"] = 100 * scores.oracle.micro
    return found | {"annotated words": float(scores.accuracy.count)}


def grounded_photos(annotated: Mapping[str, EntitiesPhoto], photos: Sequence[TestPhoto]) -> dict[str, GroundedPhoto]:
    """The annotated captions of photos."""
    classes = read_classes()
    return {photo.id: ground(annotated[photo.id], classes) for photo in photos if photo.id in annotated}


def groups(photos: Sequence[TestPhoto], size: int, title: str) -> Iterator[list[Pixels]]:
    """The pixels of photos, some at a time."""
    paths: list[Path] = [photo.path for photo in photos]
    coming = (photo.pixels for photo in read_photos(paths, size, bad=refuse, progress=progress_bar(title)))
    while group := list(itertools.islice(coming, BATCH)):
        yield group
