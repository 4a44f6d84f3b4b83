"""The Joint Relationship Learning Network (JRLN) of the JRAN paper (COLING 2022), Section 3.3.

It turns regions V_r into joint relationship features V_J, one per region: what each region has to do with the other
regions (visual relationships, Eq. 3–4) and with the grid cells V_s, the paper's "semantic features" (visual-semantic
relationships, Eq. 5–6), weighed by a relationship gate (Eq. 7–8). The paper leaves open, and we choose:

- Eq. 8 takes V_s of region i, but grid cells are not numbered by regions, and its Concat changes the width. The gate of
  a head is σ = sigmoid(U_vr V_r^i + U_vs V_v-s^i + b): what the region found in the grid stands for V_s^i.
- Heads have width d_k = d / N_r, and the matrices of Eq. 7 and 8 belong to one head each.
- `norm: pre` adds what makes a stack of these layers learn: LayerNorm of what Eq. 3–8 and Eq. 10 read, and a residual
  around Eq. 10. S_r of Eq. 9 starts as the identity, S_n and the last matrix of Eq. 10 at zero, so that V_J starts as
  V_r and a model with JRLN as the same model without it. `norm: post` has LayerNorm after Eq. 9 and after the residual
  around Eq. 10; within ten steps of Adam all rows of V_J are then one and the same. `norm: none` is Eq. 9–10 as
  printed.
- Layer l + 1 takes V_J of layer l as V_r; V_s stays.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sightline.config import check_config
from sightline.errors import ConfigError
from sightline.models.layers import join_heads, masked_softmax, split_heads

Scheme = Literal["none", "concat", "no-gate", "rc"]


@dataclass(frozen=True)
class JRLNConfig:
    """The sizes and choices of a JRLN."""

    # How relationships meet (Fig. 5): "none" relates regions only, "concat" attends over regions and cells as one set,
    # "no-gate" joins the two relationships by a linear layer, "rc" by the relationship gate.
    scheme: Scheme = "rc"
    size: int = 512  # width d of regions, grid cells and V_J
    heads: int = 8  # N_r of Eq. 9
    layers: int = 3  # feature relationship networks, one upon the other (Fig. 4a)
    gate: Literal["vector", "scalar"] = "vector"  # σ of Eq. 8: one value per channel, or one per head
    ffn: Literal["linear", "relu"] = "linear"  # Eq. 10 as printed, or two layers with ReLU between, 4 d wide
    # LayerNorm before Eq. 3 and Eq. 10 with a residual around the latter, or after them; "none" gives the printed
    # equations. Older checkpoints and recipes say true for "post" and false for "none".
    norm: Literal["pre", "post", "none"] | bool = "pre"
    dropout: float = 0.1  # on what Eq. 9 adds to the residual, and on what Eq. 10 gives

    def __post_init__(self) -> None:
        if isinstance(self.norm, bool):
            object.__setattr__(self, "norm", "post" if self.norm else "none")
        check_config(self)
        if self.size % self.heads:
            what = f"a JRLN of size {self.size} cannot be split into {self.heads} heads"
            raise ConfigError(what, fix="make size a multiple of heads")

    @property
    def reads_grid(self) -> bool:
        """Whether the scheme relates regions with grid cells."""
        return self.scheme != "none"


class JRLN(nn.Module):
    """A stack of feature relationship networks (Fig. 4a): regions and grid cells to V_J."""

    def __init__(self, config: JRLNConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(FeatureRelationship(config) for _ in range(config.layers))

    def forward(
        self, regions: Tensor, region_mask: Tensor, grid: Tensor | None = None, grid_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Regions (B, K, d) and grid (B, L, d), with masks (B, K) and (B, L) that are True where something is.

        Only the scheme "none" does without a grid. Rows of padding in the results mean nothing.

        Returns:
            V_J (B, K, d), and the relationship gate (B, K) of the last layer, averaged over channels and heads: the
            weight of visual relationships, one minus it being that of visual-semantic ones; None without a gate.
        """
        gate: Tensor | None = None
        for layer in self.layers:
            regions, gate = layer(regions, region_mask, grid, grid_mask)
        return regions, gate


