"""RoIAlign (He et al. 2017, Section 3): what a feature map holds inside each box, by bilinear samples.

A bilinear weight is a product of one over rows and one over columns, so the samples are matrix products, on a CPU
faster than gathering them. Half-pixel convention (`aligned=True` elsewhere): the centre of cell i of W lies at
(i + 0.5) / W. Samples outside the outermost cell centres take the value of the nearest cell; other implementations
give 0 from one cell outside on, which only boxes that leave the picture would notice.
"""

from __future__ import annotations

import torch
from torch import Tensor


def roi_align(maps: Tensor, boxes: Tensor, size: int, samples: int = 2) -> Tensor:
    """Features of `size`·`size` bins of every box, each the mean of `samples`·`samples` points.

    `maps` (B, C, H, W) and `boxes` (B, n, 4) to (B, n, C, size, size). Gradients reach the maps, not the boxes.
    """
    channels, height, width = maps.shape[1:]
    x, y = _points(boxes, size * samples).view(*boxes.shape[:2], 2, size, samples).unbind(2)  # (B, n, size, samples)
    rows = _weights(y, height).to(maps.dtype).flatten(1, 2) @ maps.permute(0, 2, 3, 1).flatten(2)  # (B, n·size, W·C)
    bins = _weights(x, width).to(maps.dtype)[:, :, None] @ rows.view(*x.shape[:3], width, channels)
    return bins.movedim(-1, 2)  # from (B, n, size, size, C)


def roi_mean(maps: Tensor, boxes: Tensor, size: int, samples: int = 2) -> Tensor:
    """The mean of `roi_align` over its bins, (B, n, C), without them: all points of a box weigh the same."""
    height, width = maps.shape[-2:]
    x, y = _points(boxes, size * samples).unbind(2)  # (B, n, s)
    weights = _weights(y, height)[..., :, None] * _weights(x, width)[..., None, :]  # (B, n, H, W)
    return weights.flatten(2).to(maps.dtype) @ maps.flatten(2).mT


def _points(boxes: Tensor, count: int) -> Tensor:
    """(B, n, 2, count): x and y of points evenly inside each box, half a step from its sides."""
    boxes = boxes.detach().float()[..., None]
    steps = (torch.arange(count, device=boxes.device) + 0.5) / count
    return torch.lerp(boxes[..., :2, :], boxes[..., 2:, :], steps)


def _weights(points: Tensor, cells: int) -> Tensor:
    """(…, s) points to (…, cells): the mean of their linear weights, a hat that ends at a cell's neighbours."""
    places = (points * cells - 0.5).clamp(0, cells - 1)
    away = (places[..., None] - torch.arange(cells, device=points.device)).abs()
    return (1 - away).relu_().mean(-2)
