"""ln p of one word of each distribution over the vocabulary, in the memory of the scores it is made of.

Nothing in captioning is as large as (positions, V) numbers. Beside the scores, `F.cross_entropy` makes three of that
size: log-probabilities and two gradients. New memory is what a CPU spends most of that time on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


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
