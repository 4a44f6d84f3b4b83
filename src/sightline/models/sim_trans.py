"""Sim-Trans: a transformer captioner without an encoder, the baseline of JRAN's section 5.3 and Table 4.

The paper names the "Simplistic Transformer architecture" of krasserm/fairseq-image-captioning, fairseq's
`simplistic-captioning-arch`: region features are projected to the decoder's width and read as they are. Captions here
are words of one vocabulary where that recipe splits them into BPE pieces, so that Sim-Trans is compared with the other
models on the same words; what else differs is in the docstring of `sightline.models.transformer_decoder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from sightline.batch import SceneBatch
from sightline.models.captioner import Memory
from sightline.models.layers import corners_and_area
from sightline.models.transformer_decoder import TransformerCaptioner, TransformerConfig


@dataclass(frozen=True)
class SimTransConfig(TransformerConfig):
    """The sizes and choices of Sim-Trans."""

    kind: Literal["sim-trans"] = "sim-trans"
    # Add a projection of each region's box (its corners and its area) to the region; needs `boxes`.
    box_encoding: bool = False

    def build(self, vocab_size: int) -> SimTrans:
        return SimTrans(self, vocab_size)


class SimTrans(TransformerCaptioner):
    """Regions, projected, are what the decoder looks at."""

    config: SimTransConfig

    def __init__(self, config: SimTransConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        self.needs = ("regions", "boxes") if config.box_encoding else ("regions",)
        self.regions = nn.Linear(config.region_width, config.hidden_size)
        self.boxes = nn.Linear(5, config.hidden_size) if config.box_encoding else None

    def encode(self, scenes: SceneBatch) -> Memory:
        rows = self.regions(scenes.part("regions", by="Sim-Trans", width=self.config.region_width))  # (B, n, d)
        if self.boxes is not None:
            rows = rows + self.boxes(corners_and_area(scenes.part("boxes", by="Sim-Trans")).to(rows.dtype))
        return self.remember(rows, scenes.mask("regions"))
