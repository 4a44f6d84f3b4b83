"""A network for inference only: batch norms folded into the convolutions before them.

On a CPU where PyTorch has oneDNN, each convolution is one call that also does the ReLU6 or the residual sum, with its
weights laid out once for the pictures' shape. Lopsided padding, which oneDNN is not offered by PyTorch, becomes even
padding under a kernel with a row or column of zeros in front: cheaper than a padded copy of the picture.

On CPUs with AVX-512 VNNI, the backbone computes with 8-bit integers (`fold_int8`). ReLU6 gives numbers from 0 to 6,
which 256 steps hold. What enters a block has no such ends, but batch norm tells the mean and the deviation of each of
its channels, so no photos are needed to find some. The means also tell how much rounded weights shift a sum on average,
and biases take that back (Nagel et al. 2019, "Data-free quantization through weight equalization and bias correction",
sections 4.2 and 4.3). Sums are exact and a block's result is float32, so what is seen in a photo does not depend on the
photos beside it.
"""

import copy
import functools
import math
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.devices import has_vnni
from sightline.errors import ConfigError
from sightline.vision.efficientnet_lite import Block, Convolution, EfficientNetLite, finish, pad_same, same_padding

SHAPES_KEPT = 4  # layouts of the weights kept by a convolution, one for each shape of input


def fold(network: nn.Module) -> nn.Module:
    """A copy of an evaluating network with every `Convolution` folded; the same outputs, from fixed weights."""
    if any(module.training for module in network.modules()):
        raise ConfigError("a network in training mode cannot be folded", fix="call its eval() first")
    return _fold(copy.deepcopy(network)).requires_grad_(False)


def _fold(module: nn.Module) -> nn.Module:
    if isinstance(module, Convolution):
        return FusedConvolution(module)
    for name, child in module.named_children():
        setattr(module, name, _fold(child))
    return module


class FusedConvolution(nn.Module):
    """Convolution with bias and (unless `linear`) ReLU6: what a `Convolution` does when it evaluates."""

    weight: Tensor
    bias: Tensor

    def __init__(self, source: Convolution) -> None:
        super().__init__()
        norm, weight = source.norm, source.convolution.weight.detach()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        weight = (weight * scale[:, None, None, None]).contiguous(memory_format=torch.channels_last)
        # not in the state dict: weights are loaded before folding, and laid out only once
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", norm.bias.detach() - norm.running_mean * scale, persistent=False)
        self.kernel, self.stride, self.linear = source.kernel, source.stride, source.linear
        self.groups = source.convolution.groups
        self._laid: dict[torch.Size, tuple[Tensor, list[int]]] = {}
        self.eval()

    def forward(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """(B, inputs, H, W) to (B, outputs, H / stride, W / stride), both rounded up; `plus` is added at the end."""
        is_float32 = x.dtype == self.weight.dtype == torch.float32
        learns = torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, plus))
        if x.device.type == "cpu" and is_float32 and fuses() and not learns:  # oneDNN's call gives no gradients
            return self._fused(x, plus)
        x, padding = pad_same(x, self.kernel, self.stride)
        y = F.conv2d(x, self.weight, self.bias, self.stride, padding, groups=self.groups)
        return finish(y, self.linear, plus)

    def _fused(self, x: Tensor, plus: Tensor | None) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        weight, padding = self._laid.get(x.shape) or self._lay(x.shape)
        where = (padding, [self.stride] * 2, [1, 1], self.groups)
        convolve = torch.ops.mkldnn._convolution_pointwise
        y: Tensor
        if self.linear and plus is not None and _only_channels_last(plus):
            y = convolve.binary(x, plus, weight, self.bias, *where, "add", 1.0, None, [], None)
            return y
        clamp: tuple[str, list[float]] = ("none", []) if self.linear else ("hardtanh", [0.0, 6.0])
        y = convolve(x, weight, self.bias, *where, *clamp, "")
        return y if plus is None else y + plus

    def _lay(self, shape: torch.Size) -> tuple[Tensor, list[int]]:
        """The weights in oneDNN's layout for one shape of input: laid out for another, they can be twice as slow."""
        (top, bottom), (left, right) = (same_padding(size, self.kernel, self.stride) for size in shape[-2:])
        weight = F.pad(self.weight, (right - left, 0, bottom - top, 0)).contiguous(memory_format=torch.channels_last)
        padding = [bottom, right]
        laid = self._order(weight, padding, shape)
        if len(self._laid) >= SHAPES_KEPT:
            self._laid.pop(next(iter(self._laid)))
        self._laid[shape] = laid, padding
        return laid, padding

    def _order(self, weight: Tensor, padding: list[int], shape: torch.Size) -> Tensor:
        where = (padding, [self.stride] * 2, [1, 1], self.groups, list(shape))
        laid: Tensor = torch.ops.mkldnn._reorder_convolution_weight(weight, *where)
        return laid

    def _apply(self, *args: Any, **kwargs: Any) -> nn.Module:
        self._laid.clear()  # another device or precision: the weights may have changed
        return super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call, no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        """Without the layouts, which can be neither copied nor pickled."""
        return {**self.__dict__, "_laid": {}}


def _only_channels_last(x: Tensor) -> bool:
    """Whether the layout is clear: one channel or one cell has both layouts, and PyTorch 2.6 cannot fuse its sum."""
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


@functools.cache
def fuses() -> bool:
    """Whether this PyTorch has oneDNN's fused convolution, and it gives the right answer on this machine."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    x = torch.linspace(-9, 9, 128).view(1, 8, 4, 4).contiguous(memory_format=torch.channels_last)
    weight, bias = torch.eye(8)[:, :, None, None], torch.zeros(8)
    where: tuple[Any, ...] = ([0, 0], [1, 1], [1, 1], 1)
    try:
        laid = torch.ops.mkldnn._reorder_convolution_weight(weight, *where, list(x.shape))
        convolve = torch.ops.mkldnn._convolution_pointwise
        clamped = convolve(x, laid, bias, *where, "hardtanh", [0.0, 6.0], "")
        added = convolve.binary(x, x, laid, bias, *where, "add", 1.0, None, [], None)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.allclose(clamped, x.clamp(0, 6)) and torch.allclose(added, 2 * x)


DEVIATIONS = 5.0  # from its mean; the numbers of a channel beyond are cut
SIX = 6 / 255  # one step of what ReLU6 gives
M = TypeVar("M", bound=nn.Module)


def fold_int8(vision: M) -> M:
    """A copy of an evaluating vision model: folded, its backbone's blocks in 8 bits where a CPU is fast at it."""
    folded = cast("M", fold(vision))
    if next(vision.parameters()).device.type == "cpu" and int8_available():
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
def int8_available() -> bool:
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
