"""Up-Down, the captioner of "More Grounded Image Captioning by Distilling Image-Text Matching Model", section 3.2.

Two LSTMs: the first reads the last word and decides where to look, the second reads what was seen there and says the
next word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.errors import ConfigError
from sightline.models.attention import masked_mean, masked_softmax
from sightline.models.captioner import Captioner, Memory, State, Trace, expand, per_image

BLOCK = 1 << 21  # numbers of a CPU's (B, K, n, a) attention that exist at the same time, so that caches hold them


@dataclass(frozen=True)
class UpDownConfig:
    """The sizes and choices of Up-Down. The defaults are the paper's for Flickr30k; COCO has `hidden_size` 1024."""

    kind: Literal["updown"] = "updown"

    region_width: int = 2048
    """Numbers that describe a region."""

    word_size: int = 512
    """Width of the word embeddings."""

    hidden_size: int = 512
    """Width of both LSTMs and of the embedded regions."""

    attention_size: int = 512
    """Width of the space in which LSTM 1 meets the regions."""

    dropout: float = 0.5
    """On embedded words, embedded regions and the output of LSTM 2."""

    mean_of: Literal["embedded", "raw"] = "embedded"
    """What LSTM 1 sees of the whole image: the mean of the embedded regions (the paper), or an embedding of its own of
    the mean of the raw ones (the released code)."""

    relu: bool = True
    """Follow each embedding by a ReLU, as the released code does; the paper's are linear."""

    batch_norm: Literal[0, 1, 2] = 0
    """Normalise the regions before (1), or before and after (2), they are embedded."""

    def __post_init__(self) -> None:
        """Refuse sizes and rates that make no model."""
        for name in ("region_width", "word_size", "hidden_size", "attention_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"`{name}` is {getattr(self, name)}", fix="give a whole number of at least 1")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"`dropout` is {self.dropout}", fix="give a number from 0 up to, not including, 1")
        for name, choices in (("mean_of", ("embedded", "raw")), ("batch_norm", (0, 1, 2))):
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"`{name}` is {getattr(self, name)!r}", fix=f"choose one of {', '.join(map(str, choices))}"
                )

    def build(self, words: int) -> UpDown:
        """The model for a vocabulary of `words` ids."""
        return UpDown(self, words)


