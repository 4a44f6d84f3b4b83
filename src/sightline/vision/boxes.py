"""Boxes, normalised x1 y1 x2 y2 in the last dimension: overlaps, crops, non-maximum suppression, RoIAlign; and
which box each location of feature maps learns to find, by the adaptive thresholds of ATSS (Zhang et al. 2020).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_SMALLEST = 1e-7  # an area below it counts as none, so that no ratio divides by zero
_GONE = float("-inf")  # the score of a box that is taken, or suppressed
SAMPLES = 2  # of RoIAlign, along each side of a bin


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


def non_maximum(
    boxes: Tensor, scores: Tensor, keep: int, iou: float, candidates: int = 300, soft: bool = False
) -> tuple[Tensor, Tensor]:
    """Non-maximum suppression: the `keep` best boxes of each image, best first, as indices and scores (B, keep).

    All images go through the greedy algorithm together, one kept box of each a step, and only overlaps with kept boxes
    are ever computed. Nothing waits for the device, so a GPU's queue stays filled.

    Args:
        boxes: (B, n, 4).
        scores: (B, n); of equal scores the lower index comes first; -inf marks a box that is not there.
        keep: how many to choose; where fewer remain, the rest is index 0 and scores -inf.
        iou: boxes that overlap a kept one by more than this are dropped.
        candidates: how many boxes, the best by score, are looked at.
        soft: lower the scores of overlapping boxes instead (Bodla et al. 2017): each kept box multiplies those of the
            others by exp(-(overlap / `iou`)⁶), which leaves neighbours almost as they are and doubles almost nothing.
            Their Gaussian lowers both. Only scores above 0 count, and lowered ones come back.
    """
    with torch.inference_mode():
        ranked, order = scores.float().sort(dim=-1, descending=True, stable=True)
        ranked, order = ranked[:, :candidates], order[:, :candidates]
        remaining = ranked.clamp(min=0).log() if soft else ranked.clone()
        picks, best = _choose(boxes.gather(1, order[..., None].expand(-1, -1, 4)), remaining, keep, iou, soft)
        indices = order.gather(1, picks).masked_fill_(best == _GONE, 0)
        if soft:
            best = torch.where(best == _GONE, best, best.exp())
    return indices.clone(), best.clone()  # copies made out here can take part in training


def _choose(boxes: Tensor, scores: Tensor, keep: int, iou: float, soft: bool) -> tuple[Tensor, Tensor]:
    """(B, keep) places of the chosen among boxes (B, n, 4), and what was left of their scores.

    `scores` (B, n), logarithms if soft, are used up.
    """
    x1y1, x2y2 = torch.split(boxes.to(scores.dtype).movedim(-1, 0), 2)
    corners = torch.cat([-x1y1, x2y2])  # (4, B, n): with the first two negated, minima intersect boxes
    areas = (corners[:2] + corners[2:]).relu_().prod(0)
    picks, best_scores = [], []
    for _ in range(keep):
        score, pick = scores.max(-1, keepdim=True)  # (B, 1)
        picks.append(pick)
        best_scores.append(score)
        low, high = torch.split(torch.minimum(corners, corners.gather(2, pick.expand(4, -1, -1))), 2)
        wide, tall = low.add_(high).relu_()
        intersection = wide.mul_(tall)  # (B, n)
        union = (areas + areas.gather(1, pick)).sub_(intersection)
        if soft:
            squared = intersection.div_(union.clamp_(min=_SMALLEST)).div_(iou).square_()
            scores.addcmul_(squared, squared.square(), value=-1)
        else:
            scores.masked_fill_(intersection > union.mul_(iou), _GONE)
        scores.scatter_(1, pick, _GONE)
    return torch.cat(picks, 1), torch.cat(best_scores, 1)


def roi_mean(maps: Tensor, boxes: Tensor, size: int) -> Tensor:
    """The mean of RoIAlign (He et al. 2017, Section 3): what a feature map holds inside each box, by bilinear samples.

    `maps` (B, C, H, W) and `boxes` (B, n, 4) to (B, n, C): the mean over `size` · `size` bins of every box, each of
    2 · 2 points. Gradients reach the maps, not the boxes.

    A bilinear weight is a product of one over rows and one over columns, so the mean is a matrix product, on a CPU
    faster than gathering samples. Half-pixel convention (`aligned=True` elsewhere): the centre of cell i of W lies at
    (i + 0.5) / W. Samples outside the outermost cell centres take the value of the nearest cell; other implementations
    give 0 from one cell outside on, which only boxes that leave the picture would notice.
    """
    height, width = maps.shape[-2:]
    steps = (torch.arange(size * SAMPLES, device=boxes.device) + 0.5) / (size * SAMPLES)
    corners = boxes.detach().float()[..., None]
    x, y = torch.lerp(corners[..., :2, :], corners[..., 2:, :], steps).unbind(2)  # (B, n, s), evenly inside each box
    weights = _weights(y, height)[..., :, None] * _weights(x, width)[..., None, :]  # (B, n, H, W)
    return weights.flatten(2).to(maps.dtype) @ maps.flatten(2).mT


def _weights(points: Tensor, cells: int) -> Tensor:
    """(…, s) points to (…, cells): the mean of their linear weights, a hat that ends at a cell's neighbours."""
    places = (points * cells - 0.5).clamp(0, cells - 1)
    away = (places[..., None] - torch.arange(cells, device=points.device)).abs()
    return (1 - away).relu_().mean(-2)


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
    best, assigned = overlaps.where(passes & inside & mask[..., None], -torch.inf).max(1)  # the first of equals
    assigned = assigned.masked_fill_(best == -torch.inf, -1)
    # Every real box that no location took has its best location.
    count, boxes, cells = overlaps.shape
    has_location = assigned.new_zeros(count, boxes + 1).scatter_(1, assigned + 1, 1)[:, 1:].bool()
    lonely = mask & ~has_location
    place = torch.where(lonely, (overlaps - distances).argmax(-1), cells)  # the others share a place behind the last
    numbers = torch.arange(boxes, device=assigned.device).expand(count, -1)
    return torch.cat([assigned, assigned[:, :1]], 1).scatter_(1, place, numbers)[:, :cells]
