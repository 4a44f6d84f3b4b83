"""Which region a word means, and how far the thing reaches: learned from boxes that people drew for words.

The matcher's local read-out finds regions that look like a word. People's boxes also tell how far the thing reaches
that the word names. The pointer reads the matcher's vector of the word (which knows the sentence), each region, how
well both fit, and where the region is. Word and region meet in a product. What comes of it gives each region a
weight, and moves its sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.config import check_config
from sightline.models.layers import LONG_REGIONS, masked_softmax
from sightline.models.matcher import Embedding

BY = "the word pointer"  # what errors call it
REACH = 0.5  # a side moves by less than this part of the region's width or height
PLACE = 9  # numbers that tell of a region: its corners, its sides, its area, its score and its rank


@dataclass(frozen=True)
class WordPointerConfig:
    """The sizes of a pointer."""

    kind: Literal["word-pointer"] = "word-pointer"
    word_width: int = 256  # numbers of a word's vector, which is the matcher's
    region_width: int = 512  # numbers of a region's feature
    size: int = 128  # width of the space where words and regions meet
    dropout: float = 0.3  # on words, regions, and what comes of both

    def __post_init__(self) -> None:
        check_config(self)

    def build(self) -> WordPointer:
        return WordPointer(self)


class PointerOutput(NamedTuple):
    """Where words point."""

    scores: Tensor  # (B, T, n) of regions, before the softmax
    boxes: Tensor  # (B, T, n, 4) normalised: each region's box, as far as the thing that the word names would reach
    mask: Tensor  # (B, n) which regions there are

    @property
    def weights(self) -> Tensor:
        """(B, T, n) shares of 1 for each word."""
        return masked_softmax(self.scores, self.mask.unsqueeze(1))


class WordPointer(nn.Module):
    """Words with vectors of a matcher, and regions, to weights of regions and boxes."""

    def __init__(self, config: WordPointerConfig) -> None:
        super().__init__()
        self.config, size = config, config.size
        self.word = nn.Linear(config.word_width, 2 * size)
        self.region_norm = nn.LayerNorm(config.region_width)
        self.region = nn.Linear(config.region_width, size)
        self.place = nn.Sequential(nn.Linear(PLACE + 1, size), nn.GELU(), nn.Linear(size, size))
        self.norm = nn.LayerNorm(size)
        self.score = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Dropout(config.dropout), nn.Linear(size, 1))
        self.fit = nn.Linear(PLACE + 1, 1)
        last = nn.Linear(size, 4)
        nn.init.zeros_(last.weight)  # at first no side moves
        nn.init.zeros_(last.bias)
        self.sides = nn.Sequential(nn.Linear(size, size), nn.GELU(), last)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, words: Tensor, fits: Tensor, scenes: SceneBatch) -> PointerOutput:
        """(B, T, word_width) unit vectors of words and (B, T, n) their cosines with regions."""
        regions = scenes.part("regions", by=BY, width=self.config.region_width)  # (B, n, region_width)
        boxes, mask = scenes.part("boxes", by=BY), scenes.mask("boxes")
        place = places(boxes, scenes.part("scores", by=BY))[:, None].expand(*fits.shape, PLACE)
        known = torch.cat([place, 5 * fits[..., None]], -1)  # (B, T, n, 10); cosines are small numbers
        by_place, by_look = self.word(self.dropout(words * self.config.word_width**0.5)).chunk(2, -1)
        looks = self.region(self.dropout(self.region_norm(regions)))  # (B, n, size)
        both = self.place(known) * by_place.unsqueeze(2) + looks.unsqueeze(1) * by_look.unsqueeze(2)
        both = self.norm(both)  # (B, T, n, size)
        scores = (self.score(both) + self.fit(known)).squeeze(-1)
        return PointerOutput(scores, move_sides(boxes.unsqueeze(1), self.sides(both)), mask)

    def point(self, images: Embedding, words: Tensor, scenes: SceneBatch) -> PointerOutput:
        """The same from what a matcher with a local read-out makes of photos, and its vectors of words (B, T, d)."""
        words = words.float()
        pointed: PointerOutput = self(words, words @ images["regions"].float().mT, scenes)
        return pointed


def places(boxes: Tensor, scores: Tensor) -> Tensor:
    """(B, n, 9) where regions (B, n, 4) are, and how sure the detector is of them, in numbers of about one."""
    sides = boxes[..., 2:] - boxes[..., :2]
    area = sides.prod(-1, keepdim=True).clamp(min=1e-4).log() / 2
    sure = scores.unsqueeze(-1).clamp(min=1e-4).log()
    rank = (torch.arange(boxes.shape[1], device=boxes.device) / LONG_REGIONS)[:, None].expand_as(sure)
    return torch.cat([boxes, sides, area, sure, rank], -1)


def move_sides(boxes: Tensor, moves: Tensor) -> Tensor:
    """Boxes (…, 4) whose sides moved: by tanh(moves) · `REACH` of their width or height, and not out of the picture."""
    sides = (boxes[..., 2:] - boxes[..., :2]).clamp(min=1e-3)
    moved = boxes + REACH * moves.tanh() * torch.cat([sides, sides], -1)
    return moved.clamp(0, 1)
