"""What objectives over photos and their captions share: the pieces they need, checked, and counts to divide by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from sightline.batch import SceneBatch, TextBatch
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner
from sightline.models.matcher import Matcher
from sightline.training.batches import Batch


def captioner(model: Any, by: str) -> Captioner:
    """The model, if it is a captioner."""
    if isinstance(model, Captioner):
        return model
    kind = getattr(getattr(model, "config", None), "kind", type(model).__name__)
    raise ConfigError(
        f"the objective {by} trains captioners, and {kind} is none", fix="choose a captioner, or the objective triplet"
    )


def matcher(model: Any, by: str) -> Any:
    """The model, if it is a matcher."""
    if isinstance(model, Matcher):
        return model
    kind = getattr(getattr(model, "config", None), "kind", type(model).__name__)
    raise ConfigError(
        f"the objective {by} trains matchers, and {kind} is none",
        fix="choose a matcher, or the objective cross-entropy",
    )


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """The model in training or evaluation mode, and afterwards as it was."""
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)


def scenes(batch: Batch, by: str) -> SceneBatch:
    """The batch's photos."""
    if batch.scenes is None:
        raise ConfigError(f"the objective {by} needs photos", fix="set batch.pool to train, and give data.features")
    return batch.scenes


def captions(batch: Batch, by: str) -> TextBatch:
    """The batch's captions."""
    if batch.texts is None:
        raise ConfigError(f"the objective {by} needs captions", fix="set batch.of to images or pairs")
    return batch.texts


def count_captions(batch: Batch, by: str) -> float:
    """How many captions the batch has."""
    return float(len(captions(batch, by)))
