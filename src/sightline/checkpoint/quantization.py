"""Weights made small for a file, and back: int8 with one scale for each output, or float16.

int8 keeps each row of a matrix as whole numbers from -127 to 127 times the row's scale (symmetric; weights become
float32 again when they are read). A depthwise convolution has too few numbers in a row for that, and small tensors too
few to matter: both are float16, and so is all else, unless a number is beyond what float16 can hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["int8", "float16", "float32"]
SCALE = ":scale"  # after the name of an int8 tensor; no module's name has a colon
SMALL = 4096  # tensors of fewer numbers stay float16


def pack(weights: Mapping[str, Tensor], precision: Precision) -> dict[str, Tensor]:
    """The tensors to store."""
    packed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if not tensor.is_floating_point():
            packed[name] = tensor
        elif precision == "int8" and tensor.ndim > 1 and tensor.shape[1] > 1 and tensor.numel() >= SMALL:
            packed[name], packed[name + SCALE] = quantise(tensor.float())
        else:
            half = tensor.half()
            exact = precision == "float32" or not half.isfinite().all()
            packed[name] = tensor.float() if exact else half
    return packed


def unpack(packed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that were packed, as float32; whole numbers as they were."""
    weights: dict[str, Tensor] = {}
    for name, tensor in packed.items():
        if name.endswith(SCALE):
            continue
        scale = packed.get(name + SCALE)
        if scale is not None:
            tensor = tensor.float().mul_(scale.view(-1, *[1] * (tensor.ndim - 1)))
        weights[name] = tensor.float() if tensor.is_floating_point() else tensor
    return weights


def quantise(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """(outputs, …) to int8 of the same shape and the scale (outputs,) of each row; a row of zeros has the scale 0."""
    rows = tensor.flatten(1)
    scale = rows.abs().amax(1) / 127
    whole = torch.where(scale[:, None] > 0, rows / scale[:, None], 0).round_()
    return whole.clamp_(-127, 127).to(torch.int8).view(tensor.shape), scale
