"""R²M: recurrent relational memory, for captions learned without image-caption pairs.

Guo, Wang, Song and Wang, "Recurrent Relational Memory Network for Unsupervised Image Captioning", IJCAI 2020. The file
follows sections 2.1-2.3: the fusion memory FM (Eq. 1-4), the recurrent memory RM (Eq. 5-7), and the model that encodes
concepts, speaks (Eq. 8) and rebuilds the concepts from what it said (Eq. 9). A step t reads w_{t-1} and predicts w_t.
At the end are the parts that Table 2 puts in the place of the memories. `r2m_fast.py` computes RM sooner, and is what
`R2MConfig.build` makes.

Settled here where the paper leaves it open: λ1 = λ2 = d_k; v has unit length; concepts and words share one embedding,
and W_d is a matrix of its own with a bias; module ψ adds M_{t-1} to what was attended; b_f starts at 1 and b_i at 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.config import check_config
from sightline.errors import ConfigError, DataError
from sightline.models.captioner import Captioner, Memory, State, Trace, per_image
from sightline.models.layers import LSTM


@dataclass(frozen=True)
class R2MConfig:
    """The sizes of section 3.2 and the choices of Table 2."""

    kind: Literal["r2m"] = "r2m"

    # d: concept vector, word embedding, LSTM and memories are all this wide, since [v; w] and [M; f] stack them.
    hidden_size: int = 512
    heads: int = 2  # H; each head is d_k = d_v = d / H wide, so that the heads together are as wide as the memory

    # Width of the global image vector that the matching loss (Eq. 12) compares with (1536 for Inception-v4).
    vector_width: int = 2048

    # In training, on v as the decoder reads it. v itself is whole, since L_rec rebuilds it; with `released_code`
    # dropout is on input and output of the encoder, and so in v.
    dropout: float = 0.2

    # Whether f_t comes from FM; false is "D w/o FM", a linear layer on v and w in place of Eq. 1-4.
    fusion: bool = True
    decoder: Literal["rm", "lstm"] = "rm"  # the unit that reads f_t; `lstm` is the paper's "D w/o Memory in RM"
    reconstructor: Literal["rm", "lstm"] = "rm"  # the unit that reads M^d_t; `lstm` is "R w/o Memory in RM"
    # As the authors' code: bias and LayerNorm on the joint query, key and value, λ = 2·d_k + d_v; dropout on v; and a
    # frozen random image projection.
    released_code: bool = False

    def __post_init__(self) -> None:
        check_config(self)
        if self.hidden_size % self.heads:
            what = f"`hidden_size` {self.hidden_size} cannot be shared by {self.heads} heads"
            raise ConfigError(what, fix="make `hidden_size` a multiple of `heads`")

    def build(self, vocab_size: int) -> R2M:
        from sightline.models.r2m_fast import FastR2M  # which is built upon this file

        return FastR2M(self, vocab_size)


class MultiHeadAttention(nn.Module):
    """The query, key and value transformers of all H heads as one product, and the attention between them."""

    def __init__(self, config: R2MConfig) -> None:
        super().__init__()
        size, released = config.hidden_size, config.released_code
        self.heads = config.heads
        self.qkv = nn.Linear(size, 3 * size, bias=released)
        self.norm = nn.LayerNorm(3 * size) if released else nn.Identity()
        head_size = size // self.heads
        self.root = math.sqrt(3 * head_size if released else head_size)  # √λ

    def project(self, x: Tensor) -> Tensor:
        """(…, d) to its query, key and value: (…, 3, H, d_k)."""
        projected: Tensor = self.norm(self.qkv(x)).unflatten(-1, (3, self.heads, -1))
        return projected

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """Queries (…, m, d_k) and keys (…, n, d_k) to (…, m, n): what each query draws from each key, rows of sum 1."""
        return (query @ key.mT / self.root).softmax(-1)


class FusionMemory(nn.Module):
    """Relation learning I, FM: the concepts v and the previous word w_{t-1} fused to f_t, Eq. 1-4.

    FM depends on no memory, so a whole caption is fused at once. The authors' code stacks [w; v]; attention does not
    know an order, so that only swaps the two halves of FC's columns, and the rows here are always the paper's.
    """

    def __init__(self, config: R2MConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config)
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size)

    def project(self, x: Tensor) -> Tensor:
        """One row of x_t, v or w_{t-1} (…, d), as its x·U_q, x·U_k and x·U_v: (…, 3, H, d_k)."""
        return self.attention.project(x)

    def forward(self, concepts: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """The projected rows of v (broadcast) and w_{t-1} (…, 3, H, d_k) to f_t (…, d) and Eq. 1's A (…, H, 2, 2).

        A reads as printed, [[v→v, w→v], [v→w, w→w]]: row i is what v (0) or w (1) takes in, and sums to one.
        """
        v_query, v_key, v_value = concepts.unbind(-3)
        w_query, w_key, w_value = words.unbind(-3)
        query = stack_rows(v_query, w_query)  # x_t U_q of x_t = [v; w_{t-1}]: (…, H, 2, d_k)
        key = stack_rows(v_key, w_key)  # x_t U_k
        value = stack_rows(v_value, w_value)  # x_t U_v
        weights = self.attention.weights(query, key)  # Eq. 1  (…, H, 2, 2)
        attended = weights @ value  # Eq. 2  (…, H, 2, d_v)
        joined = attended.transpose(-3, -2).flatten(-2)  # Eq. 3  (…, 2, H·d_v)
        return self.fc(joined.flatten(-2)), weights  # Eq. 4  (…, d)


class RecurrentMemory(nn.Module):
    """Relation learning II, RM: M_t = RM(M_{t-1}, f_t), Eq. 5-7."""

    def __init__(self, config: R2MConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.attention = MultiHeadAttention(config)  # W_q, W_k, W_v
        self.attended_norm = nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size))
        self.gain_norm = nn.LayerNorm(size)
        self.input_gates = nn.Linear(size, 2 * size)  # W_i, W_f and b_i, b_f
        self.memory_gates = nn.Linear(size, 2 * size, bias=False)  # U_i, U_f
        nn.init.zeros_(self.input_gates.bias[:size])
        nn.init.ones_(self.input_gates.bias[size:])

    def update(self, memory: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """M_{t-1} and f_t (N, d) to M_t (N, d) and the weights [M→M, f→M] (N, H, 2) of Eq. 5."""
        rows = self.attention.project(stack_rows(memory, f))  # of [M_{t-1}; f_t]: (N, 2, 3, H, d_k)
        query, key, value = rows.transpose(1, 3).unbind(2)  # (N, H, 2, d_k)
        weights = self.attention.weights(query[:, :, :1], key)  # Eq. 5, the query is M's: (N, H, 1, 2)
        attended = (weights @ value).flatten(1)  # Eq. 6  (N, H·d_v)

        gain = self.attended_norm(memory + attended)  # module ψ: two residual connections, an MLP and layer norms
        gain = self.gain_norm(gain + self.mlp(gain))

        gates = torch.sigmoid(self.input_gates(f) + self.memory_gates(memory.tanh()))  # Eq. 7, lines 1 and 2
        g_i, g_f = gates.chunk(2, -1)
        return g_i * gain.tanh() + g_f * memory, weights.squeeze(2)  # Eq. 7, line 3

    def start(self, like: Tensor) -> State:
        """M_0 = 0, rows and width as `like` (N, d)."""
        return {"memory": torch.zeros_like(like)}

    def step(self, f: Tensor, state: State) -> tuple[Tensor, State]:
        """One step over f_t (N, d): M_t (N, d) and the new state."""
        memory, _ = self.update(state["memory"], f)
        return memory, {"memory": memory}

    def forward(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """All steps over f (N, T, d): M (N, T, d) and the weights (N, T, H, 2) of Eq. 5."""
        memory = torch.zeros_like(f[:, 0])  # M_0 = 0
        memories, weights = [], []
        for f_t in f.unbind(1):
            memory, weight = self.update(memory, f_t)
            memories.append(memory)
            weights.append(weight)
        return torch.stack(memories, 1), torch.stack(weights, 1)


class R2M(Captioner):
    """R²M: encoder, decoder and reconstructor.

    `log_prob` is the likelihood of Eq. 10. The losses of Eq. 11-13 compare v, `encode(scenes)["concepts"]`, with ṽ,
    `reconstruct(output.hidden, lengths)`, and ṽ with v̂, `image_vector(scenes)`.
    """

    needs = ("concepts",)
    recurrent_memory: type[RecurrentMemory] = RecurrentMemory

    def __init__(self, config: R2MConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        size = config.hidden_size
        self.embedding = nn.Embedding(vocab_size, size)
        self.encoder = slow_to_forget_lstm(size)
        self.dropout = nn.Dropout(config.dropout)
        self.fusion = FusionMemory(config) if config.fusion else LinearFusion(size)
        self.decoder = self.recurrent_memory(config) if config.decoder == "rm" else LSTMMemory(size)
        self.output = nn.Linear(size, vocab_size)  # W_d of Eq. 8; the softmax is the contract's
        self.reconstructor = self.recurrent_memory(config) if config.reconstructor == "rm" else LSTMMemory(size)
        self.image = nn.Linear(config.vector_width, size).requires_grad_(not config.released_code)
        nn.init.uniform_(self.embedding.weight, -0.08, 0.08)
        nn.init.uniform_(self.output.weight, -0.08, 0.08)
        nn.init.zeros_(self.output.bias)

    def encode(self, scenes: SceneBatch) -> Memory:
        """Section 2.1: an LSTM over the concepts in their given order; v (B, d) is its last state, of unit length."""
        concepts, mask = scenes.part("concepts", by="R²M"), scenes.mask("concepts")
        if not (self.training and mask.is_cuda):  # asking waits for a GPU, and training leaves such images out
            _refuse_without_concepts(scenes.ids, mask)
        order = (~mask).byte().argsort(dim=1, stable=True)  # real concepts first, wherever the gaps are
        embedded, ends = self.embedding(concepts.gather(1, order)), mask.sum(1) - 1
        if self.config.released_code:
            v = F.normalize(self.dropout(at(self.encoder(self.dropout(embedded))[0], ends)), dim=-1)
            return {"concepts": v, "projected": self.fusion.project(v)}
        v = F.normalize(at(self.encoder(embedded)[0], ends), dim=-1)
        return {"concepts": v, "projected": self.fusion.project(self.dropout(v))}

    def start(self, memory: Memory) -> State:
        return self.decoder.start(memory["concepts"])

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        """Eq. 1-7 for one step: M_t (N, d)."""
        f, _ = self._fuse(memory, words[:, None])
        return self.decoder.step(f[:, 0], state)

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        """Eq. 1-7 for all steps: M (N, T, d).

        Gates of the trace: `fusion` (N, T, 2, 2), Eq. 1's matrix, mean over heads; `memory` (N, T, H, 2), Eq. 5's
        [M→M, f→M]. An ablated part has none.
        """
        f, fusion_weights = self._fuse(memory, words)
        hidden, memory_weights = self.decoder(f)
        gates = {}
        if fusion_weights is not None:
            gates["fusion"] = fusion_weights.mean(2)
        if memory_weights is not None:
            gates["memory"] = memory_weights
        return hidden, Trace(gates=gates)

    def reconstruct(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """Section 2.3: the concepts ṽ (N, d) rebuilt from M^d (N, T, d), not normalised.

        `lengths` (N,) from 1 to T counts each caption's predictions, END included; an unfinished caption has T.
        """
        memories, _ = self.reconstructor(hidden)  # Eq. 9
        return at(memories, lengths - 1)

    def image_vector(self, scenes: SceneBatch) -> Tensor:
        """v̂ (B, d) of Eq. 12: the global image vector, projected, of unit length."""
        vector = scenes.part("vector", by="R²M's matching loss", width=self.config.vector_width)
        return F.normalize(self.image(vector), dim=-1)

    def _fuse(self, memory: Memory, words: Tensor) -> tuple[Tensor, Tensor | None]:
        """Words (N, T) to f (N, T, d) and FM's weights (N, T, H, 2, 2)."""
        projected = per_image(self.fusion.project(self.embedding(words)), memory)  # (B, K, T, …)
        f, weights = self.fusion(memory["projected"][:, None, None], projected)
        return f.flatten(0, 1), None if weights is None else weights.flatten(0, 1)


