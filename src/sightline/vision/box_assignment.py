"""Which box each location of the feature maps learns to find: the adaptive thresholds of ATSS (Zhang et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sightline.vision.boxes import pairwise_iou


class Locations(NamedTuple):
    """The cells of several maps, row by row, one map after the other; L in all, lengths normalised."""

    centres: Tensor  # (L, 2) x and y
    cell: Tensor  # (L,) side of the location's cell
    counts: tuple[int, ...]  # how many locations each map has


def locations(shapes: Sequence[tuple[int, int]], device: torch.device | None = None) -> Locations:
    """The locations of maps of these (height, width). Where cells are not square, the longer side counts."""
    centres, cells = [], []
    for height, width in shapes:
        y = (torch.arange(height, device=device) + 0.5) / height
        x = (torch.arange(width, device=device) + 0.5) / width
        centres.append(torch.cartesian_prod(y, x).flip(-1))
        cells.append(x.new_full((height * width,), 1 / min(height, width)))
    counts = tuple(height * width for height, width in shapes)
    return Locations(torch.cat(centres), torch.cat(cells), counts)


def assign_by_overlap(places: Locations, truth: Tensor, mask: Tensor, nearest: int = 9, anchor: float = 8.0) -> Tensor:
    """(B, L) the place among `truth` (B, m, 4) of each location's box, -1 where it has none (ATSS, Algorithm 1).

    `mask` (B, m) says which boxes are real. Candidates of a box are the `nearest` locations of each map; a location's
    anchor is a square of `anchor` cells. A candidate takes the box if it lies inside and its anchor overlaps the box by
    at least the mean plus the standard deviation over all candidates; of several boxes the one it overlaps most.

    Among crowded boxes some get no location that way. Such a box takes the one whose anchor overlaps it most, the
    nearest of equals, whoever had it.
    """
    centres = places.centres
    if not truth.shape[1]:
        return mask.new_full((len(mask), len(centres)), -1, dtype=torch.long)
    half = anchor / 2 * places.cell[:, None]
    overlaps = pairwise_iou(truth, torch.cat([centres - half, centres + half], -1))  # (B, m, L)
    middle = (truth[..., :2] + truth[..., 2:]) / 2
    distances = (middle[:, :, None] - centres).square().sum(-1)  # (B, m, L)
    near, start = [], 0
    for count in places.counts:
        near.append(distances[..., start : start + count].topk(min(nearest, count), largest=False).indices + start)
        start += count
    candidates = torch.cat(near, -1)  # (B, m, maps · nearest)
    candidate_overlaps = overlaps.gather(-1, candidates)
    threshold = candidate_overlaps.mean(-1, keepdim=True) + candidate_overlaps.std(-1, keepdim=True)
    passes = torch.zeros_like(overlaps, dtype=torch.bool).scatter_(-1, candidates, candidate_overlaps >= threshold)
    corners = truth[:, :, None]  # (B, m, 1, 4)
    inside = ((centres > corners[..., :2]) & (centres < corners[..., 2:])).all(-1)
    assigned = _best_box(overlaps, passes & inside & mask[..., None])
    return _assign_lonely(assigned, overlaps - distances, mask)


def _best_box(overlaps: Tensor, takes: Tensor) -> Tensor:
    """(B, L) of the boxes (B, m, L) that a location takes, that of largest overlap, the first of equals; -1 if none."""
    best, index = overlaps.where(takes, -torch.inf).max(1)
    return index.masked_fill_(best == -torch.inf, -1)


def _assign_lonely(assigned: Tensor, fit: Tensor, mask: Tensor) -> Tensor:
    """(B, L) in which every real box that no location had has its best location by `fit` (B, m, L)."""
    count, boxes, cells = fit.shape
    has_location = assigned.new_zeros(count, boxes + 1).scatter_(1, assigned + 1, 1)[:, 1:].bool()
    place = torch.where(mask & ~has_location, fit.argmax(-1), cells)  # the others share a place behind the last
    numbers = torch.arange(boxes, device=assigned.device).expand(count, -1)
    return torch.cat([assigned, assigned[:, :1]], 1).scatter_(1, place, numbers)[:, :cells]
