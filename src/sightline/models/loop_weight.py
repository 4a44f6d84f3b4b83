"""Weights that a loop over words uses at every step.

Autograd would make a gradient of each weight at each step and add them up: for an LSTM that is a quarter of the time of
training. Here the steps' inputs and gradients are kept until the last is known, and one product makes the sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Uses = list[tuple[Tensor, Tensor]]  # gradients of what a step computed, and what it computed it from


class LoopWeight:
    """A matrix (out, in) that is used many times before gradients are asked for once.

    >>> weight = torch.ones(2, 3, requires_grad=True)
    >>> looped = LoopWeight(weight)
    >>> h = torch.ones(1, 2)
    >>> for x in torch.ones(4, 1, 3):
    ...     h = looped.plus(h, x)
    >>> h.sum().backward()
    >>> weight.grad
    tensor([[4., 4., 4.],
            [4., 4., 4.]])
    """

    def __init__(self, weight: Tensor) -> None:
        self._uses: Uses = []
        # Autocast chooses types at each step, so it gets the plain product.
        self._later = torch.is_grad_enabled() and not torch.is_autocast_enabled(weight.device.type)
        self._weight: Tensor = weight
        if self._later:
            self._weight = _Sum.apply(weight, self._uses)  # type: ignore[no-untyped-call]

    def plus(self, sums: Tensor, inputs: Tensor) -> Tensor:
        """The product of `inputs` (N, in), added to `sums` (N, out) or (out,).

        Without gradients, `sums` (N, out) is written into.
        """
        if self._later:
            total: Tensor = _Use.apply(sums, inputs, self._weight, self._uses)  # type: ignore[no-untyped-call]
            return total
        if torch.is_grad_enabled() or torch.is_autocast_enabled(sums.device.type) or sums.dim() == 1:
            return torch.addmm(sums, inputs, self._weight.T)
        return sums.addmm_(inputs, self._weight.T)


class _Sum(torch.autograd.Function):
    """The weight as it is; its gradient is that of all uses, which have happened before this is asked."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, uses: Uses) -> Tensor:
        ctx.uses = uses
        ctx.set_materialize_grads(False)
        return weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, None]:
        if not ctx.uses:
            return None, None
        gradients, inputs = (torch.cat(parts) for parts in zip(*ctx.uses, strict=True))
        ctx.uses.clear()
        return gradients.T @ inputs, None


class _Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sums: Tensor, inputs: Tensor, weight: Tensor, uses: Uses) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.uses, ctx.one_row = uses, sums.dim() == 1
        return torch.addmm(sums, inputs, weight.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        inputs, weight = ctx.saved_tensors
        if ctx.needs_input_grad[2]:
            ctx.uses.append((gradient, inputs))
        sums = gradient.sum(0) if ctx.one_row else gradient
        return sums, gradient @ weight if ctx.needs_input_grad[1] else None, None, None
