"""A network for inference only: batch norms folded into the convolutions before them.

On a CPU where PyTorch has oneDNN, each convolution is one call that also does the ReLU6 or the residual sum, with its
weights laid out once for the pictures' shape. Lopsided padding, which oneDNN is not offered by PyTorch, becomes even
padding under a kernel with a row or column of zeros in front: cheaper than a padded copy of the picture.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.errors import ConfigError
from sightline.vision.efficientnet_lite import Convolution, finish, pad_same, same_padding

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
        if (
            x.device.type == "cpu"
            and x.dtype == self.weight.dtype == torch.float32
            and fuses()
            and not _learns(x, plus)
        ):
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


def _learns(*inputs: Tensor | None) -> bool:
    """Whether gradients are asked of the inputs, which oneDNN's call does not give."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


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
