"""SCAN: stacked cross attention, in the form that "More Grounded Image Captioning by Distilling Image-Text Matching"
(section 3.1, Eq. 1-6) gives it: each word attends to the regions, and a caption fits as well as its words do.

The direction i2t of the original ("Stacked Cross Attention for Image-Text Matching") swaps the roles. Below, the side
that is attended to is the context (t2i: regions) and the side that attends is the query (t2i: words). `block` has the
equations as they are printed; `similarity` computes the same sooner, by `scan_fast.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch, TextBatch
from sightline.config import check_config
from sightline.errors import ConfigError
from sightline.models.layers import WordGRU, l2norm, masked_softmax
from sightline.models.matcher import AligningMatcher, Embedding, full_precision
from sightline.models.scan_fast import similarity_of_all

EPS = 1e-8  # added to lengths, and the least a length counts in a cosine


@dataclass(frozen=True)
class SCANConfig:
    """The sizes and choices of SCAN; the defaults are those of POS-SCAN's paper."""

    kind: Literal["scan"] = "scan"
    region_width: int = 2048
    """Width of a region's feature."""
    word_size: int = 300
    """Width of a word's embedding."""
    size: int = 1024
    """Width of the space that words and regions share."""
    bidirectional: bool = True
    """Whether the GRU reads the caption from both ends."""
    direction: Literal["t2i", "i2t"] = "t2i"
    """t2i: words attend to regions. i2t: regions attend to words."""
    aggregate: Literal["mean", "lse", "max", "sum"] = "mean"
    """How the scores of the words (i2t: regions) make the score of the pair."""
    raw_feature_norm: Literal[
        "clipped_l2norm", "l2norm", "clipped_l1norm", "l1norm", "clipped", "softmax", "no_norm"
    ] = "clipped_l2norm"
    """What happens to the cosines before the softmax, along the words (i2t: regions)."""
    clip: Literal["hard", "leaky"] = "hard"
    """The clip in it: [x]_+ as printed, or LeakyReLU(0.1) as in the released code."""
    lambda_softmax: float | None = None
    """Inverse temperature of the attention; None is 9 for t2i and 4 for i2t."""
    lambda_lse: float = 6.0
    """Inverse temperature of the aggregate "lse"."""

    def __post_init__(self) -> None:
        check_config(self)
        if not self.lambda_lse > 0:
            raise ConfigError(f"`lambda_lse` is {self.lambda_lse}", fix="give a number above 0")
        if not 0 < self.temperature <= 40:  # squares of exp(λ) must stay finite in float32
            raise ConfigError(f"`lambda_softmax` is {self.lambda_softmax}", fix="give a number above 0, at most 40")

    @property
    def temperature(self) -> float:
        """The inverse temperature of the attention: τ of Eq. 5."""
        return {"t2i": 9.0, "i2t": 4.0}[self.direction] if self.lambda_softmax is None else self.lambda_softmax

    def build(self, vocab_size: int) -> SCAN:
        """The model for a vocabulary of `vocab_size` ids."""
        return SCAN(self, vocab_size)