class UpDown(Captioner):
    """Up-Down [section 3.2]; the trace's `regions` are β (Eq. 11).

    The input of `attention_lstm` is [h²; v̄; e′], that of `language_lstm` [v̂; h¹]. What an image adds to the gates of
    LSTM 1 is computed once in `encode`, what words add once for all of them; the loop has only what depends on h.
    """

    needs = ("regions",)

    def __init__(self, config: UpDownConfig, words: int) -> None:
        super().__init__()
        self.config, self.words = config, words
        width, hidden = config.region_width, config.hidden_size
        self.word_embedding = nn.Embedding(words, config.word_size)
        self.region_embedding = nn.Linear(width, hidden)
        self.mean_embedding = nn.Linear(width, hidden) if config.mean_of == "raw" else None
        self.region_norm = nn.BatchNorm1d(width) if config.batch_norm else None
        self.embedded_norm = nn.BatchNorm1d(hidden) if config.batch_norm == 2 else None
        self.attention_lstm = nn.LSTMCell(2 * hidden + config.word_size, hidden)
        self.region_attention = nn.Linear(hidden, config.attention_size)
        self.hidden_attention = nn.Linear(hidden, config.attention_size)
        self.attention_score = nn.Linear(config.attention_size, 1)
        self.language_lstm = nn.LSTMCell(2 * hidden, hidden)
        self.output = nn.Linear(hidden, words)
        self.dropout = nn.Dropout(config.dropout)

    def encode(self, scenes: SceneBatch) -> Memory:
        """Embedded regions, their part in the attention, and the image's part in the gates of LSTM 1."""
        raw = scenes.part("regions", by="Up-Down")  # (B, n, region_width)
        mask = scenes.region_mask if scenes.region_mask is not None else raw.new_ones(raw.shape[:2], dtype=torch.bool)
        regions = self._embed_regions(raw, mask)  # (B, n, h)
        if self.mean_embedding is None:
            mean = masked_mean(regions, mask)  # (B, h), v̄ of Eq. 10
        else:
            mean = self._activate(self.mean_embedding(masked_mean(raw, mask)))
        lstm, hidden = self.attention_lstm, self.config.hidden_size
        return {
            "regions": regions,
            "mask": mask,
            "keys": F.linear(  # (B, n, a), W_va v′ of Eq. 12
                regions, self.region_attention.weight, self.region_attention.bias + self.hidden_attention.bias
            ),
            "gates": F.linear(mean, lstm.weight_ih[:, hidden : 2 * hidden], lstm.bias_ih + lstm.bias_hh),  # (B, 4h)
        }

    def start(self, memory: Memory) -> State:
        """Zeros."""
        zeros = memory["gates"].new_zeros(len(memory["gates"]), self.config.hidden_size)
        return {"h1": zeros, "c1": zeros, "h2": zeros, "c2": zeros}

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        """Read one word of each hypothesis."""
        gates = next(self._word_gates(words.unsqueeze(0)))
        state, _ = self._cell(gates, memory, state)
        return self.dropout(state["h2"]), state

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        """Read all words."""
        state = expand(self.start(memory), len(words))
        hidden, attention = [], []
        for gates in self._word_gates(words.T):
            state, weights = self._cell(gates, memory, state)
            hidden.append(state["h2"])
            attention.append(weights)
        return self.dropout(torch.stack(hidden, 1)), Trace(regions=torch.stack(attention, 1))

    def predict(self, hidden: Tensor) -> Tensor:
        """Scores of the next word."""
        scores: Tensor = self.output(hidden)  # Eq. 14
        return scores

    def _embed_regions(self, raw: Tensor, mask: Tensor) -> Tensor:
        if self.region_norm is None:
            return self._activate(self.region_embedding(raw))  # Eq. 9
        real = self._activate(self.region_embedding(self.region_norm(raw[mask])))  # Eq. 9
        if self.embedded_norm is not None:
            real = self.embedded_norm(real)
        regions = real.new_zeros(*mask.shape, real.shape[-1])
        regions[mask] = real
        return regions

    def _activate(self, embedded: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(embedded.relu() if self.config.relu else embedded)
        return dropped

    def _word_gates(self, words: Tensor) -> Iterator[Tensor]:
        """For each step of words (T, N), their part (N, 4h) in the gates of LSTM 1, computed for all steps at once."""
        weight = self.attention_lstm.weight_ih[:, 2 * self.config.hidden_size :]
        if self.training or words.device.type != "cpu":
            yield from F.linear(self._activate(self.word_embedding(words)), weight).unbind(0)  # W e′ of Eq. 10
            return
        distinct, places = torch.unique(words, return_inverse=True)  # captions say few different words
        gates = F.linear(self._activate(self.word_embedding(distinct)), weight)
        for place in places.unbind(0):
            yield gates.index_select(0, place)

    def _cell(self, word_gates: Tensor, memory: Memory, state: State) -> tuple[State, Tensor]:
        """One step from the words' gates (N, 4h): the new state, and β (N, n)."""
        hidden = self.config.hidden_size
        first, second = self.attention_lstm, self.language_lstm
        gates = _plus_image(word_gates, memory)
        gates = _plus(gates, state["h2"], first.weight_ih[:, :hidden])
        gates = _plus(gates, state["h1"], first.weight_hh)
        h1, c1 = _lstm(gates, state["c1"])  # Eq. 10

        query = per_image(F.linear(h1, self.hidden_attention.weight), memory)  # (B, K, a)
        scores = self._scores(memory["keys"], query)  # Eq. 12
        weights = masked_softmax(scores, memory["mask"].unsqueeze(1))  # (B, K, n), Eq. 11
        seen = (weights @ memory["regions"]).flatten(0, 1)  # (N, h), Eq. 11

        gates = F.linear(seen, second.weight_ih[:, :hidden], second.bias_ih + second.bias_hh)
        gates = _plus(gates, h1, second.weight_ih[:, hidden:])
        gates = _plus(gates, state["h2"], second.weight_hh)
        h2, c2 = _lstm(gates, state["c2"])  # Eq. 13
        return {"h1": h1, "c1": c1, "h2": h2, "c2": c2}, weights.flatten(0, 1)

    def _scores(self, keys: Tensor, query: Tensor) -> Tensor:
        """(B, n, a) and (B, K, a) to z (B, K, n)."""
        if keys.device.type != "cpu" or torch.is_grad_enabled():
            return self._score(keys.unsqueeze(1) + query.unsqueeze(2))
        size = max(1, BLOCK // max(1, query.shape[1] * keys.shape[1] * keys.shape[2]))
        room = keys.new_empty(min(size, len(keys)), query.shape[1], *keys.shape[1:])
        blocks = zip(torch.split(keys, size), torch.split(query, size), strict=True)
        return torch.cat(
            [self._score(torch.add(k.unsqueeze(1), q.unsqueeze(2), out=room[: len(k)])) for k, q in blocks]
        )

    def _score(self, sums: Tensor) -> Tensor:
        """(B, K, n, a) to (B, K, n)."""
        scores: Tensor = self.attention_score(sums.tanh_())  # Eq. 12
        return scores.squeeze(-1)


# A large beam waits for new memory as long as for arithmetic, so without gradients these work in place.


def _plus_image(gates: Tensor, memory: Memory) -> Tensor:
    """Gates (N, 4h) and each image's part in them."""
    rows, image = per_image(gates, memory), memory["gates"].unsqueeze(1)
    return (rows + image if torch.is_grad_enabled() else rows.add_(image)).flatten(0, 1)


def _plus(gates: Tensor, inputs: Tensor, weight: Tensor) -> Tensor:
    """Gates (N, 4h) and the part of `inputs` in them."""
    if torch.is_grad_enabled() or torch.is_autocast_enabled(gates.device.type):
        return torch.addmm(gates, inputs, weight.T)
    return gates.addmm_(inputs, weight.T)


def _lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The LSTM after its matrices: gates (N, 4h) in PyTorch's order and the old cell to the new h and cell."""
    i, f, g, o = gates.chunk(4, 1)
    if torch.is_grad_enabled():
        cell = torch.addcmul(f.sigmoid() * cell, i.sigmoid(), g.tanh())
        return o.sigmoid() * cell.tanh(), cell
    cell = (f.sigmoid_() * cell).addcmul_(i.sigmoid_(), g.tanh_())
    return cell.tanh().mul_(o.sigmoid_()), cell
