"""How a recipe's model sees: features that were made before, or a backbone that is trained with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.config import check_ranges
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import EndToEnd, end_to_end
from sightline.models.matcher import Matcher
from sightline.vision.concept_names import concept_names
from sightline.vision.detector import Detector, DetectorConfig
from sightline.vision.efficientnet_lite import Variant
from sightline.vision.grid_encoder import GridEncoder
from sightline.vision.vision_models import VisionModel

Find = Callable[[str], Checkpoint]  # from a name in a recipe to the model it stands for


@dataclass(frozen=True)
class CachedFeatures:
    """Scenes are those of `data.features`; vision takes no part in training."""

    kind: Literal["cached"] = "cached"

    def preprocessing(self) -> dict[str, Any]:
        """What a checkpoint says about its pictures: nothing, features tell."""
        return {}


@dataclass(frozen=True)
class Grid:
    """The photos of `data.images` go through a backbone at every step, so that it can learn too.

    Its learning rate is `optimiser.lrs: {vision: …}` of a stage, 1e-5 in JRAN's paper (section 4.1); 0 freezes it for
    that stage.

    Attributes:
        variant: of EfficientNet-Lite.
        size: photos are squashed to squares of so many pixels.
        train: False freezes the backbone in all stages.
        weights: what the backbone starts from. With `start`, the weights of a model that sees are its own.
    """

    kind: Literal["grid"] = "grid"
    variant: Variant = "lite0"
    size: int = 224
    train: bool = True
    weights: Literal["imagenet", "random"] = "imagenet"

    def __post_init__(self) -> None:
        check_ranges(self, "vision.", size="[32, ∞)")

    def build(self) -> GridEncoder:
        """The backbone."""
        make = GridEncoder.imagenet if self.weights == "imagenet" else GridEncoder
        return make(self.variant, self.size).requires_grad_(self.train)

    def preprocessing(self) -> dict[str, Any]:
        """What a checkpoint says about its pictures."""
        return {"encoder": "grid", "variant": self.variant, "size": self.size, "resize": "squash"}


@dataclass(frozen=True)
class Detect:
    """The photos of `data.images` go through the vision model at every step: regions, grid and vector are its own.

    Attributes:
        variant: of EfficientNet-Lite.
        size: photos are squashed to squares of so many pixels.
        boxes: regions of a photo.
        train: False freezes the vision model in all stages.
        weights: `imagenet` for the backbone alone, `random`, or a trained model whose sight it takes over, named like
            `start`. With `start`, the weights of a model that sees are its own.
        imagenet: it keeps the 1,000 classes of ImageNet (`looking.imagenet` teaches it not to forget them); where
            `weights` are those of a model without them, they start from ImageNet's own.
        fixed_norms: batch norms keep the statistics that they have, as in detectors that are tuned further: statistics
            of batches would change what the weights mean, and with it what the backbone knew.
    """

    kind: Literal["detector"] = "detector"
    variant: Variant = "lite2"
    size: int = 288
    boxes: int = 36
    train: bool = True
    weights: str = "imagenet"
    imagenet: bool = False
    fixed_norms: bool = False

    def build(self, find: Find | None = None) -> Detector:
        """The vision model."""
        built = DetectorConfig(
            variant=self.variant, size=self.size, boxes=self.boxes, names=concept_names(), imagenet=self.imagenet
        ).build()
        if self.weights == "imagenet":
            built.load_imagenet()
        elif self.weights != "random":
            built.load_sight(self._found(find))
        built.fixed_norms = self.fixed_norms
        return built.requires_grad_(self.train)

    def _found(self, find: Find | None) -> Detector:
        """The trained vision model that `weights` names."""
        model: Any = None if find is None else find(self.weights).model
        if not isinstance(model, EndToEnd) or not isinstance(model.vision, Detector):
            raise ConfigError(
                f"`vision.weights` is {self.weights}, which is no trained model with a detector",
                fix="give imagenet, random, or a model that was trained with vision.kind=detector",
            )
        held = model.vision.config
        if held.variant != self.variant or held.names != concept_names():
            raise ConfigError(
                f"{self.weights} sees with {held.variant} and {len(held.names)} names",
                fix="set vision.variant to its own, and train it again where the list of names has changed",
            )
        return model.vision

    def preprocessing(self) -> dict[str, Any]:
        """What a checkpoint says about its pictures."""
        return {"encoder": "detector", "variant": self.variant, "size": self.size, "resize": "squash"}


Vision = CachedFeatures | Grid | Detect


def with_vision(model: Captioner | Matcher, vision: Vision, find: Find | None = None) -> Captioner | Matcher:
    """The model as the recipe wants it to see; `find` gives the models it names."""
    if isinstance(vision, CachedFeatures):
        return model
    return end_to_end(model, vision.build(find) if isinstance(vision, Detect) else vision.build())


def config_of(model: VisionModel) -> Vision:
    """How a recipe would say what `model` is."""
    if isinstance(model, Detector):
        return Detect(variant=model.variant, size=model.size, imagenet=model.config.imagenet)
    return Grid(variant=model.variant, size=model.size)
