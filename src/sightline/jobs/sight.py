"""The vision models that photos can be looked at with, by the names people give."""

from __future__ import annotations

import os

from sightline import checkpoint
from sightline.bundle import default_bundle, load_bundle
from sightline.errors import CheckpointError
from sightline.files import PathLike
from sightline.sealed import held
from sightline.seeing import Seeing
from sightline.vision.grid_encoder import GridEncoder
from sightline.vision.zoo import VisionModel

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
    if held(path) == "bundle":
        return load_bundle(path).vision
    loaded = checkpoint.load(path).model
    if not isinstance(loaded, Seeing):
        raise CheckpointError(
            f"this {loaded.config.kind} model reads features and has no eyes of its own",
            where=path,
            fix="give a model that was trained with a vision model, a bundle, or `imagenet`",
        )
    return loaded.vision
