"""What makes scenes from pixels: anything that has the methods of `Encoder`, and our own vision models as one.

`sightline.jobs.extract_job.extract` takes every `Encoder`; docs/scenes.md wraps a Hugging Face model as one.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.errors import ConfigError
from sightline.files import fingerprint
from sightline.scene import Concept
from sightline.vision.detector import Detector, DetectorConfig
from sightline.vision.fold_batch_norm import fold
from sightline.vision.grid_encoder import GridConfig, GridEncoder, ImageNetEncoder

VisionConfig = GridConfig | DetectorConfig  # what a checkpoint that looks for itself can hold
VisionModel = GridEncoder | Detector
CANDIDATES = 3  # cells that are looked at for each box, at least


class Encoder(Protocol):
    """From pixels to scenes.

    An encoder that is a `torch.nn.Module` is moved to the device and set to evaluation before it is asked; any other
    finds its pixels on the device. Gradients are off.
    """

    @property
    def size(self) -> int:
        """Photos are squashed to squares of so many pixels."""

    def fingerprint(self) -> str:
        """A short name for weights and choices: whatever changes a scene changes it."""

    def scenes(self, pixels: Tensor, ids: Sequence[str]) -> SceneBatch:
        """The scenes of photos, in their order, with whatever parts the encoder has.

        Args:
            pixels: (B, 3, size, size) uint8, upright RGB.
            ids: of the photos.
        """


@runtime_checkable
class ConceptEncoder(Protocol):
    """An encoder that can also tell what is in its scenes."""

    def concepts(self, scenes: SceneBatch) -> Sequence[tuple[Concept, ...]]:
        """Names with scores and boxes, of each photo."""


@dataclass(frozen=True)
class BoxRule:
    """How many regions a scene has: every box of a score of `score`, at least `least` and at most `most`."""

    least: int
    most: int
    score: float = 0.1  # the overlap with a thing that a box expects of itself: below, it is most likely background

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            boxes = f"{self.least} boxes" if self.is_fixed else f"{self.least} to {self.most} boxes"
            raise ConfigError(f"{boxes} were asked for", fix="give 1 or more, such as 36, or a range such as 10..100")
        if not 0 <= self.score <= 1:
            raise ConfigError(f"the score of boxes is {self.score}", fix="give 0 to 1")

    @classmethod
    def parse(cls, text: str) -> BoxRule:
        """The rule that people write as `36` or `10..100`.

        >>> BoxRule.parse("10..100")
        BoxRule(least=10, most=100, score=0.1)
        """
        match = re.fullmatch(r"(\d{1,4})(?:\.\.(\d{1,4}))?", text.strip(), re.ASCII)
        if match is None:
            fix = "give a number up to 9999 such as 36, or a range such as 10..100"
            raise ConfigError(f"`boxes` is {text!r}", fix=fix)
        return cls(int(match[1]), int(match[2] or match[1]))

    @property
    def is_fixed(self) -> bool:
        """True if all photos get the same number of boxes."""
        return self.least == self.most

    def __str__(self) -> str:
        return str(self.most) if self.is_fixed else f"{self.least}..{self.most} of score {self.score}"


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
            if not isinstance(vision, Detector):
                what = "regions of this encoder are the cells of its grid, so their number cannot be chosen"
                raise ConfigError(what, fix="leave boxes out, or use a model that has a detector")
            candidates = max(vision.config.candidates, CANDIDATES * boxes.most)
            vision = copy.copy(vision)
            vision.config = replace(vision.config, boxes=boxes.most, candidates=candidates)
        self.rule = None if boxes is None or boxes.is_fixed else boxes
        self.pool = pool
        self._fingerprint = scenes_fingerprint(vision.fingerprint(), pool, self.rule)  # of the weights before folding
        self.vision = cast("VisionModel", fold(copy.deepcopy(vision).eval()))

    @property
    def size(self) -> int:
        return self.vision.size

    def fingerprint(self) -> str:
        return self._fingerprint

    def scenes(self, pixels: Tensor, ids: Sequence[str]) -> SceneBatch:
        """The scenes of a batch of pixels; regions that the rule leaves out are masked, and score 0."""
        scenes = self.vision.scenes(pixels, ids, self._fingerprint)
        if self.pool > 1:
            scenes = pool_grid(scenes, self.pool)
        if self.rule is None:
            return scenes
        scores = scenes.part("scores")
        rank = torch.arange(scores.shape[1], device=scores.device)
        mask = scenes.mask("scores") & ((scores >= self.rule.score) | (rank < self.rule.least))
        return replace(scenes, scores=scores * mask, region_mask=mask)

    def concepts(self, scenes: SceneBatch) -> Sequence[tuple[Concept, ...]]:
        """What is in each photo, where the model has names for it."""
        if isinstance(self.vision, Detector | ImageNetEncoder):
            return self.vision.concepts(scenes)
        return [()] * len(scenes)


def scenes_fingerprint(vision: str, pool: int = 1, rule: BoxRule | None = None) -> str:
    """The fingerprint of an encoder's scenes, from that of its vision model, its pooling and its rule of boxes."""
    choices = [] if rule is None else [f"boxes {rule}"]
    choices += [] if pool == 1 else [f"pool {pool}"]
    return fingerprint(vision, *choices) if choices else vision


def pool_grid(scenes: SceneBatch, side: int) -> SceneBatch:
    """The scenes with squares of `side` · `side` grid cells averaged; cut squares at the edges are means too."""
    grid, shape = scenes.part("grid"), scenes.grid_shapes[0]
    assert shape is not None
    square = grid.mT.reshape(len(scenes), grid.shape[2], *shape)  # (B, d, h, w)
    cells = F.avg_pool2d(square, side, ceil_mode=True, count_include_pad=False)
    mask = torch.ones(len(scenes), cells.shape[2] * cells.shape[3], dtype=torch.bool, device=grid.device)
    shapes = ((cells.shape[2], cells.shape[3]),) * len(scenes)
    return replace(scenes, grid=cells.flatten(2).mT, grid_mask=mask, grid_shapes=shapes)
