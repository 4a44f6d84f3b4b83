"""The transformer decoder of Sim-Trans and JRAN-Trans: words attend to the words before them and to the image.

It is fairseq's decoder (Vaswani et al., 2017, section 3, with fairseq's defaults) over an image's rows instead of an
encoder's output. What differs from fairseq's captioning recipe: it reads and says words, not BPE pieces; a caption
begins with START at position 0, where fairseq begins with END at position 2; and the keys and values of an image are
computed once and shared by all of its hypotheses, where fairseq copies the image for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.errors import ConfigError
from sightline.models.attention import masked_softmax
from sightline.models.captioner import Captioner, Memory, State, Trace, per_image
from sightline.models.checks import check_config
from sightline.text.vocabulary import PAD

KeysValues = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes of a transformer decoder; the defaults are fairseq's `simplistic-captioning-arch`."""

    kind: str = ""
    """The model it belongs to."""
    region_width: int = 2048
    """Numbers a region feature has."""
    hidden_size: int = 512
    """Width d of words, image rows and everything between."""
    layers: int = 6
    """Decoder layers."""
    heads: int = 8
    """Attention heads; each has hidden_size / heads channels."""
    ffn_size: int = 2048
    """Width inside the feed-forward networks."""
    dropout: float = 0.3
    """On the embedded words and on what every sublayer adds."""
    pre_norm: bool = False
    """Normalise before each sublayer (and once at the end) instead of after each sum."""

    def __post_init__(self) -> None:
        check_config(self)
        if self.hidden_size < 4 or self.hidden_size % 2 or self.hidden_size % self.heads:
            raise ConfigError(
                f"`hidden_size` is {self.hidden_size} with {self.heads} heads",
                fix="give an even number of at least 4 that `heads` divides",
            )


def positions(first: int, count: int, size: int, device: torch.device) -> Tensor:
    """(count, size) of the places first, first + 1, …: sines, then cosines, wavelengths from 2π to 10,000 · 2π.

    fairseq's layout and frequencies, 10000^(-i / (size/2 - 1)); Vaswani et al. interleave sines and cosines.
    """
    half = size // 2
    frequencies = torch.exp(torch.arange(half, device=device) * (-math.log(10000) / (half - 1)))
    angles = torch.arange(first, first + count, device=device)[:, None] * frequencies  # (count, size / 2)
    return torch.cat([angles.sin(), angles.cos()], 1)


