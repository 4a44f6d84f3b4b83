"""Gradients computed otherwise than autograd would, because that takes less time or memory: the results are the same.

`LoopWeights`: autograd would make a gradient of each weight at each step of a loop and add them up, for an LSTM a
quarter of the time of training. Here the steps' inputs and gradients are kept until the last is known, and one product
makes the sum.

`fused_cross_entropy`: nothing in captioning is as large as (positions, V) numbers. Beside the scores, `F.cross_entropy`
makes three of that size: log-probabilities and two gradients. New memory is what a CPU spends most of that time on.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Uses = list[tuple[Tensor, ...]]  # for each step the gradient of its output, and its inputs


class LoopWeights:
    """Matrices (out, in), one for each input, that are used many times before gradients are asked for once.

    >>> weight = torch.ones(2, 3, requires_grad=True)
    >>> looped = LoopWeights(weight)
    >>> h = torch.ones(1, 2)
    >>> for x in torch.ones(4, 1, 3):
    ...     h = looped.times(x, plus=h)
    >>> h.sum().backward()
    >>> weight.grad
    tensor([[4., 4., 4.],
            [4., 4., 4.]])
    """

    def __init__(self, *weights: Tensor, bias: Tensor | None = None) -> None:
        self._uses: Uses = []
        # Autocast chooses types at each step, so it gets the plain product.
        self._deferred = torch.is_grad_enabled() and not torch.is_autocast_enabled(weights[0].device.type)
        self._weights, self._bias = weights, bias
        if self._deferred:
            self._bias, *looped = _Sum.apply(self._uses, bias, *weights)  # type: ignore[no-untyped-call]
            self._weights = tuple(looped)

    def times(self, *inputs: Tensor, plus: Tensor | None = None) -> Tensor:
        """(N, out) the sum of the products of the inputs, each (N, in), and of the bias, if there is one.

        `plus` (N, out) stands in the place of a bias, which there must not be then.
        """
        assert plus is None or self._bias is None
        if self._deferred:
            total: Tensor = _Use.apply(self._uses, plus, self._bias, *inputs, *self._weights)  # type: ignore[no-untyped-call]
            return total
        return _products(self._bias if plus is None else plus, inputs, self._weights)


def _products(sums: Tensor | None, inputs: tuple[Tensor, ...], weights: tuple[Tensor, ...]) -> Tensor:
    """`sums` (N, out) and the products of the inputs with their weights."""
    for x, weight in zip(inputs, weights, strict=True):
        sums = x @ weight.T if sums is None else torch.addmm(sums, x, weight.T)
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
        bias_gradient = gradients.sum(0) if ctx.needs_input_grad[1] else None
        pairs = zip(inputs, ctx.needs_input_grad[2:], strict=True)
        return None, bias_gradient, *(gradients.T @ x if needed else None for x, needed in pairs)


class _Use(torch.autograd.Function):
    """One step's products; its gradient with respect to the weights waits in `uses` for `_Sum`."""

    @staticmethod
    def forward(ctx: Any, uses: Uses, sums: Tensor | None, bias: Tensor | None, *inputs_and_weights: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs_and_weights)
        ctx.uses = uses
        count = len(inputs_and_weights) // 2
        inputs, weights = inputs_and_weights[:count], inputs_and_weights[count:]
        return _products(bias if sums is None else sums, inputs, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        count = len(ctx.saved_tensors) // 2
        inputs, weights = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        input_needs, weight_needs = ctx.needs_input_grad[3 : 3 + count], ctx.needs_input_grad[3 + count :]
        if ctx.needs_input_grad[2] or any(weight_needs):
            ctx.uses.append((gradient, *inputs))
        sums_gradient = gradient if ctx.needs_input_grad[1] else None
        pairs = zip(weights, input_needs, strict=True)
        input_gradients = (gradient @ weight if needed else None for weight, needed in pairs)
        return None, sums_gradient, None, *input_gradients, *(None,) * count


def fused_cross_entropy(logits: Tensor, targets: Tensor, spread: float = 0.0) -> Tensor:
    """(M,) log-probability of each of `targets` (M,) by its row of `logits` (M, V), which is written into.

    The backward pass writes there too, so it works once: of a graph that was kept, PyTorch refuses a second one.
    With `spread` it is the expected one of a word that is the target with 1 - `spread`, else any word, all alike.

    >>> fused_cross_entropy(torch.zeros(2, 4), torch.tensor([1, 3])).exp()
    tensor([0.2500, 0.2500])
    """
    log_probs: Tensor = _FusedCrossEntropy.apply(logits, targets, spread)  # type: ignore[no-untyped-call]
    return log_probs


class _FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, spread: float) -> Tensor:
        log_probs = torch.log_softmax(logits, -1, out=logits)
        ctx.save_for_backward(log_probs, targets)
        ctx.spread = spread
        target_log_probs = log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
        if spread == 0:
            return target_log_probs
        return (1 - spread) * target_log_probs + spread * log_probs.mean(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        log_probs, targets = ctx.saved_tensors
        rows = gradient.unsqueeze(1)
        logits_gradient = log_probs.exp_().mul_(-rows)  # g · (q - p), q what the word is expected to be
        if ctx.spread:
            logits_gradient += rows * (ctx.spread / log_probs.shape[1])
        return logits_gradient.scatter_add_(1, targets.unsqueeze(1), rows * (1 - ctx.spread)), None, None
