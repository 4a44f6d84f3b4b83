"""Whether the boxes of people's nouns are where people drew them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from measured_models import grounded_photos
from measured_photos import TestPhoto, entities_file

from sightline.data.entities import read_photos as read_entities
from sightline.pipeline import Pipeline
from sightline.scene import box_iou
from sightline.vision.photo_reader import progress_bar

OVERLAP = 0.5  # a box is right from this IoU with one of people's on


def box_hits(pipeline: Pipeline, data: Path, photos: Sequence[TestPhoto], title: str) -> list[tuple[float, bool]]:
    """Of the nouns that people drew boxes for: the share of evidence that our box has, and whether it is right."""
    truths = grounded_photos(read_entities(entities_file(data)), photos)
    found: list[tuple[float, bool]] = []
    for photo, _ in zip(photos, progress_bar(title)([photo.path for photo in photos]), strict=True):
        truth = truths.get(photo.id)
        if truth is None or truth.size is None or not truth.sentences:
            continue
        width, height = truth.size
        texts = [" ".join(sentence.tokens) for sentence in truth.sentences]
        for sentence, audit in zip(truth.sentences, pipeline.audit(photo.path, texts), strict=True):
            ours = {noun.index: noun for noun in audit.nouns}
            for word in sentence.words:
                noun = ours.get(word.index)
                if noun is not None and noun.box is not None and noun.share is not None:
                    theirs = np.array(word.boxes) / (width, height, width, height)  # (m, 4)
                    found.append((noun.share, bool((box_iou(np.array([noun.box]), theirs) >= OVERLAP).any())))
    return found
