"""VSRN: Visual Semantic Reasoning Network for image-text matching.

Li et al., "Visual Semantic Reasoning for Image-Text Matching" (ICCV 2019), sections 3.1–3.4 and 4.5. Regions learn
about each other by graph convolution, a GRU reads them one by one and what it remembers is the image. Trained together
with a captioner on the same regions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch, TextBatch
from sightline.config import check_config
from sightline.errors import ConfigError
from sightline.models.captioner import Memory
from sightline.models.layers import BatchNorm, masked_mean
from sightline.models.matcher import Embedding, GlobalMatcher, l2norm
from sightline.models.vsrn_captioner import VSRNCaptioner, VSRNCaptionerConfig
from sightline.models.vsrn_reasoning import Order, RegionRelationship, ResetAfterGRU, ResetBeforeGRU, reading_order
from sightline.models.word_gru import SentenceGRU


@dataclass(frozen=True)
class VSRNConfig:
    """The sizes and choices of VSRN; the defaults are the paper's 4RRR + GSR.

    Table 4 is (`rrr_layers`, `gsr`) = (0, false) Mean-pool, (1, false) RRR, (0, true) GSR, (1, true) 1RRR + GSR,
    (4, true) 4RRR + GSR, and the last with `generation: false` for the row with a star. Table 5 is `order`.

    The paper is silent about normalisation. The released code brings V* to unit length before the GRU, along the axis
    of regions instead of features, and treats its two datasets differently. Its weights need `reset: after` and
    `norm_axis: region`, with `early_norm: true` for COCO or `batch_norm: true` for Flickr30k.

    Trained from random weights with hardest negatives, all images become one vector without `batch_norm: true`, and
    without `memory: long` global reasoning starts by reading the last regions alone.
    """

    kind: Literal["vsrn"] = "vsrn"
    region_width: int = 2048
    """Size of a region feature."""
    size: int = 2048
    """Dimensions of regions in reasoning, and of the space in which photos and sentences meet (the paper's D)."""
    word_size: int = 300
    """Size of a word embedding."""
    rrr_layers: int = 4
    """Layers of region relationship reasoning; 0 leaves it out."""
    gsr: bool = True
    """Global semantic reasoning over V*; without it the image is the mean of V*."""
    order: Order = "stored"
    """In which order global reasoning reads regions: as stored; as stored, where training checks that it is by falling
    confidence; by falling box area; in one random order per image; or in one that is redrawn each time while training.
    The captioner reads them as stored."""
    reset: Literal["before", "after"] = "before"
    """Whether the reset gate acts before U_m, as in Eq. 5, or after it, as in PyTorch's GRU and the released code."""
    memory: Literal["long", "default"] = "long"
    """How both GRUs start: remembering a whole photo (36 regions) and a whole caption (12 words), or the last few alone
    (PyTorch's start, the released code's)."""
    normalise: Literal["count", "softmax"] = "count"
    """How rows of the affinity matrix are normalised: over the number of regions (released code), or by softmax."""
    norm_axis: Literal["feature", "region"] = "feature"
    """Along which axis V* is brought to unit length: each region, or each feature over all regions (released code)."""
    early_norm: bool = False
    """Unit length before the first layer of relationship reasoning too (released code for COCO)."""
    batch_norm: bool = False
    """Batch norm of the image before unit length (released code for Flickr30k). It keeps hardest negatives from making
    one vector of all images."""
    generation: bool = True
    """Whether the captioner of the generation objective is there."""
    hidden_size: int = 512
    """Size of the captioner's states and attention."""
    dropout: float = 0.2
    """In the captioner only."""

    def __post_init__(self) -> None:
        """Refuse what makes no model."""
        check_config(self, may_be_zero=("rrr_layers",))

    def build(self, vocab_size: int) -> VSRN:
        """The model for a vocabulary of `vocab_size` ids."""
        return VSRN(self, vocab_size)


class VSRN(GlobalMatcher):
    """Regions that reason, as one unit vector; similarity is the inner product with the sentence's (Eq. 8)."""

    def __init__(self, config: VSRNConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.needs = ("regions", "boxes") if config.gsr and config.order == "box-size" else ("regions",)
        size = config.size
        self.fc = nn.Linear(config.region_width, size)
        self.relations = nn.ModuleList(RegionRelationship(size, config.normalise) for _ in range(config.rrr_layers))
        reasoning = ResetBeforeGRU if config.reset == "before" else ResetAfterGRU
        self.reasoning = reasoning(size, config.memory) if config.gsr else None
        self.norm = BatchNorm(size) if config.batch_norm else nn.Identity()
        self.text = SentenceGRU(vocab_size, config.word_size, size, config.memory)
        captioner = VSRNCaptionerConfig(
            region_width=size, word_size=config.word_size, hidden_size=config.hidden_size, dropout=config.dropout
        )
        self.captioner: VSRNCaptioner | None = captioner.build(vocab_size) if config.generation else None
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def embed_images(self, scenes: SceneBatch) -> Embedding:
        """`vector` (B, D): I at unit length; `regions` (B, n, D): V*, in stored order, 0 on padding; `region_mask`."""
        features = scenes.part("regions", by="VSRN", width=self.config.region_width)
        mask = scenes.mask("regions")
        v = self.fc(features)  # Eq. 1
        if self.config.early_norm:
            v = self._unit(v, mask)
        for relation in self.relations:
            v = relation(v, mask)  # Eq. 2–3
        v = self._unit(v, mask)
        image = masked_mean(v, mask) if self.reasoning is None else self._reason(v, mask, scenes)
        return {"vector": l2norm(self.norm(image)), "regions": v, "region_mask": mask}

    def embed_texts(self, texts: TextBatch) -> Embedding:
        """`vector` (B, D), unit length."""
        return {"vector": self.text(texts)}

    def memory(self, images: Embedding) -> Memory:
        """What `captioner` reads of embedded images: decode from it, or score captions."""
        return self._captioner().encode_regions(images["regions"], images["region_mask"])

    def generation_log_probs(self, images: Embedding, words: Tensor) -> Tensor:
        """(N, T) log p(y_t | y_<t, V*) of words (N, T + 1), START first, 0 on padding; L_G is minus their sum."""
        return self._captioner().word_log_probs(self.memory(images), words)  # Eq. 9

    def correlations(self, images: Embedding) -> Tensor:
        """(B, n) inner product of each region of V* with I, 0 on padding: what section 4.5 ranks regions by.

        `sightline.draw.representation` draws the ranks.
        """
        return torch.einsum("bnd,bd->bn", images["regions"], images["vector"])

    def _reason(self, v: Tensor, mask: Tensor, scenes: SceneBatch) -> Tensor:
        assert self.reasoning is not None
        order = reading_order(scenes, mask, self.config.order, self.training)
        if order is not None:
            v, mask = v.take_along_dim(order.unsqueeze(-1), 1), mask.take_along_dim(order, 1)
        memory: Tensor = self.reasoning(v, mask)  # Eq. 4–7
        return memory

    def _unit(self, v: Tensor, mask: Tensor) -> Tensor:
        real = v * mask.unsqueeze(-1)
        if self.config.norm_axis == "region":
            return l2norm(real.transpose(1, 2)).transpose(1, 2)
        return l2norm(real)

    def _captioner(self) -> VSRNCaptioner:
        if self.captioner is None:
            raise ConfigError("this VSRN has no captioner", fix="build it with `generation: true`")
        return self.captioner
