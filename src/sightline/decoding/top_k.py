"""The k largest of each row, in an order that never depends on the machine."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 128


def top(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(N, V) to the k largest of each row and their places, (N, k) each; of equal ones, the lowest place first.

    `torch.topk` promises no order among equals, and on a CPU is slower than this: the maximum of every block of a row,
    then k times the best of the best block. It writes -inf over what it takes out of `values`.
    """
    count = values.shape[1]
    k = min(k, count)
    if k == 1:
        best = values.max(1, keepdim=True)
        return best.values, best.indices
    if k * BLOCK > count:
        ordered = values.sort(dim=1, descending=True, stable=True)
        return ordered.values[:, :k], ordered.indices[:, :k]
    whole = count // BLOCK * BLOCK
    leaders = values[:, :whole].view(len(values), -1, BLOCK).amax(-1)  # (N, blocks)
    if whole < count:
        leaders = torch.cat([leaders, values[:, whole:].amax(1, keepdim=True)], 1)
    within = torch.arange(BLOCK, device=values.device)
    found, places = [], []
    for _ in range(k):
        block = leaders.max(1, keepdim=True).indices  # (N, 1)
        members = (block * BLOCK + within).clamp_(max=count - 1)  # (N, BLOCK)
        best = values.gather(1, members).max(1, keepdim=True)
        place = members.gather(1, best.indices)
        found.append(best.values)
        places.append(place)
        values.scatter_(1, place, -torch.inf)
        leaders.scatter_(1, block, values.gather(1, members).amax(1, keepdim=True))
    return torch.cat(found, 1), torch.cat(places, 1)
