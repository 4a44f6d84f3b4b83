"""Up-Down, the captioner of "More Grounded Image Captioning by Distilling Image-Text Matching Model", section 3.2.

Two LSTMs: the first reads the last word and decides where to look, the second reads what was seen there and says the
next word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.models.attention import masked_mean, masked_softmax
from sightline.models.batch_norm import BatchNorm
from sightline.models.blocked_scores import blocked_scores
from sightline.models.captioner import Captioner, Memory, State, Trace, expand
from sightline.models.checks import check_config
from sightline.models.loop_weights import LoopWeights
from sightline.models.packed_captions import ActiveRows, PackedCaptions
from sightline.models.recurrent import lstm_step


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
        """Refuse what makes no model."""
        check_config(self)

    def build(self, vocab_size: int) -> UpDown:
        """The model for a vocabulary of `words` ids."""
        return UpDown(self, vocab_size)


class _Weights(NamedTuple):
    first: LoopWeights
    second: LoopWeights


class UpDown(Captioner):
    """Up-Down [section 3.2]; the trace's `regions` are β (Eq. 11).

    The input of `attention_lstm` is [h²; v̄; e′], that of `language_lstm` [v̂; h¹]. What an image adds to the gates of
    LSTM 1 is computed once in `encode`, what words add once for all of them; the loop has only what depends on h.
    """

    needs = ("regions",)

    def __init__(self, config: UpDownConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        width, hidden = config.region_width, config.hidden_size
        self.word_embedding = nn.Embedding(vocab_size, config.word_size)
        self.region_embedding = nn.Linear(width, hidden)
        self.mean_embedding = nn.Linear(width, hidden) if config.mean_of == "raw" else None
        self.region_norm = BatchNorm(width) if config.batch_norm else None
        self.embedded_norm = BatchNorm(hidden) if config.batch_norm == 2 else None
        self.attention_lstm = nn.LSTMCell(2 * hidden + config.word_size, hidden)
        self.region_attention = nn.Linear(hidden, config.attention_size)
        self.hidden_attention = nn.Linear(hidden, config.attention_size)
        self.attention_score = nn.Linear(config.attention_size, 1)
        self.language_lstm = nn.LSTMCell(2 * hidden, hidden)
        self.output = nn.Linear(hidden, vocab_size)
        self.dropout = nn.Dropout(config.dropout)

    def encode(self, scenes: SceneBatch) -> Memory:
        """Embedded regions, their part in the attention, and the image's part in the gates of LSTM 1."""
        raw = scenes.part("regions", by="Up-Down", width=self.config.region_width)  # (B, n, region_width)
        mask = scenes.mask("regions")
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
        gates = next(self._word_gates([words]))
        state, _ = self._cell(gates, memory, state, self._weights(), ActiveRows())
        return self.dropout(state["h2"]), state

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        """Read all words; training on a CPU leaves out what comes after captions: hidden is 0 there."""
        reading = PackedCaptions(words, memory, to_end=self.training and words.device.type == "cpu")
        state, weights = expand(self.start(memory), len(words)), self._weights()
        hidden, attention = [], []
        for gates, rows in zip(self._word_gates(reading.words), reading.rows, strict=True):
            state, attended = self._cell(gates, memory, rows.of(state), weights, rows)
            hidden.append(self.dropout(state["h2"]))
            attention.append(attended)
        return reading.join(hidden), Trace(regions=reading.join(attention))

    def predict(self, hidden: Tensor) -> Tensor:
        """Scores of the next word."""
        scores: Tensor = self.output(hidden)  # Eq. 14
        return scores

    def output_bias(self) -> nn.Parameter:
        """That of the output layer."""
        return self.output.bias

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

    def _word_gates(self, steps: Sequence[Tensor]) -> Iterator[Tensor]:
        """For each step's words (n,), their part (n, 4h) in the gates of LSTM 1, computed for all steps at once."""
        words, counts = torch.cat(list(steps)), [len(step) for step in steps]
        weight = self.attention_lstm.weight_ih[:, 2 * self.config.hidden_size :]
        if self.training or words.device.type != "cpu":
            gates = F.linear(self._activate(self.word_embedding(words)), weight)  # W e′ of Eq. 10
            yield from torch.split(gates, counts)
            return
        distinct, places = torch.unique(words, return_inverse=True)  # captions say few different words
        gates = F.linear(self._activate(self.word_embedding(distinct)), weight)
        for place in torch.split(places, counts):
            yield gates.index_select(0, place)

    def _weights(self) -> _Weights:
        """The matrices of both LSTMs, one for each of their inputs that change with the words."""
        hidden, first, second = self.config.hidden_size, self.attention_lstm, self.language_lstm
        return _Weights(
            LoopWeights(first.weight_ih[:, :hidden], first.weight_hh),
            LoopWeights(second.weight_ih, second.weight_hh, bias=second.bias_ih + second.bias_hh),
        )

    def _cell(
        self, gates: Tensor, memory: Memory, state: State, weights: _Weights, rows: ActiveRows
    ) -> tuple[State, Tensor]:
        """One step from what words add to the gates of LSTM 1 (n, 4h): the new state, and β (n, regions)."""
        gates = rows.plus_image(gates, memory, "gates")
        gates = weights.first.plus(gates, state["h2"], state["h1"])
        h1, c1 = lstm_step(gates, state["c1"])  # Eq. 10

        query = rows.per_image(F.linear(h1, self.hidden_attention.weight), memory)  # (B, K, a)
        scores = self._scores(memory["keys"], query)  # Eq. 12
        attended = masked_softmax(scores, memory["mask"].unsqueeze(1))  # (B, K, regions), Eq. 11
        seen = rows.flat(attended @ memory["regions"])  # (n, h), Eq. 11

        gates = weights.second.times(torch.cat([seen, h1], 1), state["h2"])
        h2, c2 = lstm_step(gates, state["c2"])  # Eq. 13
        return {"h1": h1, "c1": c1, "h2": h2, "c2": c2}, rows.flat(attended)

    def _scores(self, keys: Tensor, query: Tensor) -> Tensor:
        """(B, n, a) and (B, K, a) to z (B, K, n)."""
        if keys.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
            weight, bias = self.attention_score.weight.squeeze(0), self.attention_score.bias
            return blocked_scores(keys, query, weight) + bias  # Eq. 12
        sums = keys.unsqueeze(1) + query.unsqueeze(2)  # (B, K, n, a)
        scores: Tensor = self.attention_score(sums.tanh_())  # Eq. 12
        return scores.squeeze(-1)
