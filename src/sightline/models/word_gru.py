"""The text encoders of the matchers, a word embedding and a GRU: states of all words (SCAN), or one of the sentence
(VSRN and VSE++)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from sightline.batch import TextBatch
from sightline.models.layers import GRU, LONG_WORDS, read_sequence, remember_long
from sightline.models.matcher import l2norm


class WordGRU(nn.Module):
    """Words to states. A bidirectional GRU gives the mean of its two directions.

    Padding is never read: what a foreign checkpoint holds in the embedding's row of the pad id has no effect.
    """

    def __init__(self, vocab_size: int, word_size: int, size: int, bidirectional: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, word_size)
        self.gru = GRU(word_size, size, batch_first=True, bidirectional=bidirectional)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, T, size) the state at each of the words (B, T); 0 where `mask` (B, T) is False."""
        packed, _ = self._run(ids, mask)
        states, _ = pad_packed_sequence(packed, batch_first=True, total_length=ids.shape[1])
        return self._mean(states.view(*ids.shape, -1, self.gru.hidden_size), 2)

    def last(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, size) the state after the last word; of a backward GRU, the one after the first word."""
        _, final = self._run(ids, mask)  # (directions, B, size)
        return self._mean(final, 0)

    def _run(self, ids: Tensor, mask: Tensor) -> tuple[PackedSequence, Tensor]:
        embedded = self.embedding(ids)  # (B, T, word_size)
        packed = pack_padded_sequence(embedded, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        states, final = self.gru(packed)
        return states, final

    def _mean(self, states: Tensor, directions: int) -> Tensor:
        return states.mean(directions) if self.gru.bidirectional else states.squeeze(directions)


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
