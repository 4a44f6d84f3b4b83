"""How a recipe's model sees: features that were made before, or a backbone that is trained with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sightline.errors import ConfigError
from sightline.models.captioner import Captioner
from sightline.models.matcher import Matcher
from sightline.seeing import seeing
from sightline.vision.efficientnet_lite import Variant
from sightline.vision.grid_encoder import GridEncoder


@dataclass(frozen=True)
class Cached:
    """Scenes are those of `data.features`; vision takes no part in training."""

    kind: Literal["cached"] = "cached"

    def preprocessing(self) -> dict[str, Any]:
        """What a checkpoint says about its pictures: nothing, features tell."""
        return {}


@dataclass(frozen=True)
class Grid:
    """The photos of `data.images` go through a backbone at every step, so that it can learn too.

    Its learning rate is `optimiser.rates: {vision: …}` of a stage, 1e-5 in JRAN's paper (section 4.1); 0 freezes it for
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
        if self.size < 32:
            raise ConfigError(f"`vision.size` is {self.size}", fix="give 32 pixels or more")

    def build(self) -> GridEncoder:
        """The backbone."""
        make = GridEncoder.imagenet if self.weights == "imagenet" else GridEncoder
        return make(self.variant, self.size).requires_grad_(self.train)

    def preprocessing(self) -> dict[str, Any]:
        """What a checkpoint says about its pictures."""
        return {"encoder": "grid", "variant": self.variant, "size": self.size, "resize": "squash"}


Vision = Cached | Grid


def with_sight(model: Captioner | Matcher, vision: Vision) -> Captioner | Matcher:
    """The model as the recipe wants it to see."""
    return seeing(model, vision.build()) if isinstance(vision, Grid) else model
