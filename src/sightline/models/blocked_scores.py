"""w·tanh(k + q), the attention score of Up-Down and its kin, in blocks that a CPU's caches hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 1 << 18  # numbers of the (B, K, n, a) sums that exist at the same time


def blocked_scores(keys: Tensor, query: Tensor, weight: Tensor, block: int | None = None) -> Tensor:
    """Keys (B, n, a), queries (B, K, a) and a weight (a,) to scores (B, K, n)."""
    found: Tensor = _BlockedScores.apply(keys, query, weight, block or BLOCK)  # type: ignore[no-untyped-call]
    return found


class _BlockedScores(torch.autograd.Function):
    """w·tanh(k + q) of keys (B, n, a) and queries (B, K, a) for some images at a time, which caches hold.

    (B, K, n, a) numbers never exist at once, and the backward pass computes them again: on a CPU that takes less time
    than to write and read them.
    """

    @staticmethod
    def forward(ctx: Any, keys: Tensor, query: Tensor, weight: Tensor, block: int) -> Tensor:
        ctx.save_for_backward(keys, query, weight)
        ctx.block = block
        room = _room(keys, query, block)
        parts = _parts(room, keys, query)
        return torch.cat([torch.add(k.unsqueeze(1), q.unsqueeze(2), out=r).tanh_() @ weight for k, q, r in parts])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        keys, query, weight = ctx.saved_tensors
        of_keys, of_query, of_weight = torch.empty_like(keys), torch.empty_like(query), torch.zeros_like(weight)
        room = _room(keys, query, ctx.block)
        size = len(room)
        for first, (k, q, r) in zip(range(0, len(keys), size), _parts(room, keys, query), strict=True):
            here = slice(first, first + size)
            waves = torch.add(k.unsqueeze(1), q.unsqueeze(2), out=r).tanh_()  # (b, K, n, a)
            given = gradient[here]  # (b, K, n)
            of_weight += given.flatten() @ waves.flatten(0, 2)
            slopes = waves.square_().neg_().add_(1).mul_(given.unsqueeze(-1))
            torch.sum(slopes, 1, out=of_keys[here])
            torch.sum(slopes, 2, out=of_query[here])
        return of_keys.mul_(weight), of_query.mul_(weight), of_weight, None


def _room(keys: Tensor, query: Tensor, block: int) -> Tensor:
    """Memory for the (b, K, n, a) numbers of as many images as `block` allows."""
    size = max(1, block // max(1, query.shape[1] * keys.shape[1] * keys.shape[2]))
    return keys.new_empty(min(size, len(keys)), query.shape[1], *keys.shape[1:])


def _parts(room: Tensor, keys: Tensor, query: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Keys and queries of some images at a time, and the memory for their sums."""
    for k, q in zip(torch.split(keys, len(room)), torch.split(query, len(room)), strict=True):
        yield k, q, room[: len(k)]