def _refuse_without_concepts(ids: Sequence[str], mask: Tensor) -> None:
    missing = ~mask.any(1)
    if missing.any():
        what = "R²M speaks from concepts, and this image has none that its vocabulary knows"
        fix = "leave such images out, as the paper's training does, or keep concepts of a lower score"
        raise DataError(what, where=f"image {ids[int(missing.nonzero()[0])]}", fix=fix)


def stack_rows(first: Tensor, second: Tensor) -> Tensor:
    """The paper's row-wise concatenation [first; second]: (…, 2, d) of second (…, d) and first, broadcast to it."""
    return torch.stack([first.expand_as(second), second], -2)


def at(states: Tensor, steps: Tensor) -> Tensor:
    """(N, T, d) and a step for each row (N,) to (N, d)."""
    return states.gather(1, steps[:, None, None].expand(-1, 1, states.shape[-1])).squeeze(1)


class LinearFusion(nn.Module):
    """In the place of `FusionMemory` ("D w/o FM"): f_t is a linear layer on the concatenation of v and w_{t-1}."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * size, size)

    def project(self, x: Tensor) -> Tensor:
        """(…, d), as it is: nothing of the layer can be computed for one row alone."""
        return x

    def forward(self, concepts: Tensor, words: Tensor) -> tuple[Tensor, None]:
        """v (broadcast) and w_{t-1} (…, d) to f_t (…, d); there is no attention."""
        return self.fc(torch.cat([concepts.expand_as(words), words], -1)), None


class LSTMMemory(nn.Module):
    """In the place of `RecurrentMemory` ("w/o Memory in RM"): an LSTM, called the same way."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.lstm = slow_to_forget_lstm(size)

    def start(self, like: Tensor) -> State:
        """The state before the first step, rows and width as `like` (N, d)."""
        return {"hidden": torch.zeros_like(like), "cell": torch.zeros_like(like)}

    def step(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """One step over inputs (N, d): the output (N, d) and the new state."""
        outputs, (hidden, cell) = self.lstm(inputs[:, None], (state["hidden"][None], state["cell"][None]))
        return outputs[:, 0], {"hidden": hidden[0], "cell": cell[0]}

    def forward(self, inputs: Tensor) -> tuple[Tensor, None]:
        """All steps over inputs (N, T, d): outputs (N, T, d); there is no attention."""
        return self.lstm(inputs)[0], None


def slow_to_forget_lstm(size: int) -> LSTM:
    """An LSTM whose biases start at 0, the forget gate's at 1: it remembers until it has learned to forget."""
    lstm = LSTM(size, size, batch_first=True)
    _, _, input_bias, hidden_bias = lstm.all_weights[0]
    nn.init.zeros_(input_bias)
    nn.init.zeros_(hidden_bias)
    nn.init.ones_(input_bias[size : 2 * size])  # PyTorch's order: input, forget, cell, output
    return lstm
