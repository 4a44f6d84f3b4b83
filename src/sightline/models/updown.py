"""Up-Down, the captioner of "More Grounded Image Captioning by Distilling Image-Text Matching Model", section 3.2.

Two LSTMs: the first reads the last word and decides where to look, the second reads what was seen there and says the
next word. Eq. 15-19 are the objectives `distillation` and `self-critical`.

This file is the model as the paper writes it, and the one to read; `updown_fast.py` computes the same sooner, and is
what `UpDownConfig.build` makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.config import check_config
from sightline.models.captioner import Captioner, Memory, State, Trace, expand, per_image
from sightline.models.layers import BatchNorm, masked_mean, masked_softmax


@dataclass(frozen=True)
class UpDownConfig:
    """The sizes and choices of Up-Down. The defaults are the paper's for Flickr30k; COCO has `hidden_size` 1024."""

    kind: Literal["updown"] = "updown"

    region_width: int = 2048  # numbers that describe a region
    word_size: int = 512  # width of the word embeddings
    hidden_size: int = 512  # width of both LSTMs and of the embedded regions
    attention_size: int = 512  # width of the space in which LSTM 1 meets the regions
    dropout: float = 0.5  # on embedded words, embedded regions and the output of LSTM 2
    # What LSTM 1 sees of the whole image: the mean of the embedded regions (the paper), or an embedding of its own of
    # the mean of the raw ones (the released code).
    mean_of: Literal["embedded", "raw"] = "embedded"
    relu: bool = True  # follow each embedding by a ReLU, as the released code does; the paper's are linear
    batch_norm: Literal[0, 1, 2] = 0  # normalise the regions before (1), or before and after (2), they are embedded

    def __post_init__(self) -> None:
        check_config(self)

    def build(self, vocab_size: int) -> UpDown:
        from sightline.models.updown_fast import FastUpDown  # which is built upon this file

        return FastUpDown(self, vocab_size)


class UpDown(Captioner):
    """Up-Down [section 3.2]; the trace's `regions` are β (Eq. 11)."""

    needs = ("regions",)
    recurrent = True

    def __init__(self, config: UpDownConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        width, hidden = config.region_width, config.hidden_size
        self.word_embedding = nn.Embedding(vocab_size, config.word_size)
        self.region_embedding = nn.Linear(width, hidden)
        self.mean_embedding = nn.Linear(width, hidden) if config.mean_of == "raw" else None
        self.region_norm = BatchNorm(width) if config.batch_norm else None
        self.embedded_norm = BatchNorm(hidden) if config.batch_norm == 2 else None
        self.attention_lstm = nn.LSTMCell(2 * hidden + config.word_size, hidden)  # LSTM 1
        self.region_attention = nn.Linear(hidden, config.attention_size)  # W_va
        self.hidden_attention = nn.Linear(hidden, config.attention_size)  # W_ha
        self.attention_score = nn.Linear(config.attention_size, 1)  # w_a
        self.language_lstm = nn.LSTMCell(2 * hidden, hidden)  # LSTM 2
        self.output = nn.Linear(hidden, vocab_size)  # Eq. 14; the softmax is the contract's
        self.dropout = nn.Dropout(config.dropout)

    def encode(self, scenes: SceneBatch) -> Memory:
        """The embedded regions V′, their mean v̄, and their part in the attention's scores."""
        raw = scenes.part("regions", by="Up-Down", width=self.config.region_width)  # (B, n, region_width)
        mask = scenes.mask("regions")
        regions = self._embed_regions(raw, mask)  # V′ of Eq. 9, (B, n, h)
        if self.mean_embedding is None:
            mean = masked_mean(regions, mask)  # v̄ of Eq. 10, (B, h)
        else:
            mean = self._activate(self.mean_embedding(masked_mean(raw, mask)))
        return {"regions": regions, "mask": mask, "keys": self.region_attention(regions), "mean": mean}

    def start(self, memory: Memory) -> State:
        zeros = memory["regions"].new_zeros(len(memory["regions"]), self.config.hidden_size)
        return {"h1": zeros, "c1": zeros, "h2": zeros, "c2": zeros}

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        state, _ = self._recur(words, memory, state)
        return self.dropout(state["h2"]), state

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        state = expand(self.start(memory), len(words))
        hidden, attention = [], []
        for step in words.unbind(1):
            state, beta = self._recur(step, memory, state)
            hidden.append(self.dropout(state["h2"]))
            attention.append(beta)
        return torch.stack(hidden, 1), Trace(regions=torch.stack(attention, 1))

    def _recur(self, words: Tensor, memory: Memory, state: State) -> tuple[State, Tensor]:
        """One word (N,) of each hypothesis further: the new state, and β (N, n)."""
        e = self._activate(self.word_embedding(words))  # e′, (N, word_size)
        mean = expand({"mean": memory["mean"]}, len(words))["mean"]  # v̄, (N, h)
        inputs = torch.cat([state["h2"], mean, e], 1)
        h1, c1 = self.attention_lstm(inputs, (state["h1"], state["c1"]))  # Eq. 10

        query = per_image(self.hidden_attention(h1), memory).unsqueeze(2)  # W_ha h¹, (B, K, 1, a)
        z = self.attention_score(torch.tanh(memory["keys"].unsqueeze(1) + query)).squeeze(3)  # Eq. 12, (B, K, n)
        beta = masked_softmax(z, memory["mask"].unsqueeze(1))  # Eq. 11
        attended = (beta @ memory["regions"]).flatten(0, 1)  # v̂ of Eq. 11, (N, h)

        h2, c2 = self.language_lstm(torch.cat([attended, h1], 1), (state["h2"], state["c2"]))  # Eq. 13
        return {"h1": h1, "c1": c1, "h2": h2, "c2": c2}, beta.flatten(0, 1)

    def _embed_regions(self, raw: Tensor, mask: Tensor) -> Tensor:
        """V′ (B, n, h); the statistics of batch norms are those of real regions alone."""
        if self.region_norm is None:
            return self._activate(self.region_embedding(raw))  # Eq. 9
        rows = self._activate(self.region_embedding(self.region_norm(raw[mask])))  # Eq. 9
        if self.embedded_norm is not None:
            rows = self.embedded_norm(rows)
        regions = rows.new_zeros(*mask.shape, rows.shape[-1])
        regions[mask] = rows
        return regions

    def _activate(self, embedded: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(embedded.relu() if self.config.relu else embedded)
        return dropped
