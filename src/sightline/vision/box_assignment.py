"""Which box each location of the feature maps learns to find.

Two rules: `assign`, the ranges and centres of FCOS (Tian et al. 2019), and `assign_by_overlap`, the adaptive thresholds
of ATSS (Zhang et al. 2020). Both give (B, L): the place of the box among the image's, -1 where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sightline.vision.boxes import area, pairwise_iou


class Locations(NamedTuple):
    """The cells of several maps, row by row, one map after the other; L in all, lengths normalised."""

    centres: Tensor
    """(L, 2) x and y."""
    cell: Tensor
    """(L,) side of the location's cell."""
    ranges: Tensor
    """(L, 2) least and largest distance from the centre to a side of the boxes that the map is for."""
    counts: tuple[int, ...]
    """How many locations each map has."""


def locations(shapes: Sequence[tuple[int, int]], reach: float = 8.0, device: torch.device | None = None) -> Locations:
    """The locations of maps of these (height, width), finest first.

    A map is for boxes whose farthest side lies up to `reach` cells away and that the finer map does not reach (FCOS:
    64 pixels at stride 8); the coarsest map takes all larger ones. Where cells are not square, the longer side counts.
    """
    centres, cells, ranges, lowest = [], [], [], 0.0
    for number, (height, width) in enumerate(shapes, start=1):
        y = (torch.arange(height, device=device) + 0.5) / height
        x = (torch.arange(width, device=device) + 0.5) / width
        centres.append(torch.cartesian_prod(y, x).flip(-1))
        cell = 1 / min(height, width)
        highest = reach * cell if number < len(shapes) else float("inf")
        cells.append(x.new_full((height * width,), cell))
        # filled on the device: a list that is moved there would wait for all it has still to do
        ranges.append(torch.stack([torch.full_like(cells[-1], lowest), torch.full_like(cells[-1], highest)], -1))
        lowest = highest
    counts = tuple(height * width for height, width in shapes)
    return Locations(torch.cat(centres), torch.cat(cells), torch.cat(ranges), counts)


def distances(centres: Tensor, boxes: Tensor) -> Tensor:
    """From centres (…, 2) to the left, top, right and bottom of boxes (…, 4); negative outside (FCOS, Eq. 1)."""
    return torch.cat([centres - boxes[..., :2], boxes[..., 2:] - centres], -1)


def assign(centres: Tensor, cell: Tensor, ranges: Tensor, truth: Tensor, mask: Tensor, radius: float = 1.5) -> Tensor:
    """(B, L) of the boxes `truth` (B, m, 4), of which `mask` (B, m) says the real ones.

    A location (L) takes a box if it lies inside it, within `radius` cells of its centre along both axes, and the
    farthest side is in the range of the location's map; of several boxes the smallest. A box that holds no location,
    being smaller than a cell, is nobody's.
    """
    truth, sizes = truth[:, None], area(truth)[:, None]  # (B, 1, m, 4), (B, 1, m)
    sides = distances(centres[:, None], truth)  # (B, L, m, 4)
    farthest = sides.amax(-1)
    middle = (truth[..., :2] + truth[..., 2:]) / 2
    near = (centres[:, None] - middle).abs().amax(-1) < radius * cell[:, None]
    suits = (farthest >= ranges[:, :1]) & (farthest <= ranges[:, 1:])
    takes = (sides.amin(-1) > 0) & near & suits & mask[:, None]
    return _best(-sizes, takes)


def assign_by_overlap(
    centres: Tensor,
    cell: Tensor,
    counts: Sequence[int],
    truth: Tensor,
    mask: Tensor,
    nearest: int = 9,
    anchor: float = 8.0,
    each: bool = False,
) -> Tensor:
    """(B, L) by ATSS (Zhang et al. 2020, Algorithm 1): each box sets its own bar.

    Candidates of a box are the `nearest` locations of each map (`counts` says how many a map has); a location's anchor
    is a square of `anchor` cells. A candidate takes the box if it lies inside and its anchor overlaps the box by at
    least the mean plus the standard deviation over all candidates; of several boxes the one it overlaps most.

    Among crowded boxes some get no location that way. With `each`, such a box takes the one whose anchor overlaps it
    most, the nearest of equals, whoever had it.
    """
    if not truth.shape[1]:
        return mask.new_full((len(mask), len(centres)), -1, dtype=torch.long)
    half = anchor / 2 * cell[:, None]
    overlaps = pairwise_iou(truth, torch.cat([centres - half, centres + half], -1))  # (B, m, L)
    middle = (truth[..., :2] + truth[..., 2:]) / 2
    away = (middle[:, :, None] - centres).square().sum(-1)  # (B, m, L)
    found, start = [], 0
    for count in counts:
        found.append(away[..., start : start + count].topk(min(nearest, count), largest=False).indices + start)
        start += count
    candidates = torch.cat(found, -1)  # (B, m, maps · nearest)
    theirs = overlaps.gather(-1, candidates)
    bar = theirs.mean(-1, keepdim=True) + theirs.std(-1, keepdim=True)
    inside = distances(centres, truth[:, :, None]).amin(-1) > 0
    chosen = torch.zeros_like(inside).scatter_(-1, candidates, theirs >= bar)
    found_by = _best(overlaps.mT, (chosen & inside & mask[..., None]).mT)
    return _with_lonely(found_by, overlaps - away, mask) if each else found_by


def _with_lonely(assigned: Tensor, fit: Tensor, mask: Tensor) -> Tensor:
    """(B, L) in which every real box of which there was nothing has its best location by `fit` (B, m, L)."""
    count, boxes, cells = fit.shape
    seen = assigned.new_zeros(count, boxes + 1).scatter_(1, assigned + 1, 1)[:, 1:].bool()
    place = torch.where(mask & ~seen, fit.argmax(-1), cells)  # the others share a place behind the last
    numbers = torch.arange(boxes, device=assigned.device).expand(count, -1)
    return torch.cat([assigned, assigned[:, :1]], 1).scatter_(1, place, numbers)[:, :cells]


def _best(value: Tensor, takes: Tensor) -> Tensor:
    """The box (last dimension) of largest value among those taken, the first of equals; -1 if none is."""
    if not takes.shape[-1]:
        return takes.new_full(takes.shape[:-1], -1, dtype=torch.long)
    best, index = value.where(takes, -torch.inf).max(-1)
    return index.masked_fill_(best == -torch.inf, -1)