def _linear(inputs: int, outputs: int, gain: float = 1.0) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class MultiHeadAttention(nn.Module):
    """softmax(Q Kᵀ / √d_h) V in `heads` parts of d_h channels (Vaswani et al., 2017, section 3.2)."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = _linear(size, size, gain=2**-0.5)  # as the stacked matrix of all three would get it
        self.key = _linear(size, size, gain=2**-0.5)
        self.value = _linear(size, size, gain=2**-0.5)
        self.output = _linear(size, size)

    def keys_values(self, rows: Tensor) -> KeysValues:
        """What rows (B, n, d) offer to be attended to: two (B, h, n, d_h)."""
        return self._split(self.key(rows)), self._split(self.value(rows))

    def forward(self, rows: Tensor, offered: KeysValues, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """(B, m, d): each of rows (B, m, d) attends to the `offered` keys where `mask` is True."""
        queries = self._split(self.query(rows))
        return self._join(F.scaled_dot_product_attention(queries, *offered, attn_mask=mask, is_causal=causal))

    def weighed(self, rows: Tensor, offered: KeysValues, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The same with the weights, their mean over the heads: (B, m, d) and (B, m, n)."""
        keys, values = offered
        queries = self._split(self.query(rows)) / math.sqrt(keys.shape[-1])
        weights = masked_softmax(queries @ keys.transpose(-1, -2), mask)  # (B, h, m, n)
        return self._join(weights.to(values.dtype) @ values), weights.mean(1)

    def _split(self, rows: Tensor) -> Tensor:
        return rows.view(*rows.shape[:2], self.heads, rows.shape[2] // self.heads).transpose(1, 2)  # (B, h, m, d_h)

    def _join(self, parts: Tensor) -> Tensor:
        joined: Tensor = self.output(parts.transpose(1, 2).flatten(2))
        return joined


class DecoderLayer(nn.Module):
    """Self-attention over earlier words, attention over the image, feed-forward; each added to its input."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.pre_norm = config.pre_norm
        self.self_attention = MultiHeadAttention(size, config.heads)
        self.self_norm = nn.LayerNorm(size)
        self.cross_attention = MultiHeadAttention(size, config.heads)
        self.cross_norm = nn.LayerNorm(size)
        self.feed_forward = nn.Sequential(_linear(size, config.ffn_size), nn.ReLU(), _linear(config.ffn_size, size))
        self.feed_norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, rows: Tensor, image: KeysValues, mask: Tensor, past: KeysValues | None = None, *, weigh: bool = False
    ) -> tuple[Tensor, KeysValues, Tensor | None]:
        """Read T words of each hypothesis after those whose keys and values are `past`.

        Args:
            rows: (N, T, d); with a past T is 1.
            image: (B, h, n, d_h) keys and values of the image; N is B·K, and the K hypotheses attend in one product.
            mask: (B, 1, 1, n).
            past: (N, h, t, d_h) keys and values of earlier words.
            weigh: whether the weights over the image are wanted.

        Returns:
            Rows (N, T, d), keys and values (N, h, t + T, d_h) of the words, weights (N, T, n) or None.
        """
        inner = self._before(self.self_norm, rows)
        words = self.self_attention.keys_values(inner)
        if past is not None:
            words = torch.cat([past[0], words[0]], 2), torch.cat([past[1], words[1]], 2)
        rows = self._after(self.self_norm, rows, self.self_attention(inner, words, causal=past is None))

        inner = self._before(self.cross_norm, rows).reshape(len(image[0]), -1, rows.shape[-1])  # (B, K·T, d)
        if weigh:
            found, weights = self.cross_attention.weighed(inner, image, mask)
            weights = weights.reshape(*rows.shape[:2], weights.shape[2])
        else:
            found, weights = self.cross_attention(inner, image, mask), None
        rows = self._after(self.cross_norm, rows, found.view_as(rows))

        inner = self._before(self.feed_norm, rows)
        return self._after(self.feed_norm, rows, self.feed_forward(inner)), words, weights

    def _before(self, norm: nn.Module, rows: Tensor) -> Tensor:
        return norm(rows) if self.pre_norm else rows

    def _after(self, norm: nn.Module, rows: Tensor, change: Tensor) -> Tensor:
        rows = rows + self.dropout(change)
        return rows if self.pre_norm else norm(rows)


class TransformerCaptioner(Captioner):
    """A captioner whose decoder is a transformer; a model of it says what the decoder looks at, in `encode`.

    Memory: `keys` and `values` (B, layers, h, n, d_h) for the cross-attention of all layers, `mask` (B, n). An image
    without a single row is `readable` (B, n) everywhere, and its values are zeros: fused attention kernels may give NaN
    where nothing may be read.
    State: `keys` and `values` (N, layers, h, t, d_h) of the t words read so far.
    """

    def __init__(self, config: TransformerConfig, words: int) -> None:
        super().__init__()
        self.config = config
        self.words = words
        size = config.hidden_size
        self.embedding = nn.Embedding(words, size, padding_idx=PAD)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(size) if config.pre_norm else nn.Identity()
        self.output = nn.Linear(size, words, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        nn.init.normal_(self.embedding.weight[PAD + 1 :], std=size**-0.5)
        nn.init.normal_(self.output.weight, std=size**-0.5)

    def remember(self, rows: Tensor, mask: Tensor) -> Memory:
        """The memory of image rows (B, n, d), of which `mask` (B, n) tells the real ones."""
        layers = cast("list[DecoderLayer]", self.layers)
        offered = [layer.cross_attention.keys_values(rows) for layer in layers]
        keys, values = (torch.stack(parts, 1) for parts in zip(*offered, strict=True))
        return {
            "keys": keys,
            "values": values * mask[:, None, None, :, None],
            "mask": mask,
            "readable": mask | ~mask.any(1, keepdim=True),
        }

    def start(self, memory: Memory) -> State:
        """No word was read: t is 0."""
        return {name: memory[name][..., :0, :] for name in ("keys", "values")}

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        """Read one word (N,) after the t of the state."""
        per_image(words, memory)  # refuses captions that cannot be shared out among the images
        rows = self._embed(words[:, None], state["keys"].shape[3])
        read = []
        for i, layer in enumerate(self.layers):
            past = state["keys"][:, i], state["values"][:, i]
            rows, seen, _ = layer(rows, *_image(memory, i, "readable"), past)
            read.append(seen)
        keys, values = (torch.stack(parts, 1) for parts in zip(*read, strict=True))
        return self.norm(rows[:, 0]), {"keys": keys, "values": values}

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        """Read words (N, T) at once; a word sees only earlier ones, so padding after END changes nothing before it."""
        per_image(words, memory)
        rows = self._embed(words, 0)
        *lower, last = self.layers
        for i, layer in enumerate(lower):
            rows, _, _ = layer(rows, *_image(memory, i, "readable"))
        rows, _, weights = last(rows, *_image(memory, -1, "mask"), weigh=True)
        return self.norm(rows), Trace(regions=weights)

    def predict(self, hidden: Tensor) -> Tensor:
        """(…, d) to unnormalised scores (…, V)."""
        logits: Tensor = self.output(hidden)
        return logits

    def _embed(self, words: Tensor, first: int) -> Tensor:
        """(N, T, d) of words (N, T), the first of them at place `first`."""
        size = self.embedding.embedding_dim
        places = positions(first, words.shape[1], size, words.device).to(self.embedding.weight.dtype)
        rows: Tensor = self.dropout(self.embedding(words) * math.sqrt(size) + places)
        return rows


def _image(memory: Memory, layer: int, mask: str) -> tuple[KeysValues, Tensor]:
    """What one layer sees of the images: keys and values (B, h, n, d_h) and the mask (B, 1, 1, n)."""
    return (memory["keys"][:, layer], memory["values"][:, layer]), memory[mask][:, None, None]
