"""The transformer decoder of three models (…-trans): words attend to the words before them and to the image.

It is fairseq's decoder (Vaswani et al., 2017, section 3, with fairseq's defaults) over an image's rows instead of an
encoder's output. What differs from fairseq's captioning recipe: it reads and says words, not BPE pieces; a caption
begins with START at position 0, where fairseq begins with END at position 2; and the keys and values of an image are
computed once and shared by all of its hypotheses, where fairseq copies the image for each.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.config import check_config
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner, Memory, State, Trace, per_image
from sightline.models.layers import join_heads, masked_softmax, split_heads
from sightline.text.vocabulary import PAD

KeysValues = tuple[Tensor, Tensor]

PLACES = 64  # whose encodings are kept; more are computed when a longer caption is read
WIDEST = 65_536  # channels: the table of places is computed even where a model has no weights yet


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes of a transformer decoder; the defaults are fairseq's `simplistic-captioning-arch`."""

    kind: str = ""  # the model it belongs to
    region_width: int = 2048  # numbers a region feature has
    hidden_size: int = 512  # width d of words, image rows and everything between
    layers: int = 6  # decoder layers
    heads: int = 8  # attention heads; each has hidden_size / heads channels
    ffn_size: int = 2048  # width inside the feed-forward networks
    dropout: float = 0.3  # on the embedded words and on what every sublayer adds
    pre_norm: bool = False  # normalise before each sublayer (and once at the end) instead of after each sum
    tied: bool = False  # one matrix embeds the words that are read and scores the words that may follow
    # scores have a bias, which training starts at log word frequencies; fairseq's decoder has none
    output_bias: bool = False

    def __post_init__(self) -> None:
        check_config(self, may_be_zero=("concepts",))
        if not 4 <= self.hidden_size <= WIDEST or self.hidden_size % 2 or self.hidden_size % self.heads:
            what = f"`hidden_size` is {self.hidden_size} with {self.heads} heads"
            raise ConfigError(what, fix=f"give an even number from 4 to {WIDEST:,} that `heads` divides")


def positions(first: int, count: int, size: int, device: torch.device) -> Tensor:
    """(count, size) of the places first, first + 1, …: sines, then cosines, wavelengths from 2π to 10,000 · 2π.

    fairseq's layout and frequencies, 10000^(-i / (size/2 - 1)); Vaswani et al. interleave sines and cosines.
    """
    half = size // 2
    frequencies = torch.exp(torch.arange(half, device=device) * (-math.log(10000) / (half - 1)))
    angles = torch.arange(first, first + count, device=device)[:, None] * frequencies  # (count, size / 2)
    return torch.cat([angles.sin(), angles.cos()], 1)


def _linear(inputs: int, outputs: int, stacked: int = 0) -> nn.Linear:
    """Weights as Xavier's rule draws them, where asked for a matrix of `stacked` outputs of which this is a part."""
    layer = nn.Linear(inputs, outputs)
    bound = math.sqrt(6 / (inputs + (stacked or outputs)))
    nn.init.uniform_(layer.weight, -bound, bound)
    nn.init.zeros_(layer.bias)
    return layer


