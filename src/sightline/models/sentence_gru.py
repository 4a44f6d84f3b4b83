"""A sentence as one unit vector: the text side of VSE++ and VSRN."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sightline.batch import TextBatch
from sightline.models.matcher import l2norm


class SentenceGRU(nn.Module):
    """Word vectors, one GRU layer from left to right, its state at END, unit length (VSRN section 3.4)."""

    def __init__(self, words: int, word_size: int, size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, word_size)
        self.rnn = nn.GRU(word_size, size, batch_first=True)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def forward(self, texts: TextBatch) -> Tensor:
        """(B, size), unit length."""
        _, state = read_sequence(self.rnn, self.embed(texts.ids), texts.mask)
        return l2norm(state)


def read_sequence(rnn: nn.GRU, rows: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Read rows (B, n, d), padded at the end, through a GRU.

    Returns: all states (B, n, h), and the one at the last real row (B, h), 0 where `mask` (B, n) has none.
    """
    states: Tensor = rnn(rows)[0]
    count = mask.sum(1)
    last = states[torch.arange(len(states), device=states.device), (count - 1).clamp(min=0)]
    return states, last * (count > 0).unsqueeze(1)
