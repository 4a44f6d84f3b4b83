"""The decoders of JRAN: relationship based attention (Section 3.4 of the paper) and the LSTMs it feeds.

Where nothing attends, the context is the mean of the features at every step, and its part of the gates is computed
once per image.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from sightline.models.captioner import Memory, State, per_image
from sightline.models.layers import lstm_step, masked_mean, masked_softmax


class RelationshipAttention(nn.Module):
    """Relationship based attention (Section 3.4)."""

    def __init__(self, size: int, hidden_size: int, attention_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(size, attention_size)  # W_J and b_h
        self.query = nn.Linear(hidden_size, attention_size, bias=False)  # W_h
        self.score = nn.Linear(attention_size, 1, bias=False)  # W_r

    def forward(self, hidden: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Hidden (N, h) to the context (N, d) and its weights (N, n)."""
        query = per_image(self.query(hidden), memory).unsqueeze(2)  # (B, K, 1, a)
        z = self.score((memory["keys"].unsqueeze(1) + query).tanh()).squeeze(-1)  # Eq. 11, (B, K, n)
        eta = masked_softmax(z, memory["mask"].unsqueeze(1))  # Eq. 12
        context = eta @ memory["features"]  # Eq. 13, (B, K, d)
        return context.flatten(0, 1), eta.flatten(0, 1)


class Decoder(nn.Module, ABC):
    """What the two decoders share: the word's part of the LSTM's gates, and the context's.

    `attention_size` is None where nothing attends; `state` names the tensors that go from step to step.
    """

    state: tuple[str, ...]

    def __init__(self, size: int, word_size: int, hidden_size: int, attention_size: int | None) -> None:
        super().__init__()
        self.word = nn.Linear(word_size, 4 * hidden_size)
        self.context = nn.Linear(size, 4 * hidden_size, bias=False)
        self.attention = None
        if attention_size is not None:
            self.attention = RelationshipAttention(size, hidden_size, attention_size)

    def remember(self, features: Tensor, mask: Tensor) -> Memory:
        """What each image's features (B, n, d) give to every step."""
        if self.attention is None:
            return {"context": self.context(masked_mean(features, mask))}
        return {"features": features, "mask": mask, "keys": self.attention.key(features)}

    def word_gates(self, words: Tensor, memory: Memory) -> Tensor:
        """Embedded words (N, T, w) to their part of the gates (N, T, 4 h)."""
        gates: Tensor = self.word(words)
        return gates

    def with_context(self, gates: Tensor, hidden: Tensor, memory: Memory) -> tuple[Tensor, Tensor | None]:
        """Gates (N, 4 h) with the context's part, and η (N, n) that `hidden` attends with."""
        if self.attention is None:
            return (per_image(gates, memory) + memory["context"].unsqueeze(1)).flatten(0, 1), None
        context, eta = self.attention(hidden, memory)
        return gates + self.context(context), eta

    @abstractmethod
    def forward(self, gates: Tensor, memory: Memory, state: State) -> tuple[Tensor, Tensor | None, State]:
        """One step from the word's gates (N, 4 h): h_t (N, h), η (N, n) or None, and the new state."""


class LSTMDecoder(Decoder):
    """One LSTM, attending with h_{t-1}."""

    state = ("hidden", "cell")

    def __init__(self, size: int, word_size: int, hidden_size: int, attention_size: int | None) -> None:
        super().__init__(size, word_size, hidden_size, attention_size)
        self.recurrent = nn.Linear(hidden_size, 4 * hidden_size, bias=False)

    def forward(self, gates: Tensor, memory: Memory, state: State) -> tuple[Tensor, Tensor | None, State]:
        """The context of h_{t-1}, then the LSTM."""
        gates, eta = self.with_context(gates, state["hidden"], memory)
        hidden, cell = lstm_step(gates + self.recurrent(state["hidden"]), state["cell"])
        return hidden, eta, {"hidden": hidden, "cell": cell}


class UpDownDecoder(Decoder):
    """An attention LSTM whose h_t attends, and a language LSTM that reads the context and predicts."""

    state = ("attention_hidden", "attention_cell", "hidden", "cell")

    def __init__(self, size: int, word_size: int, hidden_size: int, attention_size: int | None) -> None:
        super().__init__(size, word_size, hidden_size, attention_size)
        self.mean = nn.Linear(size, 4 * hidden_size, bias=False)
        self.attention_recurrent = nn.Linear(2 * hidden_size, 4 * hidden_size, bias=False)
        self.language_recurrent = nn.Linear(2 * hidden_size, 4 * hidden_size)

    def remember(self, features: Tensor, mask: Tensor) -> Memory:
        """Also what the mean of the features adds to the attention LSTM."""
        return {**super().remember(features, mask), "mean": self.mean(masked_mean(features, mask))}

    def word_gates(self, words: Tensor, memory: Memory) -> Tensor:
        """With the image's mean, which is the same at every step."""
        gates = per_image(super().word_gates(words, memory), memory)  # (B, K, T, 4 h)
        return (gates + memory["mean"][:, None, None]).flatten(0, 1)

    def forward(self, gates: Tensor, memory: Memory, state: State) -> tuple[Tensor, Tensor | None, State]:
        """The attention LSTM, its context, the language LSTM."""
        recurrent = self.attention_recurrent(torch.cat([state["attention_hidden"], state["hidden"]], -1))
        first, first_cell = lstm_step(gates + recurrent, state["attention_cell"])
        recurrent = self.language_recurrent(torch.cat([first, state["hidden"]], -1))
        gates, eta = self.with_context(recurrent, first, memory)
        hidden, cell = lstm_step(gates, state["cell"])
        state = {"attention_hidden": first, "attention_cell": first_cell, "hidden": hidden, "cell": cell}
        return hidden, eta, state
