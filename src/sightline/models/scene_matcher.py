"""The default matcher: one text tower, two read-outs.

The global read-out is one unit vector for a photo and one for a sentence: their product is the similarity, and what an
index keeps. The local one is a unit vector for every region and every word: their cosines tell where in the photo a
word is (`grounding`), and how well words find regions (`local_similarity`), which the objective info-nce trains too.
The local read-out is taken before regions learn about each other, so that each speaks for its own place alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sightline.batch import SceneBatch, TextBatch
from sightline.config import check_config, check_ranges
from sightline.errors import ConfigError
from sightline.models.layers import GRU, corners_and_area, l2norm, masked_mean, masked_softmax, read_both_ways
from sightline.models.matcher import AligningMatcher, Embedding, GlobalMatcher, full_precision, require_rows
from sightline.models.transformer_decoder import MultiHeadAttention
from sightline.text.vocabulary import END, PAD, START

BY = "the scene matcher"  # what errors call it
LOCAL_SHARE = 0.5  # of the local read-out beside the global one: from a quarter to 1, COCO's val photos hardly tell
BLOCK = 128  # images, and texts, whose words and regions are compared at once


@dataclass(frozen=True)
class SceneMatcherConfig:
    """The sizes of the default matcher: with 9,500 words, 2.4 M numbers in their embedding and 1.4 M beside it."""

    kind: Literal["scene-matcher"] = "scene-matcher"
    region_width: int = 512  # numbers a region feature has
    grid_width: int = 1280  # numbers the feature of a grid cell has
    # Width of both spaces, that of photos with sentences and that of regions with words. Half of it is each GRU's.
    size: int = 256
    word_size: int = 256  # width of a word's embedding
    heads: int = 4  # of the attention among regions and cells, and of both poolings
    ffn_size: int = 0  # units through which each region and cell goes by itself after that attention; 0 leaves this out
    # How strongly a word prefers the regions that fit it best: inverse temperature of its weights over them.
    sharpness: float = 9.0
    dropout: float = 0.1  # on embedded words, image rows and pooled vectors

    def __post_init__(self) -> None:
        check_config(self, may_be_zero=("ffn_size",))
        if self.size % self.heads or self.size % 2:
            raise ConfigError(f"`size` is {self.size} with {self.heads} heads", fix="give an even multiple of `heads`")
        check_ranges(self, sharpness="(0, 100]")

    def build(self, vocab_size: int) -> SceneMatcher:
        return SceneMatcher(self, vocab_size)


class TextTower(nn.Module):
    """Words to states: what a GRU from each end knows at a word, side by side, normalised.

    A GRU's first states are small; without the normalisation sentences are hard to tell apart for many steps.
    """

    def __init__(self, vocab_size: int, word_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, word_size)
        self.gru = GRU(word_size, size // 2, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(dropout)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, T) ids and mask to (B, T, d); padding is never read."""
        states, _ = read_both_ways(self.gru, self.dropout(self.embedding(ids)), mask)
        normed: Tensor = self.norm(self.dropout(states))
        return normed


