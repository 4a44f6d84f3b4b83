"""JRAN: the Joint Relationship Attention Network, a captioner with an LSTM decoder (COLING 2022, Section 3).

Regions V_r and grid cells V_s (the "semantic features", Eq. 2) become joint relationship features V_J (`jrln.py`,
Eq. 3–10). At each word, relationship based attention (Eq. 11–13) sums them to a context C^F_t for the LSTM
(`Decoder`). Eq. 1 is the objective `cross-entropy`. Every part has a switch: the rows of Table 1, Fig. 5 and the
baseline of Table 2 are configs, in the recipes `jran/table-1`, `jran/fig-5` and `jran/table-2`. The paper leaves open,
and we choose:

- V_r and V_s are each projected to d by a linear layer with ReLU. V_s is L vectors, one per cell, as Eq. 5 needs.
- The LSTM starts from zeros and reads the previous word, C^F_t and h_{t-1}. The word is predicted from h_t alone,
  p = softmax(W h_t + b): the context has reached h_t through the LSTM.
- Without relationship attention the LSTM gets the mean of V_J at every step.
- Without JRLN the attention (or mean) is over the projected features; of both kinds, over regions and cells as one set.
- The gate of a word (Fig. 8) is the weight of visual relationships, Σ_i η_{i,t} σ_i (η uniform without attention), σ_i
  being the last layer's gate averaged over channels and heads. That of visual-semantic relationships is one minus it.
- `decoder: updown` has two LSTMs, as the reported baseline's scores suggest: the first reads the word, the mean of V_J
  and the second's h_{t-1}, and its own h_t takes the place of h_{t-1} in Eq. 11; the second reads C^F_t.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.config import check_config
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner, Memory, State, Trace, expand, images, per_image
from sightline.models.jrln import JRLN, JRLNConfig
from sightline.models.layers import lstm_step, masked_mean, masked_softmax


@dataclass(frozen=True)
class JRANConfig:
    """The sizes and switches of JRAN; the defaults are the full model, row 6 of Table 1."""

    kind: Literal["jran"] = "jran"
    regions: bool = True  # read region features ("R Fea.")
    grid: bool = True  # read grid features ("S Fea.")
    # The Joint Relationship Learning Network, or none. Its scheme "none" relates one kind of feature with itself; the
    # others need both.
    jrln: JRLNConfig | None = field(default_factory=JRLNConfig)
    relationship_attention: bool = True  # attend at each word ("R-Att."); false gives the decoder the mean
    # One LSTM that attends with h_{t-1} (Eq. 11), or two in the manner of Up-Down.
    decoder: Literal["lstm", "updown"] = "lstm"
    region_width: int = 2048  # width of region features
    grid_width: int = 2048  # width of grid features
    size: int = 512  # width d of V_J and the context; that of `jrln` must be the same
    word_size: int = 512  # width of word embeddings
    hidden_size: int = 512  # width of the LSTM
    attention_size: int = 512  # width of the sum inside tanh of Eq. 11
    # On projected features, word embeddings and what words are predicted from. The paper does not give it.
    dropout: float = 0.5

    def __post_init__(self) -> None:
        check_config(self)
        if not (self.regions or self.grid):
            raise ConfigError("JRAN without regions and grid sees nothing", fix="switch `regions` or `grid` on")
        jrln = self.jrln
        if jrln is None:
            return
        if jrln.size != self.size:
            what = f"JRAN's `size` is {self.size} and `jrln.size` {jrln.size}"
            raise ConfigError(what, fix="give both the same width")
        if jrln.reads_grid and not (self.regions and self.grid):
            what = f"the scheme `{jrln.scheme}` relates regions with grid cells, and JRAN reads one of them"
            raise ConfigError(what, fix="switch `regions` and `grid` on, or choose `jrln.scheme: none`")
        if not jrln.reads_grid and self.regions and self.grid:
            what = "the scheme `none` relates one kind of feature, and JRAN reads regions and grid"
            raise ConfigError(what, fix="switch `regions` or `grid` off, or choose another `jrln.scheme`")

    def build(self, vocab_size: int) -> JRAN:
        return JRAN(self, vocab_size)


class RelationshipAttention(nn.Module):
    """Relationship based attention (Section 3.4)."""

    def __init__(self, size: int, hidden_size: int, attention_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(size, attention_size)  # W_J and b_h
        self.query = nn.Linear(hidden_size, attention_size, bias=False)  # W_h
        self.score = nn.Linear(attention_size, 1, bias=False)  # W_r

    def forward(self, hidden: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Hidden (N, h) to the context (N, d) and its weights (N, n)."""
        query = per_image(self.query(hidden), memory).unsqueeze(2)  # (B, K, 1, a)
        z = self.score((memory["keys"].unsqueeze(1) + query).tanh()).squeeze(-1)  # Eq. 11, (B, K, n)
        eta = masked_softmax(z, memory["mask"].unsqueeze(1))  # Eq. 12
        context = eta @ memory["features"]  # Eq. 13, (B, K, d)
        return context.flatten(0, 1), eta.flatten(0, 1)