class SCAN(AligningMatcher):
    """Section 3.1. All words take part, START and END too."""

    config: SCANConfig

    def __init__(self, config: SCANConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.image = nn.Linear(config.region_width, config.size)
        self.text = WordGRU(vocab_size, config.word_size, config.size, config.bidirectional)
        nn.init.xavier_uniform_(self.image.weight)
        nn.init.zeros_(self.image.bias)

    def embed_images(self, scenes: SceneBatch) -> Embedding:
        """`regions` (B, n, d), unit vectors, and their `mask` (B, n)."""
        regions = scenes.part("regions", by=self.config.kind, width=self.config.region_width)
        mask = scenes.mask("regions")
        vectors = l2norm(self.image(regions))  # Eq. 1, and the length of Eq. 4
        return {"regions": vectors * mask.unsqueeze(2), "mask": mask}

    def embed_texts(self, texts: TextBatch) -> Embedding:
        """`words` (B, T, d), unit vectors, and their `mask` (B, T)."""
        return {"words": l2norm(self.text(texts.ids, texts.mask)), "mask": texts.mask}  # Eq. 2, 3, the length of Eq. 4

    def word_mask(self, texts: Embedding, forced: Tensor | None = None) -> Tensor:
        """(B, T) which words are matched; here all of them, whatever is `forced`."""
        return texts["mask"]

    def block(self, images: Embedding, texts: Embedding) -> Tensor:
        """(images, texts) scores of every pair, in one piece, as the equations are printed."""
        word_mask = self.word_mask(texts)
        regions = images["regions"].float(), images["mask"]
        words = texts["words"].float() * word_mask.unsqueeze(2), word_mask
        with full_precision(word_mask.device):
            if self.config.direction == "t2i":
                return self._pairs(*regions, *words)
            return self._pairs(*words, *regions).T

    def _pairs(self, context: Tensor, context_mask: Tensor, query: Tensor, mask: Tensor) -> Tensor:
        """Contexts (A, k, d) and queries (Q, m, d), unit vectors, to scores (A, Q)."""
        s = torch.einsum("akd,qmd->akmq", context, query)  # Eq. 4
        sharpened = self.sharpen(s, mask.T, 2)  # τ s̄
        alpha = masked_softmax(sharpened, context_mask[:, :, None, None], 1)  # Eq. 5
        attended = torch.einsum("akmq,akd->amqd", alpha, context)  # a of Eq. 5
        products = torch.einsum("amqd,qmd->amq", attended, query)
        R = products / attended.square().sum(-1).clamp(min=EPS**2).sqrt()  # Eq. 6; the query's length is 1
        return self.aggregate(R, mask.T)  # S of Eq. 6

    def similarity(self, images: Embedding, texts: Embedding, block: tuple[int, int] | None = None) -> Tensor:
        """(images, texts) scores, `block` images × texts at a time; the default suits the device."""
        return similarity_of_all(self, images, texts, block)

    def alignment(self, images: Embedding, texts: Embedding, forced: Tensor | None = None) -> Tensor:
        """(B, T, n) weights of image b's regions for each word of text b; rows of words that take no part are 0.

        t2i: α of Eq. 5. In i2t each region has weights over the words; the same normalised scores, with the softmax
        taken over the regions, are given instead, so that a word's row is a distribution in both directions.
        """
        words, regions = self.word_mask(texts, forced)[:, None], images["mask"][:, :, None]  # (B, 1, T), (B, n, 1)
        with full_precision(words.device):
            scores = images["regions"].float() @ texts["words"].float().mT * words  # (B, n, T), Eq. 4
        along, mask = (2, words) if self.config.direction == "t2i" else (1, regions)
        weights = masked_softmax(self.sharpen(scores, mask, along), regions, 1) * words  # Eq. 5
        return weights.mT

    def sharpen(self, scores: Tensor, mask: Tensor, dim: int) -> Tensor:
        """τ s̄ of Eq. 5: the scores, 0 on padding, normalised along `dim` (the line after Eq. 4, and its variants)."""
        norm, temperature = self.config.raw_feature_norm, self.config.temperature
        if norm == "softmax":
            return temperature * masked_softmax(scores, mask, dim)
        if norm.startswith("clipped"):
            scores = scores.relu() if self.config.clip == "hard" else F.leaky_relu(scores, 0.1)
        if norm.endswith("l2norm"):
            # Not `vector_norm`, which is many times slower along any but the last dimension; the clamp keeps the
            # gradient finite where all scores are 0.
            return scores * (temperature / (scores.square().sum(dim, keepdim=True).clamp(min=EPS**2).sqrt() + EPS))
        if norm.endswith("l1norm"):
            return scores * (temperature / (scores.abs().sum(dim, keepdim=True) + EPS))
        return temperature * scores

    def aggregate(self, relevance: Tensor, mask: Tensor) -> Tensor:
        """(A, m, Q) and mask (m, Q) to (A, Q): S of Eq. 6, over the queries' elements."""
        how = self.config.aggregate
        if how == "max":
            return relevance.masked_fill(~mask, -1).amax(1)
        if how == "lse":
            lowest = torch.finfo(relevance.dtype).min
            scaled = (self.config.lambda_lse * relevance).masked_fill(~mask, lowest)
            return torch.logsumexp(scaled, 1) / self.config.lambda_lse
        total = (relevance * mask).sum(1)
        return total / mask.sum(0).clamp(min=1) if how == "mean" else total  # Eq. 6
