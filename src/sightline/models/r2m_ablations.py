"""What Table 2 of the R²M paper puts in place of its memories: a linear layer for FM, an LSTM for RM."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sightline.models.captioner import State
from sightline.models.layers import LSTM


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
        self.lstm = remembering_lstm(size)

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


def remembering_lstm(size: int) -> LSTM:
    """An LSTM whose biases start at 0, the forget gate's at 1: it remembers until it has learned to forget."""
    built = LSTM(size, size, batch_first=True)
    _, _, input_bias, hidden_bias = built.all_weights[0]
    nn.init.zeros_(input_bias)
    nn.init.zeros_(hidden_bias)
    nn.init.ones_(input_bias[size : 2 * size])  # PyTorch's order: input, forget, cell, output
    return built
