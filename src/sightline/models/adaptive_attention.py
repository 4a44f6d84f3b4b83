"""AdaptiveAttention: at each word the decoder chooses between the image and what it already knows.

Lu, Xiong, Parikh and Socher, "Knowing When to Look: Adaptive Attention via a Visual Sentinel for Image Captioning",
CVPR 2017; equation numbers are theirs. It is the stronger captioner in "Contrastive Learning for Image Captioning" (Dai
and Lin 2017, section 5.2), which uses the released network, as this file does. Beyond the printed equations it has
- a nonlinear layer on the sentinel (ReLU), on the LSTM's output (tanh) and on the attended sum (tanh);
- the image as a term of its own in the LSTM's gates and in the sentinel's, which [word; image] as input amounts to;
- an attention width of its own, where the paper takes the number of cells; so the grid may be of any size;
- dropout after every one of these layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.config import check_config
from sightline.models.captioner import Captioner, Memory, State, Trace, expand, per_image
from sightline.models.layers import masked_softmax

CHUNK = 2**23  # numbers of tanh(W_v V + W_g h) that exist at the same time where no gradient is wanted


@dataclass(frozen=True)
class AdaptiveAttentionConfig:
    """The sizes of AdaptiveAttention; the defaults are those of its release."""

    kind: Literal["adaptive-attention"] = "adaptive-attention"

    grid_width: int = 2048  # width of a grid cell's feature
    vector_width: int = 2048  # width of a scene's vector
    word_size: int = 512  # width of a word embedding
    hidden_size: int = 512  # width of the LSTM, and of the image and its cells after their first layer
    attention_size: int = 512  # width in which the LSTM's output meets cells and sentinel
    dropout: float = 0.5  # share of each layer's outputs set to zero in training

    def __post_init__(self) -> None:
        check_config(self)

    def build(self, vocab_size: int) -> AdaptiveAttention:
        return AdaptiveAttention(self, vocab_size)


class AdaptiveAttention(Captioner):
    """The adaptive encoder-decoder of sections 2.2, 2.3 and 3.

    Attention does not feed back into the LSTM: `unroll` runs the recurrence alone, then attends for all words at once.
    The trace holds the weights of the cells as `grid` and that of the sentinel, β_t, as the gate `sentinel`; together
    they sum to 1.
    """

    needs = ("grid", "vector")
    recurrent = True

    def __init__(self, config: AdaptiveAttentionConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        size, attention = config.hidden_size, config.attention_size
        self.dropout = nn.Dropout(config.dropout)
        self.cells = nn.Sequential(nn.Linear(config.grid_width, size), nn.ReLU(), self.dropout)  # W_a
        self.image = nn.Sequential(nn.Linear(config.vector_width, size), nn.ReLU(), self.dropout)  # W_b
        self.embedding = nn.Sequential(nn.Embedding(vocab_size, config.word_size), nn.ReLU(), self.dropout)
        self.word_gates = nn.Linear(config.word_size, 5 * size)  # input, forget, output, sentinel (W_x), candidate
        self.image_gates = nn.Linear(size, 5 * size, bias=False)
        self.hidden_gates = nn.Linear(size, 5 * size, bias=False)  # W_h is its sentinel part
        self.sentinel = nn.Sequential(nn.Linear(size, size), nn.ReLU(), self.dropout)
        self.hidden = nn.Sequential(nn.Linear(size, size), nn.Tanh(), self.dropout)
        self.cell_keys = nn.Linear(size, attention)  # W_v
        self.sentinel_keys = nn.Linear(size, attention)  # W_s
        self.queries = nn.Linear(size, attention)  # W_g
        self.score = nn.Linear(attention, 1, bias=False)  # w_h
        self.mix = nn.Sequential(nn.Linear(size, size), nn.Tanh(), self.dropout)
        self.output = nn.Linear(size, vocab_size)  # W_p of Eq. 13; the softmax is the contract's

    def encode(self, scenes: SceneBatch) -> Memory:
        """The cells, their keys, the slots that count (the sentinel's first) and the image's share of the gates."""
        grid = scenes.part("grid", by="AdaptiveAttention", width=self.config.grid_width)
        vector = scenes.part("vector", by="AdaptiveAttention", width=self.config.vector_width)
        cells = self.cells(grid)  # (B, L, d), Eq. 15
        image = self.image(vector)  # (B, d), Eq. 16; the vector is Eq. 14 where it is the grid's mean
        return {
            "cells": cells,
            "keys": self.cell_keys(cells),  # (B, L, a), W_v V of Eq. 6
            "slots": F.pad(scenes.mask("grid"), (1, 0), value=True),  # (B, 1 + L)
            "gates": self.image_gates(image),  # (B, 5d)
        }

    def start(self, memory: Memory) -> State:
        zeros = memory["cells"].new_zeros(len(memory["cells"]), self.config.hidden_size)
        return {"hidden": zeros, "cell": zeros}

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        state, sentinel = self._recur(self._inputs(words.unsqueeze(1), memory).squeeze(1), state)
        hidden, _ = self._attend(state["hidden"].unsqueeze(1), sentinel.unsqueeze(1), memory)
        return hidden.squeeze(1), state

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        state = expand(self.start(memory), len(words))
        hidden, sentinels = [], []
        for inputs in self._inputs(words, memory).unbind(1):
            state, sentinel = self._recur(inputs, state)
            hidden.append(state["hidden"])
            sentinels.append(sentinel)
        attended, weights = self._attend(torch.stack(hidden, 1), torch.stack(sentinels, 1), memory)
        return attended, Trace(grid=weights[..., 1:], gates={"sentinel": weights[..., 0]})

    def _inputs(self, words: Tensor, memory: Memory) -> Tensor:
        """What words (N, T) and their image bring to the gates: (N, T, 5d)."""
        gates = per_image(self.word_gates(self.embedding(words)), memory)  # (B, K, T, 5d)
        return (gates + memory["gates"][:, None, None]).flatten(0, 1)

    def _recur(self, inputs: Tensor, state: State) -> tuple[State, Tensor]:
        """One step of the LSTM from inputs (N, 5d): the new state, h_t and m_t, and the sentinel s_t (N, d)."""
        *gates, candidate = (inputs + self.hidden_gates(state["hidden"])).chunk(5, -1)  # (N, d) each
        i, f, o, g = (gate.sigmoid() for gate in gates)  # g is g_t of Eq. 9
        m = f * state["cell"] + i * candidate.tanh()
        tanh_m = m.tanh()
        return {"hidden": o * tanh_m, "cell": m}, g * tanh_m  # h_t of Eq. 4, s_t of Eq. 10

    def _attend(self, hidden: Tensor, sentinel: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """h_t and s_t (N, T, d) to what the words are predicted from, and the weights (N, T, 1 + L)."""
        shape = hidden.shape[:2]
        h = per_image(self.hidden(self.dropout(hidden)), memory).flatten(1, 2)  # (B, K·T, d)
        s = per_image(self.sentinel(self.dropout(sentinel)), memory).flatten(1, 2)  # (B, K·T, d)
        queries = self.queries(h)  # W_g h_t, (B, K·T, a)
        z = self._scores(memory["keys"], queries)  # Eq. 6, (B, K·T, L)
        z_sentinel = self.score(self.dropout(torch.tanh(self.sentinel_keys(s) + queries)))  # (B, K·T, 1)
        alpha = masked_softmax(torch.cat([z_sentinel, z], -1), memory["slots"].unsqueeze(1))  # Eq. 7, 12
        beta = alpha[..., :1]
        context = beta * s + alpha[..., 1:] @ memory["cells"]  # Eq. 8, 11: these weights hold (1 - β_t)
        mixed = self.mix(context + h)  # Eq. 13, before W_p
        return mixed.reshape(*shape, -1), alpha.reshape(*shape, -1)

    def _scores(self, keys: Tensor, queries: Tensor) -> Tensor:
        """w_h tanh(W_v V + W_g h) of keys (B, L, a) and queries (B, M, a): (B, M, L), some queries at a time."""
        scores = []
        for part in torch.split(queries, max(1, CHUNK // max(1, keys.numel())), 1):
            fit = self.dropout((keys.unsqueeze(1) + part.unsqueeze(2)).tanh_())  # (B, part, L, a)
            scores.append(self.score(fit).squeeze(-1))
        return torch.cat(scores, 1)
