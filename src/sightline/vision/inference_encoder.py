"""Our vision models as encoders: folded for inference, with the number of regions people ask for."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.errors import ConfigError
from sightline.files import fingerprint
from sightline.scene import Concept
from sightline.vision.box_rule import BoxRule
from sightline.vision.detector import Detector
from sightline.vision.fold_batch_norm import fold
from sightline.vision.vision_models import VisionModel

CANDIDATES = 3  # cells that are looked at for each box, at least


class InferenceEncoder(nn.Module):
    """A copy of a vision model that only makes scenes, and makes them fast.

    With a fixed number of boxes, scenes are those of a detector of that number, fingerprint included: 36 boxes of a
    model of 36 are what its captioner was trained on.

    Args:
        vision: the model; it is copied.
        boxes: how many regions a photo has; by default as many as the model chooses.
        pool: average squares of so many by so many grid cells into one; 2 makes a store of grids four times smaller.
    """

    def __init__(self, vision: VisionModel, boxes: BoxRule | None = None, pool: int = 1) -> None:
        super().__init__()
        if pool < 1:
            raise ConfigError(f"`pool` is {pool}", fix="give 1, which keeps every grid cell, or more")
        if boxes is not None:
            vision = _choosing(vision, boxes.most)
        self.rule = None if boxes is None or boxes.is_fixed else boxes
        self.pool = pool
        self._mark = scenes_fingerprint(vision.fingerprint(), pool, self.rule)  # of the weights before folding
        self.vision = cast("VisionModel", fold(copy.deepcopy(vision).eval()))

    @property
    def size(self) -> int:
        """The side of the squares that photos are squashed to."""
        return self.vision.size

    def fingerprint(self) -> str:
        """That of the model, and of the rule where the number of boxes varies."""
        return self._mark

    def scenes(self, pixels: Tensor, ids: Sequence[str]) -> SceneBatch:
        """The scenes of a batch of pixels; regions that the rule leaves out are masked, and score 0."""
        scenes = self.vision.scenes(pixels, ids, self._mark)
        if self.pool > 1:
            scenes = pool_grid(scenes, self.pool)
        if self.rule is None:
            return scenes
        scores = scenes.part("scores")
        rank = torch.arange(scores.shape[1], device=scores.device)
        kept = scenes.mask("scores") & ((scores >= self.rule.score) | (rank < self.rule.least))
        return replace(scenes, scores=scores * kept, region_mask=kept)

    def concepts(self, scenes: SceneBatch) -> Sequence[tuple[Concept, ...]]:
        """What is in each photo, where the model has names for it."""
        return self.vision.concepts(scenes) if isinstance(self.vision, Detector) else [()] * len(scenes)


def scenes_fingerprint(mark: str, pool: int = 1, rule: BoxRule | None = None) -> str:
    """That of the scenes which an encoder makes of a vision model whose fingerprint is `mark`."""
    choices = [] if rule is None else [f"boxes {rule}"]
    choices += [] if pool == 1 else [f"pool {pool}"]
    return fingerprint(mark, *choices) if choices else mark


def pool_grid(scenes: SceneBatch, side: int) -> SceneBatch:
    """The scenes with squares of `side` · `side` grid cells averaged; cut squares at the edges are means too."""
    grid, shape = scenes.part("grid"), scenes.grid_shapes[0]
    assert shape is not None
    square = grid.mT.reshape(len(scenes), grid.shape[2], *shape)  # (B, d, h, w)
    cells = F.avg_pool2d(square, side, ceil_mode=True, count_include_pad=False)
    mask = torch.ones(len(scenes), cells.shape[2] * cells.shape[3], dtype=torch.bool, device=grid.device)
    shapes = ((cells.shape[2], cells.shape[3]),) * len(scenes)
    return replace(scenes, grid=cells.flatten(2).mT, grid_mask=mask, grid_shapes=shapes)


def _choosing(vision: VisionModel, boxes: int) -> Detector:
    """The same detector, asked for another number of boxes."""
    if not isinstance(vision, Detector):
        raise ConfigError(
            "regions of this encoder are the cells of its grid, so their number cannot be chosen",
            fix="leave boxes out, or use a model that has a detector",
        )
    other, candidates = copy.copy(vision), max(vision.config.candidates, CANDIDATES * boxes)
    other.config = replace(vision.config, boxes=boxes, candidates=candidates)
    return other
