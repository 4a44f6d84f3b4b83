"""A model for inference on a CPU whose matrix products are of 8-bit integers.

A word of one photo is a product of a few rows with all the weights, which takes as long as reading the weights takes: a
quarter of the bytes are read four times as soon. Weights are rounded once, by the largest of each of their rows, inputs
at each call by the largest of all ("dynamic quantisation"); sums and results are float32. What else a model does stays
as it is.
"""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sightline.models.transformer_decoder import TransformerCaptioner

SMALLEST = 4096  # weights that a layer has at least: smaller ones are quick as they are
M = TypeVar("M", bound=nn.Module)


def with_int8(model: M) -> M:
    """A copy of an evaluating model with its linear layers in 8 bits; the model itself where PyTorch cannot do that."""
    if model.training:
        raise ValueError("a model in training mode has no use for rounded weights: call eval() first")
    if not available():
        return model
    swift = copy.deepcopy(model)
    if (
        isinstance(swift, TransformerCaptioner) and swift.output is None
    ):  # words are said with the matrix they are read by
        swift.output = Int8Linear(swift.embedding.weight, None)  # type: ignore[assignment]
    _replace(swift)
    return swift


def _replace(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and child.weight.numel() >= SMALLEST:
            setattr(module, name, Int8Linear(child.weight, child.bias))
        else:
            _replace(child)


class Int8Linear(nn.Module):
    """x Wᵀ + b, W in 8 bits with a scale for each row, x in 8 bits with one scale for all of it."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach().float().cpu()
        scales = (weight.abs().amax(1) / 127).double().clamp(min=1e-12)
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # a later PyTorch may not have it; `available` tells
            warnings.simplefilter("ignore", UserWarning)
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self._packed: Any = torch.ops.quantized.linear_prepack(rounded, None if bias is None else bias.detach().float())
        self._fewer = not _has_vnni()  # without these instructions, sums of two products of 8 bits can overflow

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) float32 to (…, out)."""
        found: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, self._fewer)
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Int8Linear:
        """Itself: nothing in it changes."""
        return self


def _has_vnni() -> bool:
    asks = getattr(torch.cpu, "_is_vnni_supported", None)
    return bool(asks is not None and asks())


@functools.cache
def available() -> bool:
    """Whether this PyTorch multiplies 8-bit integers on this machine, and gets it right."""
    weight, x = torch.linspace(-1, 1, 64).view(4, 16), torch.linspace(-2, 2, 32).view(2, 16)
    try:
        found = Int8Linear(weight, torch.ones(4))(x)
    except (AttributeError, RuntimeError):
        return False
    return torch.allclose(found, x @ weight.T + 1, atol=0.3)
