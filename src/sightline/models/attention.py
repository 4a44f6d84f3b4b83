"""Attention pieces that several papers share."""

from __future__ import annotations

import torch
from torch import Tensor


def masked_softmax(scores: Tensor, mask: Tensor | None, dim: int = -1) -> Tensor:
    """Softmax over the places where `mask` (broadcastable) is True; the others, and rows without any, get 0."""
    if mask is None:
        return scores.softmax(dim)
    filled = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return filled.softmax(dim) * mask


def masked_mean(rows: Tensor, mask: Tensor | None) -> Tensor:
    """(B, n, d) to (B, d): the mean over the n rows where `mask` (B, n) is True; 0 where there is none."""
    if mask is None:
        return rows.mean(1)
    kept = mask.unsqueeze(-1).to(rows.dtype)
    return (rows * kept).sum(1) / kept.sum(1).clamp(min=1)
