"""The vision models that photos can be looked at with, by the names people give."""

from __future__ import annotations

import os

from sightline.checkpoint import model_checkpoint
from sightline.checkpoint.bundle import default_bundle, load_bundle
from sightline.checkpoint.checkpoint_file import kind_of_file
from sightline.errors import CheckpointError
from sightline.files import PathLike
from sightline.models.end_to_end import EndToEnd
from sightline.vision.grid_encoder import GridEncoder
from sightline.vision.vision_models import VisionModel

IMAGENET = "imagenet"


def vision_of(model: PathLike | None = None) -> VisionModel:
    """A vision model in evaluation mode.

    Args:
        model: a bundle, or the checkpoint of a model that was trained with a vision model; `imagenet` for the cells of
            EfficientNet-Lite2 as trained on ImageNet; None for the model that comes with Sightline.
    """
    if model is not None and os.fspath(model) == IMAGENET:
        return GridEncoder.imagenet()
    path = default_bundle() if model is None else model
    if kind_of_file(path) == "bundle":
        return load_bundle(path).vision
    loaded = model_checkpoint.load(path).model
    if not isinstance(loaded, EndToEnd):
        raise CheckpointError(
            f"this {loaded.config.kind} model reads features and has no eyes of its own",
            where=path,
            fix="give a model that was trained with a vision model, a bundle, or `imagenet`",
        )
    return loaded.vision
