"""Boxes: normalised x1 y1 x2 y2 in the last dimension, 0 to 1 from the picture's left and top."""

from __future__ import annotations

import torch
from torch import Tensor

_SMALLEST = 1e-7  # an area below it counts as none, so that no ratio divides by zero


def area(boxes: Tensor) -> Tensor:
    """(…, 4) to (…); a box whose corners are the wrong way round has none."""
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def pairwise_iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of each of `a` (…, n, 4) with each of `b` (…, m, 4): (…, n, m)."""
    ax1, ay1, ax2, ay2 = _exact(a).movedim(-1, 0).contiguous().unsqueeze(-1)  # each (…, n, 1)
    bx1, by1, bx2, by2 = _exact(b).movedim(-1, 0).contiguous().unsqueeze(-2)  # each (…, 1, m)
    wide = torch.minimum(ax2, bx2).sub_(torch.maximum(ax1, bx1)).clamp_(min=0)
    high = torch.minimum(ay2, by2).sub_(torch.maximum(ay1, by1)).clamp_(min=0)
    both = wide * high  # (…, n, m)
    either = (_sides(ax1, ay1, ax2, ay2) + _sides(bx1, by1, bx2, by2)).sub_(both)
    return both / either.clamp_(min=_SMALLEST)


def giou(a: Tensor, b: Tensor) -> Tensor:
    """Generalised IoU (Rezatofighi et al. 2019, Algorithm 1) of `a` with `b`, box by box: (…, 4) to (…), -1 to 1.

    The loss 1 - giou pulls boxes together even where they do not touch. A box without area has finite gradients.
    """
    ax1, ay1, ax2, ay2 = _exact(a).unbind(-1)
    bx1, by1, bx2, by2 = _exact(b).unbind(-1)
    both = _sides(torch.maximum(ax1, bx1), torch.maximum(ay1, by1), torch.minimum(ax2, bx2), torch.minimum(ay2, by2))
    either = _sides(ax1, ay1, ax2, ay2) + _sides(bx1, by1, bx2, by2) - both
    hull = _sides(torch.minimum(ax1, bx1), torch.minimum(ay1, by1), torch.maximum(ax2, bx2), torch.maximum(ay2, by2))
    return both / either.clamp(min=_SMALLEST) - (hull - either) / hull.clamp(min=_SMALLEST)


def flip(boxes: Tensor) -> Tensor:
    """The boxes of the picture mirrored left to right."""
    x1, y1, x2, y2 = boxes.unbind(-1)
    return torch.stack([1 - x2, y1, 1 - x1, y2], -1)


def crop(boxes: Tensor, window: Tensor) -> tuple[Tensor, Tensor]:
    """Boxes (…, n, 4) in the coordinates of a `window` (…, 4) cut from the picture, clipped to it.

    Also gives (…, n): the share of each box's area that stays visible, 0 for a box without area. A window may reach
    beyond the picture (which then becomes smaller in it).
    """
    corner, end = window[..., None, :2], window[..., None, 2:]
    scale = 1 / (end - corner)
    inside = clip((boxes - torch.cat([corner, corner], -1)) * torch.cat([scale, scale], -1))
    visible = area(inside) * area(window)[..., None] / area(boxes).clamp(min=_SMALLEST)
    return inside, visible.clamp(max=1)


def clip(boxes: Tensor) -> Tensor:
    """What of the boxes lies inside the picture."""
    return boxes.clamp(0, 1)


def _sides(x1: Tensor, y1: Tensor, x2: Tensor, y2: Tensor) -> Tensor:
    return (x2 - x1).clamp(min=0) * (y2 - y1).clamp(min=0)


def _exact(boxes: Tensor) -> Tensor:
    """Half-precision numbers cannot hold the corners of small boxes apart."""
    return boxes if boxes.dtype == torch.float64 else boxes.float()
