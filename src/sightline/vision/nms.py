"""Non-maximum suppression: of boxes that show the same thing, keep the best.

All images go through the greedy algorithm together, one kept box of each a step, and only overlaps with kept boxes are
ever computed. Nothing waits for the device, so a GPU's queue stays filled. On a CPU each step costs what it costs to
call its dozen small operations; that is why they write into memory made beforehand.
"""

from __future__ import annotations

import torch
from torch import Tensor

_GONE = float("-inf")


def non_maximum(
    boxes: Tensor, scores: Tensor, keep: int, iou: float, candidates: int = 300, soft: bool = False
) -> tuple[Tensor, Tensor]:
    """The `keep` best boxes of each image, best first: their indices and scores, both (B, keep).

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
    images, count = scores.shape
    table = scores.new_empty(5, images, count)  # -x1 -y1 x2 y2 area: with the first two negated, minima intersect boxes
    corners, areas = table[:4], table[4]
    corners.copy_(boxes.permute(2, 0, 1))
    corners[:2].neg_()
    widths, heights = (corners[:2] + corners[2:]).relu_()
    torch.mul(widths, heights, out=areas)

    # What the steps write into.
    best = scores.new_empty(5, images)  # the row of `table` of the box that each image keeps
    best_corners, best_area = best[:4, :, None], best[4, :, None]
    intersections = torch.empty_like(corners)
    low, high = intersections[:2], intersections[2:]
    wide, tall = high
    union = torch.empty_like(areas)
    overlaps = torch.empty_like(areas, dtype=torch.bool)
    starts = torch.arange(0, images * count, count, device=scores.device)  # of each image among all boxes
    place = starts.clone()
    flat_table, flat_scores = table.flatten(1), scores.view(-1)
    threshold = scores.new_full((), iou)  # a tensor, as a number would be made into one at every step
    picks, best_scores = starts.new_empty(keep, images), scores.new_empty(keep, images)
    for pick, score in zip(picks.unbind(), best_scores.unbind(), strict=True):
        torch.argmax(scores, -1, out=pick)
        torch.add(starts, pick, out=place)
        torch.index_select(flat_scores, 0, place, out=score)
        torch.index_select(flat_table, 1, place, out=best)
        torch.minimum(corners, best_corners, out=intersections)
        high.add_(low).relu_()
        intersection = wide.mul_(tall)
        torch.add(areas, best_area, out=union).sub_(intersection)
        if soft:
            squared = intersection.div_(union.clamp_(min=1e-7)).div_(iou).square_()
            scores.addcmul_(squared, torch.square(squared, out=union), value=-1)
        else:
            scores.masked_fill_(torch.gt(intersection, union.mul_(threshold), out=overlaps), _GONE)
        flat_scores.index_fill_(0, place, _GONE)
    return picks.mT, best_scores.mT
