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
        best, order = (part[:, :candidates] for part in scores.float().sort(dim=-1, descending=True, stable=True))
        places = order[..., None].expand(-1, -1, 4)
        left = best.clamp(min=0).log() if soft else best.clone()
        picks, kept = _choose(boxes.gather(1, places), left, keep, iou, soft)
        indices = order.gather(1, picks).masked_fill_(kept == _GONE, 0)
        if soft:
            kept = torch.where(kept == _GONE, kept, kept.exp())
    return indices.clone(), kept.clone()  # copies made out here can take part in training


def _choose(boxes: Tensor, left: Tensor, keep: int, iou: float, soft: bool) -> tuple[Tensor, Tensor]:
    """(B, keep) places of the chosen among boxes (B, n, 4), and what was left of their scores.

    `left` are all scores (logarithms, if soft); they are used up.
    """
    count, size = left.shape
    table = left.new_empty(5, count, size)  # -x1 -y1 x2 y2 area: with the first two negated, minima intersect boxes
    corners, areas = table[:4], table[4]
    corners.copy_(boxes.permute(2, 0, 1))
    corners[:2].neg_()
    torch.mul(*(corners[:2] + corners[2:]).relu_(), out=areas)

    shared = torch.empty_like(corners)
    (low, high), either, gone = shared.view(2, 2, count, size), torch.empty_like(areas), areas > _GONE
    wide, tall = high
    one = left.new_empty(5, count)  # the kept box of each image
    its_corners, its_area = one[:4, :, None], one[4, :, None]
    starts = torch.arange(0, count * size, size, device=left.device)
    place, rows, line = starts.clone(), table.flatten(1), left.view(-1)
    bar = left.new_full((), iou)  # a tensor, as a number would be made into one at every step
    picks, kept = starts.new_empty(keep, count), left.new_empty(keep, count)
    for pick, score in zip(picks.unbind(), kept.unbind(), strict=True):
        torch.argmax(left, -1, out=pick)
        torch.add(starts, pick, out=place)
        torch.index_select(line, 0, place, out=score)
        torch.index_select(rows, 1, place, out=one)
        torch.minimum(corners, its_corners, out=shared)
        high.add_(low).relu_()
        both = wide.mul_(tall)
        torch.add(areas, its_area, out=either).sub_(both)
        if soft:
            squared = both.div_(either.clamp_(min=1e-7)).div_(iou).square_()
            left.addcmul_(squared, torch.square(squared, out=either), value=-1)
        else:
            left.masked_fill_(torch.gt(both, either.mul_(bar), out=gone), _GONE)
        line.index_fill_(0, place, _GONE)
    return picks.mT, kept.mT