class MultiHeadAttention(nn.Module):
    """softmax(Q Kᵀ / √d_h) V in `heads` parts of d_h channels (Vaswani et al., 2017, section 3.2)."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = _linear(size, size, stacked=3 * size)
        self.key_value = _linear(size, 2 * size, stacked=3 * size)
        self.output = _linear(size, size)

    def keys_values(self, rows: Tensor) -> KeysValues:
        """What rows (B, n, d) offer to be attended to: two (B, h, n, d_h)."""
        return _keys_values(self.key_value(rows), self.heads)

    def forward(self, rows: Tensor, offered: KeysValues, mask: Tensor | None = None) -> Tensor:
        """(B, m, d): each of rows (B, m, d) attends to the `offered` keys where `mask` is True, or with that bias."""
        queries = split_heads(self.query(rows), self.heads)
        found: Tensor = self.output(join_heads(attend(queries, *offered, mask)))
        return found

    def with_weights(self, rows: Tensor, offered: KeysValues, mask: Tensor) -> tuple[Tensor, Tensor]:
        """`forward` and the attention weights, a mean over heads: (B, m, d) and (B, m, n). Here the mask is boolean."""
        keys, values = offered
        queries = split_heads(self.query(rows), self.heads) / math.sqrt(keys.shape[-1])
        weights = masked_softmax(queries @ keys.transpose(-1, -2), mask)  # (B, h, m, n)
        return self.output(join_heads(weights.to(values.dtype) @ values)), weights.mean(1)


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """What queries (B, h, m, d_h) find: the values (B, h, n, d_h), each weighed by the softmax of its key's product.

    A boolean `mask` is True where a query sees a key, another one is added to the products; `causal` hides later keys.
    This is PyTorch's own, but where gradients in bfloat16 are wanted on a CPU: there it takes three to seven
    times as long as the plain form (`benchmarks/attention_gradients.py`).
    """
    plain = queries.dtype == torch.bfloat16 and queries.device.type == "cpu" and torch.is_grad_enabled()
    if not plain:
        return F.scaled_dot_product_attention(queries, keys, values, mask, is_causal=causal)
    scores = queries @ keys.mT / math.sqrt(keys.shape[-1])  # (B, h, m, n)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1, dtype=torch.float32).to(values.dtype) @ values


class SelfAttention(nn.Module):
    """Multi-head attention of rows to each other and to earlier rows; one matrix gives queries, keys and values."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.size, self.heads = size, heads
        self.projection = _linear(size, 3 * size)  # queries, keys, values
        self.output = _linear(size, size)

    def forward(
        self, rows: Tensor, past: Tensor | None = None, bias: Tensor | None = None, *, causal: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Rows (N, T, d) attend to themselves and to those whose keys and values are `past` (N, t, 2 d).

        `bias`, broadcastable to (N, h, T, t + T), is added to the scores; `causal` hides the rows after each.
        Returns what they find (N, T, d), and the keys and values (N, t + T, 2 d) of all.
        """
        queries, seen = self.projection(rows).tensor_split([self.size], -1)
        if past is not None:
            seen = torch.cat([past, seen], 1)
        keys, values = _keys_values(seen, self.heads)
        found = attend(split_heads(queries, self.heads), keys, values, bias, causal=causal)
        return self.output(join_heads(found)), seen


def _keys_values(stacked: Tensor, heads: int) -> KeysValues:
    """(N, t, 2 d) as two (N, h, t, d_h)."""
    width = stacked.shape[2] // (2 * heads)
    parts = stacked.view(*stacked.shape[:2], 2, heads, width).transpose(1, 3)  # (N, h, 2, t, d_h)
    return parts[:, :, 0], parts[:, :, 1]


class Layer(nn.Module):
    """What layers of encoders and decoders share: self-attention and feed-forward, each added to its input."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.pre_norm = config.pre_norm
        self.self_attention = SelfAttention(size, config.heads)
        self.self_norm = nn.LayerNorm(size)
        self.feed_forward = nn.Sequential(
            _linear(size, config.ffn_size), nn.ReLU(inplace=True), _linear(config.ffn_size, size)
        )
        self.feed_norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(config.dropout)

    def _fed(self, rows: Tensor) -> Tensor:
        return self._after(self.feed_norm, rows, self.feed_forward(self._before(self.feed_norm, rows)))

    def _before(self, norm: nn.Module, rows: Tensor) -> Tensor:
        return norm(rows) if self.pre_norm else rows

    def _after(self, norm: nn.Module, rows: Tensor, change: Tensor) -> Tensor:
        rows = rows + self.dropout(change)
        return rows if self.pre_norm else norm(rows)


class EncoderLayer(Layer):
    """Rows of an image look at each other."""

    def forward(self, rows: Tensor, bias: Tensor) -> Tensor:
        """(B, n, d) of rows (B, n, d); `bias` (B, 1, 1, n) is added to the scores."""
        found, _ = self.self_attention(self._before(self.self_norm, rows), bias=bias)
        return self._fed(self._after(self.self_norm, rows, found))


class DecoderLayer(Layer):
    """Self-attention over earlier words, attention over the image, feed-forward; each added to its input."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.cross_attention = MultiHeadAttention(config.hidden_size, config.heads)
        self.cross_norm = nn.LayerNorm(config.hidden_size)

    def forward(
        self, rows: Tensor, image: KeysValues, mask: Tensor, past: Tensor | None = None, *, weigh: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Read T words of each hypothesis after those whose keys and values are `past`.

        Args:
            rows: (N, T, d); with a past T is 1.
            image: (B, h, n, d_h) keys and values of the image; N is B·K, and the K hypotheses attend in one product.
            mask: (B, 1, 1, n), a bias where no weights are wanted.
            past: (N, t, 2 d) keys and values of earlier words.
            weigh: whether the weights over the image are wanted.

        Returns:
            Rows (N, T, d), keys and values (N, t + T, 2 d) of the words, weights (N, T, n) or None.
        """
        found, seen = self.self_attention(self._before(self.self_norm, rows), past, causal=past is None)
        rows = self._after(self.self_norm, rows, found)

        inner = self._before(self.cross_norm, rows).reshape(len(image[0]), -1, rows.shape[-1])  # (B, K·T, d)
        weights = None
        if weigh:
            found, weights = self.cross_attention.with_weights(inner, image, mask)
            weights = weights.reshape(*rows.shape[:2], weights.shape[2])
        else:
            found = self.cross_attention(inner, image, mask)
        return self._fed(self._after(self.cross_norm, rows, found.view_as(rows))), seen, weights


class TransformerCaptioner(Captioner):
    """A captioner whose decoder is a transformer; a model of it says what the decoder looks at, in `encode`.

    Memory: `keys` and `values` (B, layers, h, n, d_h) for the cross-attention of all layers, `mask` (B, n), and `bias`
    (B, n), which `bias_of` makes of it. The values of an image without a single row are zeros.
    State: `layer0`, `layer1`, … (N, t, 2 d), the keys and values in each layer of the t words read so far.
    """

    places: Tensor

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        size = config.hidden_size
        self.embedding = nn.Embedding(vocab_size, size, padding_idx=PAD)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(size) if config.pre_norm else nn.Identity()
        self.output = None if config.tied else nn.Linear(size, vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if config.output_bias else None
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("places", positions(0, PLACES, size, torch.device("cpu")), persistent=False)
        nn.init.normal_(self.embedding.weight[PAD + 1 :], std=size**-0.5)
        if self.output is not None:
            nn.init.normal_(self.output.weight, std=size**-0.5)

    def remember(self, rows: Tensor, mask: Tensor) -> Memory:
        """The memory of image rows (B, n, d), of which `mask` (B, n) tells the real ones."""
        layers = cast("list[DecoderLayer]", self.layers)
        offered = [layer.cross_attention.keys_values(rows) for layer in layers]
        keys, values = (torch.stack(parts, 1) for parts in zip(*offered, strict=True))
        values *= mask[:, None, None, :, None]
        return {"keys": keys, "values": values, "mask": mask, "bias": bias_of(mask, keys.dtype)}

    def start(self, memory: Memory) -> State:
        """No word was read: t is 0."""
        keys = memory["keys"]
        return {f"layer{i}": keys.new_zeros(len(keys), 0, 2 * self.config.hidden_size) for i in range(len(self.layers))}

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        """Read one word (N,) after the t of the state."""
        per_image(words, memory)  # refuses captions that cannot be shared out among the images
        rows = self._embed(words[:, None], state["layer0"].shape[1])
        read = {}
        for i, (layer, (name, past)) in enumerate(zip(self.layers, state.items(), strict=True)):
            rows, read[name], _ = layer(rows, *_image(memory, i, "bias"), past)
        return self.norm(rows[:, 0]), read

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        """Read words (N, T) at once; a word sees only earlier ones, so padding after END changes nothing before it."""
        per_image(words, memory)
        rows = self._embed(words, 0)
        *lower, last = self.layers
        for i, layer in enumerate(lower):
            rows, _, _ = layer(rows, *_image(memory, i, "bias"))
        rows, _, weights = last(rows, *_image(memory, -1, "mask"), weigh=True)
        return self.norm(rows), Trace(regions=weights)

    def predict(self, hidden: Tensor) -> Tensor:
        logits: Tensor = F.linear(hidden, self.embedding.weight) if self.output is None else self.output(hidden)
        return logits if self.bias is None else logits + self.bias

    def output_bias(self) -> nn.Parameter | None:
        """The bias of the scores, where the config asks for one."""
        return self.bias

    def _embed(self, words: Tensor, first: int) -> Tensor:
        """(N, T, d) of words (N, T), the first of them at place `first`."""
        size, end = self.embedding.embedding_dim, first + words.shape[1]
        if end > len(self.places):
            self.places = positions(0, 2 * end, size, words.device).to(self.places.dtype)
        rows: Tensor = self.dropout(self.embedding(words) * math.sqrt(size) + self.places[first:end])
        return rows


def _image(memory: Memory, layer: int, mask: str) -> tuple[KeysValues, Tensor]:
    """What one layer sees of the images: keys and values (B, h, n, d_h) and the mask or bias (B, 1, 1, n)."""
    return (memory["keys"][:, layer], memory["values"][:, layer]), memory[mask][:, None, None]


def bias_of(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, n) what is added to attention scores: 0 where `mask` is True, else -inf.

    An image without a single row gets 0 everywhere: fused attention kernels may give NaN where nothing may be read.
    """
    hidden = mask.any(1, keepdim=True) & ~mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(hidden, -torch.inf)
