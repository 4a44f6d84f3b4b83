"""The two reasoning modules of VSRN, and the orders in which the second reads regions.

Li et al., "Visual Semantic Reasoning for Image-Text Matching" (ICCV 2019), sections 3.2, 3.3 and 4.4.
"""

from __future__ import annotations

from random import Random
from typing import Literal

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.errors import DataError, MissingPartError
from sightline.models.layers import (
    GRU,
    LONG_REGIONS,
    BatchNorm,
    chrono_biases,
    masked_softmax,
    read_sequence,
    remember_long,
)

Order = Literal["stored", "confidence", "box-size", "random", "redrawn"]
EQUAL = 0.02  # areas that differ by less are equal: cells of a grid do, by the rounding of half precision


class RegionRelationship(nn.Module):
    """One layer of region relationship reasoning (section 3.2): a graph convolution with a residual connection.

    The paper's φ and ϕ are `theta` and `phi`, W_g is `g` and W_r is `W`. As in the released code, `W` ends in a batch
    norm whose weight and bias start at 0, so that a new layer passes regions through unchanged. Its statistics are
    those of real regions only.
    """

    def __init__(self, size: int, normalise: Literal["count", "softmax"]) -> None:
        super().__init__()
        self.normalise = normalise
        self.theta = nn.Linear(size, size)
        self.phi = nn.Linear(size, size)
        self.g = nn.Linear(size, size)
        norm = BatchNorm(size)
        self.W = nn.Sequential(nn.Linear(size, size), norm)
        nn.init.zeros_(norm.weight)

    def affinity(self, v: Tensor, mask: Tensor) -> Tensor:
        """(B, n, n) row-normalised affinities of regions v (B, n, d); columns of padding are 0."""
        R: Tensor = self.theta(v) @ self.phi(v).transpose(1, 2)  # Eq. 2
        there = mask.unsqueeze(1)  # (B, 1, n)
        if self.normalise == "softmax":
            return masked_softmax(R, there)
        return R * there / there.sum(-1, keepdim=True).clamp(min=1)

    def forward(self, v: Tensor, mask: Tensor) -> Tensor:
        """Regions (B, n, d) to regions that know the others; rows of padding stay as they are."""
        neighbours = self.affinity(v, mask) @ self.g(v)  # Eq. 3, R V W_g
        change: Tensor = self.W(neighbours[mask])  # Eq. 3, W_r(…): (real regions, d)
        return v + change.new_zeros(v.shape).masked_scatter(mask.unsqueeze(-1), change)  # Eq. 3, … + V


class ResetBeforeGRU(nn.Module):
    """Global semantic reasoning as printed in section 3.3: the reset gate acts on the memory before U_m does.

    `inputs` holds W_z, W_r, W_m with their biases, `gates` holds U_z and U_r, `content` is U_m (Eq. 5 prints U_z, but
    the text below it names U_m).
    """

    def __init__(self, size: int, memory: Literal["long", "default"] = "default") -> None:
        super().__init__()
        self.inputs = nn.Linear(size, 3 * size)
        self.gates = nn.Linear(size, 2 * size, bias=False)
        self.content = nn.Linear(size, size, bias=False)
        if memory == "long":
            update = self.inputs.bias.data[:size]
            chrono_biases(update, LONG_REGIONS)
            update.neg_()  # z of Eq. 7 is the share of the new, not of the old

    def forward(self, v: Tensor, mask: Tensor) -> Tensor:
        """Regions (B, n, d), padded at the end, to the memory after the last real one (B, d)."""
        m = v.new_zeros(v.shape[0], v.shape[2])
        for step, there in zip(self.inputs(v).unbind(1), mask.unbind(1), strict=True):
            input_z, input_r, input_m = step.chunk(3, -1)
            memory_z, memory_r = self.gates(m).chunk(2, -1)
            z = torch.sigmoid(input_z + memory_z)  # Eq. 4
            r = torch.sigmoid(input_r + memory_r)  # Eq. 6
            new = torch.tanh(input_m + self.content(r * m))  # Eq. 5
            z = z * there.unsqueeze(-1)  # padding never updates the memory
            m = (1 - z) * m + z * new  # Eq. 7
        return m


class ResetAfterGRU(nn.Module):
    """Global semantic reasoning with PyTorch's GRU, as released: the reset gate acts on U_m's result.

    PyTorch's update gate is one minus the paper's.
    """

    def __init__(self, size: int, memory: Literal["long", "default"] = "default") -> None:
        super().__init__()
        self.rnn = GRU(size, size, batch_first=True)
        if memory == "long":
            remember_long(self.rnn, LONG_REGIONS)

    def forward(self, v: Tensor, mask: Tensor) -> Tensor:
        """Regions (B, n, d), padded at the end, to the memory after the last real one (B, d)."""
        return read_sequence(self.rnn, v, mask)[1]


def reading_order(scenes: SceneBatch, mask: Tensor, order: Order, training: bool) -> Tensor | None:
    """(B, n) the places of regions in the order of Table 5, padding last; None for the order they are stored in.

    "confidence" is the stored order of a detector's regions, and training refuses regions of which it is not true.
    "random" is one permutation per image, drawn from its id alone, so that it is the same in every batch and process.
    "redrawn" draws a new one each time while training, and is "random" otherwise.
    """
    if order == "confidence" and training:
        _check_confidence(scenes, mask)
    if order in ("stored", "confidence"):
        return None
    if order == "box-size":
        left, top, right, bottom = scenes.part("boxes", by="VSRN with `order: box-size`").float().unbind(-1)
        key = (left - right) * (bottom - top)
        _check_areas(-key, mask, scenes.ids)
    elif order == "redrawn" and training:
        key = torch.rand(mask.shape, device=mask.device)
    else:
        key = torch.tensor([_draws(id, mask.shape[1]) for id in scenes.ids], device=mask.device)
    return key.masked_fill(~mask, torch.inf).argsort(dim=1, stable=True)


def _check_confidence(scenes: SceneBatch, mask: Tensor) -> None:
    """Refuse regions without scores, and those that are not stored by falling score."""
    if scenes.scores is None:
        raise MissingPartError(
            "`order: confidence` reads the surest regions first, and these have no scores",
            where=f"images {scenes.ids[0]} … {scenes.ids[-1]}",
            fix="use the regions of a detector, or `order: stored`, which reads regions as they come",
        )
    rises = (scenes.scores.diff(dim=1) > 0) & mask[:, 1:]
    if bool(rises.any()):
        raise DataError(
            "`order: confidence` reads the surest regions first, and these are not stored by falling score",
            where=f"image {scenes.ids[int(rises.any(1).nonzero()[0])]}",
            fix="sort them, or use `order: stored`, which reads regions as they come",
        )


def _check_areas(areas: Tensor, mask: Tensor, ids: tuple[str, ...]) -> None:
    """Refuse boxes that have one area in every image: they have no order by it."""
    largest = areas.masked_fill(~mask, 0).amax(1) if mask.shape[1] else areas.new_zeros(len(areas))
    smallest = areas.masked_fill(~mask, torch.inf).amin(1) if mask.shape[1] else largest
    several = mask.sum(1) > 1
    if bool(several.any() & (smallest >= (1 - EQUAL) * largest)[several].all()):
        raise DataError(
            "`order: box-size` reads the largest boxes first, and all boxes of an image have the same area, as the "
            "cells of a grid do",
            where=f"images {ids[0]} … {ids[-1]}",
            fix="use the regions of a detector, or another order",
        )


def _draws(id: str, count: int) -> list[float]:
    draw = Random(id)
    return [draw.random() for _ in range(count)]
