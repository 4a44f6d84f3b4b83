"""A vision model for inference on a CPU whose backbone computes with 8-bit integers.

ReLU6 gives numbers from 0 to 6: 256 steps of 6 / 255 hold them. What enters a block has no such ends, but batch norm
tells the mean and the deviation of each of its channels, so no photos are needed to find some. The means also tell how
much rounded weights shift a sum on average, and biases take that back (Nagel et al. 2019, "Data-free quantization
through weight equalization and bias correction", sections 4.2 and 4.3). Sums are exact and a block's result is float32,
so what is seen in a photo does not depend on the photos beside it.
"""

from __future__ import annotations

import functools
import math
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from sightline.devices import has_vnni
from sightline.vision.efficientnet_lite import Block, Convolution, EfficientNetLite
from sightline.vision.fold_batch_norm import FusedConvolution, fold, fuses

DEVIATIONS = 5.0  # from its mean; the numbers of a channel beyond are cut
SIX = 6 / 255  # one step of what ReLU6 gives
M = TypeVar("M", bound=nn.Module)


def fold_int8(vision: M) -> M:
    """A copy of an evaluating vision model: folded, its backbone's blocks in 8 bits where a CPU is fast at it."""
    folded = cast("M", fold(vision))
    if next(vision.parameters()).device.type == "cpu" and available():
        for name, module in vision.named_modules():
            if isinstance(module, EfficientNetLite):
                _replace(module, cast("EfficientNetLite", folded.get_submodule(name)))
    return folded


def _replace(network: EfficientNetLite, folded: EfficientNetLite) -> None:
    mean = variance = torch.zeros(())  # of each channel that enters a block
    for place, block in enumerate(cast("list[Block]", list(network.blocks))):
        if isinstance(block.expand, Convolution):
            folded.blocks[place] = Int8Block(block, block.expand, mean, variance.sqrt())
        norm = block.project.norm
        own_mean, own_variance = norm.bias.detach(), norm.weight.detach().square()
        mean, variance = (mean + own_mean, variance + own_variance) if block.residual else (own_mean, own_variance)


class Int8Block(nn.Module):
    """An inverted residual; `mean` and `deviation` are those of the channels that enter it.

    What is further than `DEVIATIONS` from all of them is cut there.
    """

    def __init__(self, block: Block, expand: Convolution, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        low = min((mean - DEVIATIONS * deviation).min().item(), 0.0)
        high = max((mean + DEVIATIONS * deviation).max().item(), 0.0)
        self.step = max(high - low, 1e-6) / 255
        self.zero = round(-low / self.step)
        self.expand = Int8Convolution(expand, mean, self.step, self.zero)
        self.depthwise = Int8Convolution(block.depthwise, _mean_of_relu6(expand.norm))
        self.project = Int8Convolution(block.project, _mean_of_relu6(block.depthwise.norm))
        self.residual = block.residual
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) float32 to (B, outputs, H / stride, W / stride)."""
        x = x.contiguous(memory_format=torch.channels_last)
        whole = torch.add(self.zero + 0.5, x, alpha=1 / self.step).clamp_(0, 255).to(torch.uint8)
        y: Tensor = self.project(self.depthwise(self.expand(whole)))
        return y.add_(x) if self.residual else y


def _mean_of_relu6(norm: nn.BatchNorm2d) -> Tensor:
    """(channels,) of ReLU6 of what a batch norm gives, if that is normal."""
    mean, deviation = norm.bias.detach(), norm.weight.detach().abs().clamp(min=1e-6)
    low, high = -mean / deviation, (6 - mean) / deviation
    below, above = torch.special.ndtr(low), torch.special.ndtr(high)
    bell = (torch.exp(-low.square() / 2) - torch.exp(-high.square() / 2)) / math.sqrt(2 * math.pi)
    found: Tensor = mean * (above - below) + deviation * bell + 6 * (1 - above)
    return found


class Int8Convolution(FusedConvolution):
    """A folded convolution of 8-bit integers: to steps of `SIX` with ReLU6, or to float32 where `linear`.

    `step` and `zero` tell what the integers of its input stand for, `mean` that of each input channel, on average.
    Weights are rounded by the largest of each output.
    """

    def __init__(self, source: Convolution, mean: Tensor, step: float = SIX, zero: int = 0) -> None:
        super().__init__(source)
        self.step, self.zero = step, zero
        scales = (self.weight.abs().amax((1, 2, 3)) / 127).clamp(min=1e-12)
        rounded = (self.weight / scales[:, None, None, None]).round().to(torch.int8)
        lost = (self.weight - rounded * scales[:, None, None, None]).sum((2, 3))  # (outputs, inputs of its group)
        own = mean.view(self.groups, -1).repeat_interleave(len(lost) // self.groups, 0)
        self.bias += (lost * own).sum(1)
        self.register_buffer("weight", rounded, persistent=False)
        self.register_buffer("scales", scales, persistent=False)
        self.register_buffer("zeros", torch.zeros(len(scales), dtype=torch.long), persistent=False)

    def forward(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """(B, inputs, H, W) uint8, channels last."""
        assert plus is None
        weight, padding = self._laid.get(x.shape) or self._lay(x.shape)
        where = ([self.stride] * 2, padding, [1, 1], self.groups)
        kind = (1.0, 0, torch.float32, "none", []) if self.linear else (SIX, 0, torch.uint8, "hardtanh", [0.0, 6.0])
        convolve = torch.ops.onednn.qconv2d_pointwise
        y: Tensor = convolve(x, self.step, self.zero, weight, self.scales, self.zeros, self.bias, *where, *kind, "")
        return y

    def _order(self, weight: Tensor, padding: list[int], shape: torch.Size) -> Tensor:
        where = ([self.stride] * 2, padding, [1, 1], self.groups, list(shape))
        laid: Tensor = torch.ops.onednn.qconv_prepack(weight.contiguous(), self.scales, self.step, self.zero, *where)
        return laid


@functools.cache
def available() -> bool:
    """Whether this PyTorch convolves 8-bit integers on this machine, gets it right, and is faster that way."""
    if not (has_vnni() and fuses()):
        return False
    with torch.random.fork_rng(devices=[]):
        block = Block(8, 8, 3, 1, 2).eval()
    assert isinstance(block.expand, Convolution)
    x = torch.linspace(-2, 3, 8 * 25).view(1, 8, 5, 5).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        expected = block(x)
        try:
            found = Int8Block(block, block.expand, torch.zeros(8), torch.ones(8))(x)
        except (AttributeError, RuntimeError, TypeError):
            return False
    return torch.allclose(found, expected, atol=0.1)
