"""Weights that a loop over words uses at every step.

Autograd would make a gradient of each weight at each step and add them up: for an LSTM that is a quarter of the time of
training. Here the steps' inputs and gradients are kept until the last is known, and one product makes the sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Uses = list[tuple[Tensor, ...]]  # the gradient of what a step computed, and what it computed it from


class LoopWeights:
    """Matrices (out, in), one for each input, that are used many times before gradients are asked for once.

    >>> weight = torch.ones(2, 3, requires_grad=True)
    >>> looped = LoopWeights(weight)
    >>> h = torch.ones(1, 2)
    >>> for x in torch.ones(4, 1, 3):
    ...     h = looped.plus(h, x)
    >>> h.sum().backward()
    >>> weight.grad
    tensor([[4., 4., 4.],
            [4., 4., 4.]])
    """

    def __init__(self, *weights: Tensor) -> None:
        self._uses: Uses = []
        # Autocast chooses types at each step, so it gets the plain product.
        self._later = torch.is_grad_enabled() and not torch.is_autocast_enabled(weights[0].device.type)
        self._weights: tuple[Tensor, ...] = weights
        if self._later:
            self._weights = _Sum.apply(self._uses, *weights)  # type: ignore[no-untyped-call]

    def plus(self, sums: Tensor, *inputs: Tensor) -> Tensor:
        """The products of the inputs, each (N, in), added to `sums` (N, out) or (out,).

        Without gradients, `sums` (N, out) is written into.
        """
        if self._later:
            total: Tensor = _Use.apply(self._uses, sums, *inputs, *self._weights)  # type: ignore[no-untyped-call]
            return total
        written = not (torch.is_grad_enabled() or torch.is_autocast_enabled(sums.device.type) or sums.dim() == 1)
        return _products(sums, inputs, self._weights, written)


def _products(sums: Tensor, inputs: tuple[Tensor, ...], weights: tuple[Tensor, ...], written: bool) -> Tensor:
    for part, weight in zip(inputs, weights, strict=True):
        sums = sums.addmm_(part, weight.T) if written else torch.addmm(sums, part, weight.T)
        written = written or (not torch.is_grad_enabled() and sums.dtype == weight.dtype)  # what is new may be
    return sums


class _Sum(torch.autograd.Function):
    """The weights as they are; their gradients are those of all uses, which have happened before they are asked."""

    @staticmethod
    def forward(ctx: Any, uses: Uses, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.uses = uses
        ctx.set_materialize_grads(False)
        return tuple(weight.view_as(weight) for weight in weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if not ctx.uses:
            return (None,) * len(ctx.needs_input_grad)
        gradients, *inputs = (torch.cat(parts) for parts in zip(*ctx.uses, strict=True))
        ctx.uses.clear()
        needed = zip(inputs, ctx.needs_input_grad[1:], strict=True)
        return None, *(gradients.T @ part if wanted else None for part, wanted in needed)


class _Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, uses: Uses, sums: Tensor, *given: Tensor) -> Tensor:
        ctx.save_for_backward(*given)
        ctx.uses, ctx.one_row = uses, sums.dim() == 1
        count = len(given) // 2
        return _products(sums, given[:count], given[count:], written=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        count = len(ctx.saved_tensors) // 2
        inputs, weights = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        needed = ctx.needs_input_grad[2:]
        if any(needed[count:]):
            ctx.uses.append((gradient, *inputs))
        of_inputs = (gradient @ weight if wanted else None for weight, wanted in zip(weights, needed, strict=False))
        return None, gradient.sum(0) if ctx.one_row else gradient, *of_inputs, *(None,) * count
