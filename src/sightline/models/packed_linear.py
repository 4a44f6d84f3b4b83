"""Products of float32 for inference on a CPU whose weights lie in memory as oneDNN reads them.

A word of one photo is a product of a few rows, one for each hypothesis. PyTorch's general product of so few is bound by
how it reads the weights; with the weights laid out once, the rows are through sooner, to the same numbers but for
rounding.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

ROWS = 4  # that the layout is chosen for, about a beam of 3; more are right, too


class PackedLinear(nn.Module):
    """x Wᵀ + b, for inference only: it has no gradients, and is not pickled."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._packed: Any = torch.ops.mkldnn._reorder_linear_weight(weight.detach().float().cpu(), ROWS)
        self._bias = None if bias is None else bias.detach().float().cpu()

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) float32 to (…, out)."""
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedLinear:
        """Itself: nothing in it changes."""
        return self


@functools.cache
def available() -> bool:
    """Whether this PyTorch has such products, and gets them right."""
    weight, x = torch.linspace(-1, 1, 64).view(4, 16), torch.linspace(-2, 2, 96).view(2, 3, 16)
    try:
        with torch.no_grad():
            found = PackedLinear(weight, torch.ones(4))(x)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.allclose(found, x @ weight.T + 1, atol=1e-5)
