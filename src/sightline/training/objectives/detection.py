"""Losses by which the vision model learns boxes and their names from what is truly in photos.

Objectness learns the overlap of its own box (quality focal loss, Li et al. 2020, "Generalized Focal Loss", Eq. 1),
boxes by generalised IoU (Rezatofighi et al. 2019), cells are chosen by ATSS (Zhang et al. 2020). A region may have
several names at once, so names are learned one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.vision.box_assignment import assign_by_overlap
from sightline.vision.boxes import clip, giou, pairwise_iou
from sightline.vision.detector import Maps

ANCHOR = 4.0  # cells: 32, 64 and 128 pixels of the maps at strides 8, 16 and 32
FOCUS = 2.0  # β of the quality focal loss
BOX = 2.0  # weight of boxes beside objectness
JITTER = 0.1  # of a box's sides, so that names are learned for boxes that are a little off


@dataclass(frozen=True, eq=False)
class TrueBoxes:
    """The ground truth of a batch: boxes (B, m, 4), which of them are real (B, m), names (B, m, k), belief (B, m)."""

    boxes: Tensor
    mask: Tensor
    names: Tensor
    weights: Tensor


def box_losses(maps: Maps, truth: TrueBoxes, doubt: float) -> tuple[Tensor, Tensor]:
    """Objectness and box loss, both per cell that has a true box.

    A cell without one counts in full where people drew the boxes. Machine-made ones (belief below 1) miss much of what
    is there, so beside them it counts `doubt` times.
    """
    with torch.no_grad():
        chosen = assign_by_overlap(maps.places, truth.boxes, truth.mask, anchor=ANCHOR)
        has = chosen >= 0  # (B, L)
        index = chosen.clamp(min=0)
        target = truth.boxes.gather(1, index[..., None].expand(-1, -1, 4))
        belief = truth.weights.gather(1, index) * has
        machine = (truth.mask & (truth.weights < 1)).any(1, keepdim=True) | ~truth.mask.any(1, keepdim=True)
        background = torch.where(machine, doubt, 1.0)
        boxes = clip(maps.boxes)
        quality = _overlap(boxes, target) * has
        count = belief.sum().clamp(min=1)
    sure = maps.objectness.sigmoid()
    cost = F.binary_cross_entropy_with_logits(maps.objectness, quality, reduction="none")
    cost = cost * (quality - sure).abs().pow(FOCUS)
    objectness = (cost * torch.where(has, belief, background)).sum() / count
    off = (1 - giou(maps.boxes, target)) * belief * quality.clamp(min=0.1)
    return objectness, BOX * off.sum() / count


def _overlap(a: Tensor, b: Tensor) -> Tensor:
    """IoU box by box: (…, 4) to (…)."""
    return pairwise_iou(a[..., None, :], b[..., None, :])[..., 0, 0]


def jitter(boxes: Tensor) -> Tensor:
    """Boxes (…, 4) whose sides are moved at random by a share of the box."""
    sides = (boxes[..., 2:] - boxes[..., :2]).repeat(*(1,) * (boxes.dim() - 1), 2)
    return clip(boxes + JITTER * sides * (2 * torch.rand_like(boxes) - 1))


def name_loss(logits: Tensor, truth: TrueBoxes, implied: Tensor, undecided: Tensor) -> Tensor:
    """The loss of names, by the logits (B, m, K) of the true boxes' regions, per box that has a name.

    `implied` (K, K) says which names hold of what has a name (a man is a person), `undecided` which may or may not (a
    person may be a man); of all others it is none.
    """
    called = truth.names >= 0  # (B, m, k)
    ids = truth.names.clamp(min=0)
    holds = (implied[ids] & called[..., None]).any(2)  # (B, m, K)
    open_ = (undecided[ids] & called[..., None]).any(2) & ~holds
    known = truth.mask & called.any(2)
    weight = (~open_ & known[..., None]) * truth.weights[..., None]
    cost = F.binary_cross_entropy_with_logits(logits.float(), holds.float(), reduction="none")
    focus = (holds.float() - logits.detach().float().sigmoid()).abs()  # most names are plainly wrong
    return (cost * focus * weight).sum() / (known * truth.weights).sum().clamp(min=1)
