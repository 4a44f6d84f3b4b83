"""JRAN-Trans: joint relationship features read by Sim-Trans' decoder (JRAN, COLING 2022, section 5.3, Table 4).

Regions and grid cells become the joint relationship features V_J (section 3.3, `sightline.models.jrln`), and the
decoder of Sim-Trans looks at V_J where Sim-Trans looks at the projected regions. The paper feeds the context C^F_t of
Eq. 11–13 to the decoder; that context depends on an LSTM's state, which a transformer does not have, so here the
decoder's cross-attention is the relationship based attention: its weights, averaged over the heads of the last layer,
are η_t of Eq. 12, and what it gathers from V_J is C^F_t. Like Sim-Trans, and unlike fairseq, it reads words, not BPE
pieces.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.errors import ConfigError
from sightline.models.captioner import Memory, Trace, per_image
from sightline.models.jrln import JRLN, JRLNConfig
from sightline.models.transformer_decoder import TransformerCaptioner, TransformerConfig


@dataclass(frozen=True)
class JRANTransConfig(TransformerConfig):
    """The sizes and choices of JRAN-Trans."""

    kind: Literal["jran-trans"] = "jran-trans"
    grid_width: int = 2048  # numbers a grid feature has
    jrln: JRLNConfig = field(default_factory=JRLNConfig)  # how relationships are learned; its `size` is `hidden_size`

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jrln.size != self.hidden_size:
            what = f"`jrln.size` is {self.jrln.size} and `hidden_size` is {self.hidden_size}"
            raise ConfigError(what, fix="give both the same")

    def build(self, vocab_size: int) -> JRANTrans:
        return JRANTrans(self, vocab_size)


class JRANTrans(TransformerCaptioner):
    """The decoder looks at V_J; the trace holds the relationship gate of each word."""

    config: JRANTransConfig

    def __init__(self, config: JRANTransConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        self.regions = nn.Linear(config.region_width, config.hidden_size)
        self.grid = nn.Linear(config.grid_width, config.hidden_size) if config.jrln.reads_grid else None
        self.jrln = JRLN(config.jrln)
        self.needs = ("regions",) if self.grid is None else ("regions", "grid")

    def encode(self, scenes: SceneBatch) -> Memory:
        """The cross-attention memory of V_J, and `sigma` (B, n), the relationship gate of each region, if any."""
        mask = scenes.mask("regions")
        features = scenes.part("regions", by="JRAN-Trans", width=self.config.region_width)
        regions = self.regions(features)  # V_r, (B, n, d)
        if self.grid is None:
            joint, sigma = self.jrln(regions, mask)
        else:
            grid = self.grid(scenes.part("grid", by="JRAN-Trans", width=self.config.grid_width))  # V_s, (B, L, d)
            joint, sigma = self.jrln(regions, mask, grid, scenes.mask("grid"))  # V_J by Eq. 3–10
        memory = self.remember(joint, mask)
        return memory if sigma is None else {**memory, "sigma": sigma}

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        """As the decoder does, with the share of visual relationships in each word (Fig. 8): Σ_i η_{i,t} σ_i."""
        hidden, trace = super().unroll(memory, words)
        if "sigma" in memory:
            assert trace.regions is not None
            eta = per_image(trace.regions, memory).flatten(1, 2)  # Eq. 12, (B, K·T, n)
            share = eta @ memory["sigma"].to(eta.dtype).unsqueeze(-1)  # (B, K·T, 1)
            trace = replace(trace, gates={"relationship": share.view_as(words)})
        return hidden, trace
