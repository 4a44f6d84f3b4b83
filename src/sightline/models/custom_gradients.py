"""Gradients computed otherwise than autograd would, because that takes less time or memory: the results are the same.

`LoopWeights`: autograd would make a gradient of each weight at each step of a loop and add them up, for an LSTM a
quarter of the time of training. Here the steps' inputs and gradients are kept until the last is known, and one product
makes the sum.

`fused_cross_entropy`: nothing in captioning is as large as (positions, V) numbers. Beside the scores, `F.cross_entropy`
makes three of that size: log-probabilities and two gradients. New memory is what a CPU spends most of that time on.
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

    def __init__(self, *weights: Tensor, bias: Tensor | None = None) -> None:
        self._uses: Uses = []
        # Autocast chooses types at each step, so it gets the plain product.
        self._later = torch.is_grad_enabled() and not torch.is_autocast_enabled(weights[0].device.type)
        self._weights, self._bias = weights, bias
        if self._later:
            self._bias, *looped = _Sum.apply(self._uses, bias, *weights)  # type: ignore[no-untyped-call]
            self._weights = tuple(looped)

    def times(self, *inputs: Tensor) -> Tensor:
        """The sum of the products of the inputs, each (N, in), and the bias, if there is one: (N, out)."""
        if self._later:
            total: Tensor = _Use.apply(self._uses, None, self._bias, *inputs, *self._weights)  # type: ignore[no-untyped-call]
            return total
        return _products(self._bias, inputs, self._weights, written=False)

    def plus(self, sums: Tensor, *inputs: Tensor) -> Tensor:
        """The products of the inputs, each (N, in), added to `sums` (N, out) in the place of a bias.

        Without gradients, `sums` is written into.
        """
        assert self._bias is None
        if self._later:
            total: Tensor = _Use.apply(self._uses, sums, None, *inputs, *self._weights)  # type: ignore[no-untyped-call]
            return total
        written = not (torch.is_grad_enabled() or torch.is_autocast_enabled(sums.device.type))
        return _products(sums, inputs, self._weights, written)


def _products(sums: Tensor | None, inputs: tuple[Tensor, ...], weights: tuple[Tensor, ...], written: bool) -> Tensor:
    for part, weight in zip(inputs, weights, strict=True):
        if sums is None:
            sums = part @ weight.T
        else:
            sums = sums.addmm_(part, weight.T) if written else torch.addmm(sums, part, weight.T)
        written = written or (not torch.is_grad_enabled() and sums.dtype == weight.dtype)  # what is new may be
    assert sums is not None
    return sums


class _Sum(torch.autograd.Function):
    """The weights as they are; their gradients are those of all uses, which have happened before they are asked."""

    @staticmethod
    def forward(ctx: Any, uses: Uses, bias: Tensor | None, *weights: Tensor) -> tuple[Tensor | None, ...]:
        ctx.uses = uses
        ctx.set_materialize_grads(False)
        return None if bias is None else bias.view_as(bias), *(weight.view_as(weight) for weight in weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if not ctx.uses:
            return (None,) * len(ctx.needs_input_grad)
        gradients, *inputs = (torch.cat(parts) for parts in zip(*ctx.uses, strict=True))
        ctx.uses.clear()
        of_bias = gradients.sum(0) if ctx.needs_input_grad[1] else None
        needed = zip(inputs, ctx.needs_input_grad[2:], strict=True)
        return None, of_bias, *(gradients.T @ part if wanted else None for part, wanted in needed)


class _Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, uses: Uses, sums: Tensor | None, bias: Tensor | None, *given: Tensor) -> Tensor:
        ctx.save_for_backward(*given)
        ctx.uses = uses
        count = len(given) // 2
        return _products(bias if sums is None else sums, given[:count], given[count:], written=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        count = len(ctx.saved_tensors) // 2
        inputs, weights = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        needed = ctx.needs_input_grad[3:]
        if ctx.needs_input_grad[2] or any(needed[count:]):
            ctx.uses.append((gradient, *inputs))
        of_inputs = (gradient @ weight if wanted else None for weight, wanted in zip(weights, needed, strict=False))
        return None, gradient if ctx.needs_input_grad[1] else None, None, *of_inputs, *(None,) * count


def fused_cross_entropy(logits: Tensor, targets: Tensor, spread: float = 0.0) -> Tensor:
    """(M,) log-probability of each of `targets` (M,) by its row of `logits` (M, V), which is written into.

    The backward pass writes there too, so it works once: of a graph that was kept, PyTorch refuses a second one.
    With `spread` it is the expected one of a word that is the target with 1 - `spread`, else any word, all alike.

    >>> fused_cross_entropy(torch.zeros(2, 4), torch.tensor([1, 3])).exp()
    tensor([0.2500, 0.2500])
    """
    found: Tensor = _FusedCrossEntropy.apply(logits, targets, spread)  # type: ignore[no-untyped-call]
    return found


class _FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, spread: float) -> Tensor:
        log_probs = torch.log_softmax(logits, -1, out=logits)
        ctx.save_for_backward(log_probs, targets)
        ctx.spread = spread
        of_target = log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
        return of_target if spread == 0 else (1 - spread) * of_target + spread * log_probs.mean(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        log_probs, targets = ctx.saved_tensors
        rows = gradient.unsqueeze(1)
        of_logits = log_probs.exp_().mul_(-rows)  # g · (q - p), q what the word is expected to be
        if ctx.spread:
            of_logits += rows * (ctx.spread / log_probs.shape[1])
        return of_logits.scatter_add_(1, targets.unsqueeze(1), rows * (1 - ctx.spread)), None, None