class Decoder(nn.Module, ABC):
    """What the two decoders share: the word's part of the LSTM's gates, and the context's.

    W [x; c; h], the gates of an LSTM, is kept as a matrix for each part: W_x x + W_c c + W_h h. So what a word adds is
    computed for all words at once, and what an image adds once. `state` names the tensors that go from step to step.
    """

    state: tuple[str, ...]

    def __init__(self, config: JRANConfig) -> None:
        super().__init__()
        self.word = nn.Linear(config.word_size, 4 * config.hidden_size)
        self.context = nn.Linear(config.size, 4 * config.hidden_size, bias=False)
        self.attention = None
        if config.relationship_attention:
            self.attention = RelationshipAttention(config.size, config.hidden_size, config.attention_size)

    def remember(self, features: Tensor, mask: Tensor) -> Memory:
        """What each image's features (B, n, d) give to every step."""
        if self.attention is None:
            return {"context": self.context(masked_mean(features, mask))}
        return {"features": features, "mask": mask, "keys": self.attention.key(features)}

    def word_gates(self, words: Tensor, memory: Memory) -> Tensor:
        """Embedded words (N, T, w) to their part of the gates (N, T, 4 h)."""
        gates: Tensor = self.word(words)
        return gates

    def with_context(self, gates: Tensor, hidden: Tensor, memory: Memory) -> tuple[Tensor, Tensor | None]:
        """Gates (N, 4 h) with the context's part, and η (N, n) that `hidden` attends with."""
        if self.attention is None:
            return (per_image(gates, memory) + memory["context"].unsqueeze(1)).flatten(0, 1), None
        context, eta = self.attention(hidden, memory)
        return gates + self.context(context), eta

    @abstractmethod
    def forward(self, gates: Tensor, memory: Memory, state: State) -> tuple[Tensor, Tensor | None, State]:
        """One step from the word's gates (N, 4 h): h_t (N, h), η (N, n) or None, and the new state."""


class LSTMDecoder(Decoder):
    """One LSTM, attending with h_{t-1}."""

    state = ("hidden", "cell")

    def __init__(self, config: JRANConfig) -> None:
        super().__init__(config)
        self.recurrent = nn.Linear(config.hidden_size, 4 * config.hidden_size, bias=False)

    def forward(self, gates: Tensor, memory: Memory, state: State) -> tuple[Tensor, Tensor | None, State]:
        gates, eta = self.with_context(gates, state["hidden"], memory)
        hidden, cell = lstm_step(gates + self.recurrent(state["hidden"]), state["cell"])
        return hidden, eta, {"hidden": hidden, "cell": cell}


class UpDownDecoder(Decoder):
    """An attention LSTM whose h_t attends, and a language LSTM that reads the context and predicts."""

    state = ("attention_hidden", "attention_cell", "hidden", "cell")

    def __init__(self, config: JRANConfig) -> None:
        super().__init__(config)
        hidden = config.hidden_size
        self.mean = nn.Linear(config.size, 4 * hidden, bias=False)
        self.attention_recurrent = nn.Linear(2 * hidden, 4 * hidden, bias=False)
        self.language_recurrent = nn.Linear(2 * hidden, 4 * hidden)

    def remember(self, features: Tensor, mask: Tensor) -> Memory:
        """`Decoder.remember`, and what the mean of the features adds to the attention LSTM."""
        return {**super().remember(features, mask), "mean": self.mean(masked_mean(features, mask))}

    def word_gates(self, words: Tensor, memory: Memory) -> Tensor:
        """`Decoder.word_gates`, and the image's mean, which is the same at every step."""
        gates = per_image(super().word_gates(words, memory), memory)  # (B, K, T, 4 h)
        return (gates + memory["mean"][:, None, None]).flatten(0, 1)

    def forward(self, gates: Tensor, memory: Memory, state: State) -> tuple[Tensor, Tensor | None, State]:
        recurrent = self.attention_recurrent(torch.cat([state["attention_hidden"], state["hidden"]], -1))
        attention_hidden, attention_cell = lstm_step(gates + recurrent, state["attention_cell"])
        recurrent = self.language_recurrent(torch.cat([attention_hidden, state["hidden"]], -1))
        gates, eta = self.with_context(recurrent, attention_hidden, memory)
        hidden, cell = lstm_step(gates, state["cell"])
        state = {"attention_hidden": attention_hidden, "attention_cell": attention_cell, "hidden": hidden, "cell": cell}
        return hidden, eta, state


