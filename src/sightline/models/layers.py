"""Small parts that several models are built of: masked attention, batch norm, recurrences, and the text encoders of
matchers, which give states of all words (SCAN) or one of the sentence (VSRN and VSE++)."""

from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sightline.batch import TextBatch

LONG_REGIONS = 36  # rows that a long memory of a photo spans: the regions that detectors give
LONG_WORDS = 12  # the same of a sentence: a caption's words, START and END


def masked_softmax(scores: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Softmax over the places where `mask` (broadcastable) is True; the others, and rows without any, get 0."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim) * mask


def masked_mean(rows: Tensor, mask: Tensor | None) -> Tensor:
    """(B, n, d) to (B, d): the mean over the n rows where `mask` (B, n) is True; 0 where there is none."""
    if mask is None:
        return rows.mean(1)
    weights = mask.unsqueeze(-1).to(rows.dtype)
    return (rows * weights).sum(1) / weights.sum(1).clamp(min=1)


def l2norm(x: Tensor) -> Tensor:
    """Unit length along the last dimension, in float32 under autocast. 1e-8 is added to lengths: zero stays zero."""
    if torch.is_autocast_enabled(x.device.type):
        x = x.float()
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / (length + 1e-8)


def corners_and_area(boxes: Tensor) -> Tensor:
    """(…, 4) normalised corners x1, y1, x2, y2 with the share of the picture they cover: (…, 5)."""
    sides = boxes[..., 2:] - boxes[..., :2]
    return torch.cat([boxes, sides.prod(-1, keepdim=True)], -1)


def split_heads(rows: Tensor, heads: int) -> Tensor:
    """(B, n, d) to (B, heads, n, d / heads): the part of each attention head."""
    return rows.view(*rows.shape[:2], heads, rows.shape[2] // heads).transpose(1, 2)


def join_heads(parts: Tensor) -> Tensor:
    """(B, heads, n, w) to (B, n, heads · w): the opposite of `split_heads`."""
    return parts.transpose(1, 2).flatten(2)


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of rows (N, d). One row has no variance: in training too, it is normalised by what was seen before."""

    def forward(self, input: Tensor) -> Tensor:
        if self.training and len(input) < 2:
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(input)


# cuDNN gives gradients only of recurrences that ran in training mode, and gradients are wanted of evaluated models too:
# of a frozen teacher's inputs, of captions compared without dropout. So these two always stay in training mode. It
# changes no result, since their only use of the mode is dropout between layers, and they are built with one layer.


class GRU(nn.GRU):
    """A GRU that gives gradients in evaluation mode too."""

    def train(self, mode: bool = True) -> Self:
        return super().train()


class LSTM(nn.LSTM):
    """An LSTM that gives gradients in evaluation mode too."""

    def train(self, mode: bool = True) -> Self:
        return super().train()


def chrono_biases(biases: Tensor, rows: int) -> None:
    """Biases of "keep the old state" drawn as log U(1, rows − 1), in place: some units forget in a few rows, some after
    all of them (Tallec and Ollivier, "Can recurrent neural networks warp time?", ICLR 2018, section 3).

    Biases around 0, as GRUs usually start, halve what is remembered at every row: a new GRU knows the last few alone.
    """
    with torch.no_grad():
        biases.uniform_(1, rows - 1).log_()


def remember_long(rnn: nn.GRU, rows: int) -> None:
    """Start a GRU of one layer with a memory of `rows` rows. PyTorch's update gate is the share of the old state."""
    keep = slice(rnn.hidden_size, 2 * rnn.hidden_size)  # PyTorch's order is reset, update, new
    chrono_biases(rnn.get_parameter("bias_ih_l0").data[keep], rows)
    nn.init.zeros_(rnn.get_parameter("bias_hh_l0").data[keep])


def read_sequence(rnn: nn.GRU, rows: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Read rows (B, n, d), padded at the end, through a GRU.

    Returns: all states (B, n, h), and the one at the last real row (B, h), 0 where `mask` (B, n) has none.
    """
    if not rows.shape[1]:  # which PyTorch refuses
        return rows.new_zeros(len(rows), 0, rnn.hidden_size), rows.new_zeros(len(rows), rnn.hidden_size)
    states: Tensor = rnn(rows)[0]
    count = mask.sum(1)
    last = states[torch.arange(len(states), device=states.device), (count - 1).clamp(min=0)]
    return states, last * (count > 0).unsqueeze(1)


def lstm_step(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The LSTM after its matrices: gates (N, 4h) in PyTorch's order and the old cell (N, h) to the new h and cell."""
    i, f, g, o = gates.chunk(4, 1)
    cell = torch.addcmul(f.sigmoid() * cell, i.sigmoid(), g.tanh())
    return o.sigmoid() * cell.tanh(), cell


def read_both_ways(gru: nn.GRU, rows: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Read rows (B, T, d) through a GRU of one or two directions, which never reads padding.

    Returns: the states (B, T, directions · h), 0 on padding, and the last ones (directions, B, h). The backward GRU's
    last state is that at the first row.
    """
    packed = pack_padded_sequence(rows, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
    packed_states, last = gru(packed)
    states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=rows.shape[1])
    return states, last


class WordGRU(nn.Module):
    """Words to states. A bidirectional GRU gives the mean of its two directions."""

    def __init__(self, vocab_size: int, word_size: int, size: int, bidirectional: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, word_size)
        self.gru = GRU(word_size, size, batch_first=True, bidirectional=bidirectional)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, T, size) the state at each of the words (B, T); 0 where `mask` (B, T) is False."""
        states, _ = read_both_ways(self.gru, self.embedding(ids), mask)
        return states.view(*ids.shape, -1, self.gru.hidden_size).mean(2)

    def last(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, size) the state after the last word; of a backward GRU, the one after the first word."""
        _, last = read_both_ways(self.gru, self.embedding(ids), mask)
        return last.mean(0)


class SentenceGRU(nn.Module):
    """Word vectors, one GRU layer from left to right, its state at END, unit length (VSRN section 3.4).

    With a `long` memory the first words of a sentence are still there at its END before anything is learned; without
    it, captions that end alike start as nearly the same vector.
    """

    def __init__(
        self, vocab_size: int, word_size: int, size: int, memory: Literal["long", "default"] = "default"
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, word_size)
        self.rnn = GRU(word_size, size, batch_first=True)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        if memory == "long":
            remember_long(self.rnn, LONG_WORDS)

    def forward(self, texts: TextBatch) -> Tensor:
        """(B, size), unit length."""
        _, state = read_sequence(self.rnn, self.embed(texts.ids), texts.mask)
        return l2norm(state)
