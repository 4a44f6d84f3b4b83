"""The mean of RoIAlign (He et al. 2017, Section 3): what a feature map holds inside each box, by bilinear samples.

A bilinear weight is a product of one over rows and one over columns, so the mean is a matrix product, on a CPU faster
than gathering samples. Half-pixel convention (`aligned=True` elsewhere): the centre of cell i of W lies at
(i + 0.5) / W. Samples outside the outermost cell centres take the value of the nearest cell; other implementations
give 0 from one cell outside on, which only boxes that leave the picture would notice.
"""

from __future__ import annotations

import torch
from torch import Tensor

SAMPLES = 2  # along each side of a bin


def roi_mean(maps: Tensor, boxes: Tensor, size: int) -> Tensor:
    """The mean over `size` · `size` bins of every box, each of 2 · 2 points: all points of a box weigh the same.

    `maps` (B, C, H, W) and `boxes` (B, n, 4) to (B, n, C). Gradients reach the maps, not the boxes.
    """
    height, width = maps.shape[-2:]
    x, y = _points(boxes, size * SAMPLES).unbind(2)  # (B, n, s)
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