class JRAN(Captioner):
    """The captioner. Memory holds V_J and its keys (or, without attention, what its mean adds to the LSTM)."""

    recurrent = True

    def __init__(self, config: JRANConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.needs = tuple(name for name in ("regions", "grid") if getattr(config, name))
        if config.regions:
            self.region_projection = nn.Linear(config.region_width, config.size)
        if config.grid:
            self.grid_projection = nn.Linear(config.grid_width, config.size)
        self.jrln = None if config.jrln is None else JRLN(config.jrln)
        self.embedding = nn.Embedding(vocab_size, config.word_size)
        self.decoder: Decoder = LSTMDecoder(config) if config.decoder == "lstm" else UpDownDecoder(config)
        self.output = nn.Linear(config.hidden_size, vocab_size)
        self.dropout = nn.Dropout(config.dropout)

    def encode(self, scenes: SceneBatch) -> Memory:
        """V_J of each image, and what of the decoder depends on nothing else."""
        features, masks = self._features(scenes)
        gate: Tensor | None = None
        if self.jrln is None:
            joint, mask = torch.cat(features, 1), torch.cat(masks, 1)
        elif len(features) == 2:
            mask = masks[0]
            joint, gate = self.jrln(features[0], mask, features[1], masks[1])  # V_J by Eq. 3–10
        else:
            mask = masks[0]
            joint, _ = self.jrln(features[0], mask)  # of one kind of feature: Eq. 3, 4, 9 and 10
        memory = self.decoder.remember(joint, mask)
        if gate is not None:
            attends = self.config.relationship_attention
            memory["gate"] = gate if attends else masked_mean(gate.unsqueeze(-1), mask).squeeze(-1)
        if self.jrln is None and len(masks) == 2:
            memory["region_mask"] = masks[0]  # tells where regions end and cells begin
        return memory

    def _features(self, scenes: SceneBatch) -> tuple[list[Tensor], list[Tensor]]:
        """V_r (B, K, d) and V_s (B, L, d), as far as they are switched on, and their masks (B, K) and (B, L)."""
        features, masks = [], []
        if self.config.regions:
            regions = scenes.part("regions", by="JRAN", width=self.config.region_width)
            features.append(self.dropout(self.region_projection(regions).relu()))  # V_r
            masks.append(scenes.mask("regions"))
        if self.config.grid:
            grid = scenes.part("grid", by="JRAN", width=self.config.grid_width)
            features.append(self.dropout(self.grid_projection(grid).relu()))  # V_s of Eq. 2
            masks.append(scenes.mask("grid"))
        return features, masks

    def start(self, memory: Memory) -> State:
        weight = self.embedding.weight
        return {name: weight.new_zeros(images(memory), self.config.hidden_size) for name in self.decoder.state}

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        gates = self._word_gates(words.unsqueeze(1), memory)
        hidden, _, state = self.decoder(gates[:, 0], memory, state)
        return self.dropout(hidden), state

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        state = expand(self.start(memory), len(words))
        steps, weights = [], []
        for gates in self._word_gates(words, memory).unbind(1):
            hidden, eta, state = self.decoder(gates, memory, state)
            steps.append(hidden)
            weights.append(eta)
        eta = torch.stack(weights, 1) if self.config.relationship_attention else None  # (N, T, n)
        return self.dropout(torch.stack(steps, 1)), self._trace(eta, memory, words)

    def _word_gates(self, words: Tensor, memory: Memory) -> Tensor:
        """What words (N, T) add to the gates of the LSTM (N, T, 4 h), computed for all words at once."""
        return self.decoder.word_gates(self.dropout(self.embedding(words)), memory)

    def _trace(self, eta: Tensor | None, memory: Memory, words: Tensor) -> Trace:
        gates = {}
        if "gate" in memory:
            gates["relationship"] = _word_gate(eta, memory, words)
        if eta is None:
            return Trace(gates=gates)
        if "region_mask" in memory:
            count = memory["region_mask"].shape[1]
            return Trace(eta[..., :count], eta[..., count:], gates)
        return Trace(eta, None, gates) if self.config.regions else Trace(None, eta, gates)


def _word_gate(eta: Tensor | None, memory: Memory, words: Tensor) -> Tensor:
    """(N, T) the relationship gate of each word (Fig. 8)."""
    if eta is None:
        rows = per_image(words, memory)
        return memory["gate"][:, None, None].expand(rows.shape).flatten(0, 1)
    gate = per_image(eta, memory) @ memory["gate"][:, None, :, None]  # (B, K, T, 1)
    return gate.squeeze(-1).flatten(0, 1)