class Pool(nn.Module):
    """Rows to one: each head weighs the rows for its channels, beside their plain mean."""

    def __init__(self, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.weigh = nn.Linear(size, heads, bias=False)
        self.output = nn.Linear(2 * size, size, bias=False)  # a bias would make all vectors alike at first
        self.dropout = nn.Dropout(dropout)

    def forward(self, rows: Tensor, mask: Tensor) -> Tensor:
        """(B, n, d) and (B, n) to (B, d)."""
        weights = masked_softmax(self.weigh(rows).float(), mask.unsqueeze(2), 1).to(rows.dtype)  # (B, n, heads)
        parts = rows.view(*rows.shape[:2], self.heads, rows.shape[2] // self.heads)
        weighed = (weights.unsqueeze(3) * parts).sum(1).flatten(1)  # (B, d)
        pooled: Tensor = self.output(self.dropout(torch.cat([weighed, masked_mean(rows, mask)], 1)))
        return pooled


class SceneMatcher(GlobalMatcher, AligningMatcher):
    """Regions and grid cells as rows of one picture; the words of a sentence, read from both ends."""

    config: SceneMatcherConfig
    needs = ("regions", "boxes", "grid")

    def __init__(self, config: SceneMatcherConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        size = config.size
        self.regions = nn.Linear(config.region_width, size)
        self.grid = nn.Linear(config.grid_width, size)
        self.boxes = nn.Linear(5, size, bias=False)
        self.row_norm = nn.LayerNorm(size)
        self.attention = MultiHeadAttention(size, config.heads)
        self.attention_norm = nn.LayerNorm(size)
        self.ffn: nn.Sequential | None = None
        if config.ffn_size:
            self.ffn = nn.Sequential(
                nn.LayerNorm(size), nn.Linear(size, config.ffn_size), nn.GELU(), nn.Linear(config.ffn_size, size)
            )
        self.image_pool = Pool(size, config.heads, config.dropout)
        self.text = TextTower(vocab_size, config.word_size, size, config.dropout)
        self.text_pool = Pool(size, config.heads, config.dropout)
        self.local_region = nn.Linear(size, size)
        self.local_word = nn.Linear(size, size)
        self.local_importance = nn.Linear(size, 1, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def embed_images(self, scenes: SceneBatch) -> Embedding:
        """`vector` (B, d) of the photo and `regions` (B, n, d), unit vectors, with their `mask` (B, n)."""
        regions = self.regions(scenes.part("regions", by=BY, width=self.config.region_width))
        grid = self.grid(scenes.part("grid", by=BY, width=self.config.grid_width))
        boxes = torch.cat([scenes.part("boxes", by=BY), scenes.cell_boxes(BY)], 1)
        rows = torch.cat([regions, grid], 1) + self.boxes(corners_and_area(boxes).to(regions.dtype))
        rows = self.row_norm(rows)  # (B, n + L, d)
        region_mask = scenes.mask("regions")
        mask = torch.cat([region_mask, scenes.mask("grid")], 1)
        local = l2norm(self.local_region(rows[:, : regions.shape[1]])) * region_mask.unsqueeze(2)
        return {"vector": l2norm(self._picture(rows, mask)), "regions": local, "mask": region_mask}

    def embed_texts(self, texts: TextBatch) -> Embedding:
        """`vector` (B, d) of the sentence and `words` (B, T, d), unit vectors, with their `mask` and `importance`.

        START and END take part in the sentence, and are no words. The importance of a sentence's words (B, T) sums to 1
        (0 without words): how much each counts in `local_similarity`.
        """
        states = self.text(texts.ids, texts.mask)  # (B, T, d)
        mask = (texts.ids != PAD) & (texts.ids != START) & (texts.ids != END)
        importance = masked_softmax(self.local_importance(states).squeeze(2).float(), mask)
        return {
            "vector": l2norm(self.text_pool(states, texts.mask)),
            "words": l2norm(self.local_word(states)) * mask.unsqueeze(2),
            "mask": mask,
            "importance": importance,
        }

    def local_similarity(self, images: Embedding, texts: Embedding) -> Tensor:
        """(images, texts) how well words find regions, from -1 to 1: a mean over words, by their importance, of the
        mean cosine with the regions, by their weights in `alignment`.

        Only `BLOCK` images × texts are held at a time: gradients compute each block again.
        """
        require_rows(images, texts)
        image_blocks = list(zip(torch.split(images["regions"], BLOCK), torch.split(images["mask"], BLOCK), strict=True))
        text_blocks = zip(torch.split(texts["words"], BLOCK), torch.split(texts["importance"], BLOCK), strict=True)
        columns = []
        for words, importance in text_blocks:
            blocks = [
                checkpoint(self._local, regions, mask, words, importance, use_reentrant=False)
                for regions, mask in image_blocks
            ]
            columns.append(torch.cat(blocks))
        return torch.cat(columns, 1)

    def joint_similarity(self, images: Embedding, texts: Embedding) -> Tensor:
        """(images, texts) by both read-outs: better than `similarity` alone, and much slower."""
        return self.similarity(images, texts) + LOCAL_SHARE * self.local_similarity(images, texts)

    def grounding(self, images: Embedding, texts: Embedding) -> Tensor:
        """(B, T, n) cosine, from -1 to 1, of each word of text b with each region of image b; 0 where either is none.

        Cosines of different words and photos are comparable, so that a threshold can tell what is not there.
        """
        words, regions = texts["words"].float(), images["regions"].float()
        with full_precision(words.device):
            return words @ regions.mT

    def alignment(self, images: Embedding, texts: Embedding, forced: Tensor | None = None) -> Tensor:
        """(B, T, n) weights of image b's regions for each word of text b; all words take part, whatever is `forced`."""
        weights = masked_softmax(self.config.sharpness * self.grounding(images, texts), images["mask"].unsqueeze(1))
        return weights * texts["mask"].unsqueeze(2)

    def _picture(self, rows: Tensor, mask: Tensor) -> Tensor:
        """(B, m, d) rows that attend to each other, and their pool (B, d)."""
        attended = (mask | ~mask.any(1, keepdim=True))[:, None, None]  # an empty photo attends to padding: no NaN
        normed = self.attention_norm(rows)
        rows = rows + self.dropout(self.attention(normed, self.attention.keys_values(normed), attended))
        if self.ffn is not None:
            rows = rows + self.dropout(self.ffn(rows))
        pooled: Tensor = self.image_pool(rows, mask)
        return pooled

    def _local(self, regions: Tensor, mask: Tensor, words: Tensor, importance: Tensor) -> Tensor:
        """Regions (A, n, d) and words (C, T, d) to scores (A, C)."""
        with full_precision(regions.device):
            cosines = regions.flatten(0, 1).float() @ words.flatten(0, 1).float().T
        cosines = cosines.view(*regions.shape[:2], -1)  # (A, n, C · T)
        weights = masked_softmax(self.config.sharpness * cosines, mask.unsqueeze(2), 1)
        word_scores = (weights * cosines).sum(1).view(len(regions), *importance.shape)  # (A, C, T)
        return (word_scores * importance).sum(2)