class RelationshipComputation(nn.Module):
    """The Relationship Computation (RC) module, Eq. 3–8 and Fig. 4b, of all heads at once."""

    def __init__(self, config: JRLNConfig) -> None:
        super().__init__()
        size, heads, width = config.size, config.heads, config.size // config.heads
        self.scheme, self.heads = config.scheme, heads
        self.value = _matrix(size, size)  # W_v
        self.query = _matrix(size, size)  # W_q
        self.key = _matrix(size, size)  # W_k
        if self.scheme in ("no-gate", "rc"):
            self.cell_value = _matrix(size, size)  # W_h
            self.cell_key = _matrix(size, size)  # W_s
            self.cell_query = _matrix(size, size)  # W_r
        if self.scheme == "no-gate":
            self.fusion = HeadMatrices(heads, 2 * width, width)
            self.fusion_bias = nn.Parameter(torch.zeros(heads, 1, width))
        if self.scheme == "rc":
            gates = width if config.gate == "vector" else 1
            self.visual = HeadMatrices(heads, width, width)  # W_vs
            self.visual_semantic = HeadMatrices(heads, width, width)  # W_vb
            self.gate_region = nn.Linear(size, heads * gates)  # U_vr and b_σ
            self.gate_semantic = HeadMatrices(heads, width, gates)  # U_vs

    def forward(
        self, regions: Tensor, region_mask: Tensor, grid: Tensor | None, grid_mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """(B, K, d) V_o of the heads side by side, and σ (B, N_r, K, d_k or 1) where the scheme has a gate."""
        if self.scheme == "none":
            return join_heads(self._relate(regions, regions, region_mask)), None
        assert grid is not None
        assert grid_mask is not None
        if self.scheme == "concat":
            tokens, mask = torch.cat([regions, grid], 1), torch.cat([region_mask, grid_mask], 1)
            return join_heads(self._relate(regions, tokens, mask)), None

        visual = self._relate(regions, regions, region_mask)  # Eq. 3–4, (B, N_r, K, d_k)
        beta = self._weights(self.cell_query(regions), self.cell_key(grid), grid_mask)  # Eq. 6, softmax over cells
        semantic = beta @ split_heads(self.cell_value(grid), self.heads)  # Eq. 5, (B, N_r, K, d_k)
        if self.scheme == "no-gate":
            return join_heads(self.fusion(torch.cat([visual, semantic], -1)) + self.fusion_bias), None

        sigma = (split_heads(self.gate_region(regions), self.heads) + self.gate_semantic(semantic)).sigmoid()  # Eq. 8
        output = sigma * self.visual(visual) + (1 - sigma) * self.visual_semantic(semantic)  # Eq. 7
        return join_heads(output), sigma

    def _relate(self, regions: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """(B, N_r, K, d_k) what each region finds in the tokens (B, n, d)."""
        phi = self._weights(self.query(regions), self.key(tokens), mask)  # Eq. 4
        return phi @ split_heads(self.value(tokens), self.heads)  # Eq. 3

    def _weights(self, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """(B, N_r, K, n) softmax over the n keys, scaled by the root of d_k."""
        queries, keys = split_heads(queries, self.heads), split_heads(keys, self.heads)
        scores = queries @ keys.mT / queries.shape[-1] ** 0.5
        return masked_softmax(scores, mask[:, None, None])


class FeatureRelationship(nn.Module):
    """One feature relationship network: relationship attention (Eq. 9) and feed-forward network (Eq. 10)."""

    def __init__(self, config: JRLNConfig) -> None:
        super().__init__()
        size = config.size
        self.relationships = RelationshipComputation(config)
        self.residual = _matrix(size, size)  # S_r
        nn.init.eye_(self.residual.weight)
        self.output = _matrix(size, size)  # S_n
        self.feed_forward: nn.Module = nn.Linear(size, size)  # S_J and b_J
        if config.ffn == "relu":
            self.feed_forward = nn.Sequential(nn.Linear(size, 4 * size), nn.ReLU(), nn.Linear(4 * size, size))
        self.norm = config.norm
        if self.norm != "none":
            self.attention_norm = nn.LayerNorm(size)
            self.feed_forward_norm = nn.LayerNorm(size)
        if self.norm == "pre":
            last = self.feed_forward[-1] if isinstance(self.feed_forward, nn.Sequential) else self.feed_forward
            for parameter in (self.output.weight, *last.parameters()):
                nn.init.zeros_(parameter)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, regions: Tensor, region_mask: Tensor, grid: Tensor | None, grid_mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """V_J (B, K, d) of this layer and the mean (B, K) of its gate."""
        inner = self.attention_norm(regions) if self.norm == "pre" else regions
        heads, sigma = self.relationships(inner, region_mask, grid, grid_mask)  # Eq. 3–8
        joint = self.residual(regions) + self.dropout(self.output(heads))  # Eq. 9
        if self.norm == "pre":
            joint = joint + self.dropout(self.feed_forward(self.feed_forward_norm(joint)))  # Eq. 10, with residual
        elif self.norm == "post":
            joint = self.attention_norm(joint)
            joint = self.feed_forward_norm(joint + self.dropout(self.feed_forward(joint)))  # Eq. 10, with residual
        else:
            joint = self.dropout(self.feed_forward(joint))  # Eq. 10
        return joint, None if sigma is None else sigma.mean((1, 3))


class HeadMatrices(nn.Module):
    """A matrix of its own for each head: (B, heads, n, inputs) to (B, heads, n, outputs)."""

    def __init__(self, heads: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, inputs, outputs))
        for matrix in self.weight.detach():
            nn.init.xavier_uniform_(matrix)

    def forward(self, rows: Tensor) -> Tensor:
        return rows @ self.weight


def _matrix(inputs: int, outputs: int) -> nn.Linear:
    """A learnable matrix, without bias as the equations print it."""
    matrix = nn.Linear(inputs, outputs, bias=False)
    nn.init.xavier_uniform_(matrix.weight)
    return matrix
