"""The captioner that VSRN is trained together with (section 3.4): a sequence-to-sequence model with attention.

An encoder GRU reads the relationship-enhanced regions V*, a decoder GRU attends to its states and writes the caption
(Venugopalan et al., "Sequence to Sequence - Video to Text", ICCV 2015, with additive attention as in VSRN's released
code). The released code never decodes it; here it is a captioner like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.models.captioner import Captioner, Memory, State, Trace, expand, per_image
from sightline.models.layers import GRU, masked_softmax, read_sequence

if TYPE_CHECKING:
    from sightline.models.vsrn import VSRNConfig


class VSRNCaptioner(Captioner):
    """p(y_t | y_<t, V*) of Eq. 9.

    `encode_regions` takes VSRN's V*; `encode` takes the scenes' own region features, for use without VSRN. Matrices
    that meet a concatenation are kept in halves, so that what words and regions add to them is computed once.
    """

    needs = ("regions",)

    def __init__(self, config: VSRNConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        size = config.hidden_size
        self.project = nn.Linear(config.size, size)
        self.encoder = GRU(size, size, batch_first=True)
        self.attend_memory = nn.Linear(size, size)
        self.attend_state = nn.Linear(size, size, bias=False)
        self.score = nn.Linear(size, 1, bias=False)
        self.embed = nn.Embedding(vocab_size, config.word_size)
        self.word_gates = nn.Linear(config.word_size, 3 * size)
        self.context_gates = nn.Linear(size, 3 * size, bias=False)
        self.state_gates = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, vocab_size)
        self.dropout = nn.Dropout(config.dropout)
        self._initialise(size)

    def _initialise(self, size: int) -> None:
        nn.init.xavier_normal_(self.project.weight)
        nn.init.xavier_normal_(self.out.weight)
        for half in (self.attend_memory, self.attend_state):  # as one matrix from 2h to h starts
            for parameter in half.parameters():
                nn.init.uniform_(parameter, -((2 * size) ** -0.5), (2 * size) ** -0.5)
        for parameter in self.word_gates.parameters():  # as a GRU starts
            nn.init.uniform_(parameter, -(size**-0.5), size**-0.5)

    def encode(self, scenes: SceneBatch) -> Memory:
        regions = scenes.part("regions", by="VSRN's captioner", width=self.config.size)
        return self.encode_regions(regions, scenes.mask("regions"))

    def encode_regions(self, regions: Tensor, mask: Tensor) -> Memory:
        """Memory of regions (B, n, d), padded at the end: the encoder's states and what attention adds to each."""
        states, last = read_sequence(self.encoder, self.dropout(self.project(regions)), mask)
        return {"states": states, "keys": self.attend_memory(states), "mask": mask, "last": last}

    def start(self, memory: Memory) -> State:
        """The decoder begins where the encoder ended."""
        return {"hidden": memory["last"]}

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        hidden, _ = self._decode(self._word_gates(words), memory, state["hidden"])
        return hidden, {"hidden": hidden}

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        hidden = expand(self.start(memory), len(words))["hidden"]
        states, weights = [], []
        for gates in self._word_gates(words).unbind(1):
            hidden, attention = self._decode(gates, memory, hidden)
            states.append(hidden)
            weights.append(attention)
        return torch.stack(states, 1), Trace(regions=torch.stack(weights, 1))

    def predict(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.out(hidden)
        return scores

    def output_bias(self) -> nn.Parameter:
        return self.out.bias

    def _word_gates(self, words: Tensor) -> Tensor:
        """What words (…) add to the decoder's gates (…, 3h)."""
        gates: Tensor = self.word_gates(self.dropout(self.embed(words)))
        return gates

    def _decode(self, word_gates: Tensor, memory: Memory, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """One step of p(y_t | y_<t, V*) in Eq. 9: the new state (N, h), and attention (N, n)."""
        query = per_image(self.attend_state(hidden), memory).unsqueeze(2)  # (B, K, 1, h)
        scores = self.score(torch.tanh(memory["keys"].unsqueeze(1) + query)).squeeze(-1)  # (B, K, n)
        weights = masked_softmax(scores, memory["mask"].unsqueeze(1))
        context = (weights @ memory["states"]).flatten(0, 1)  # (N, h)
        # A GRU cell; PyTorch's order is reset, update, new.
        input_r, input_z, input_n = (word_gates + self.context_gates(self.dropout(context))).chunk(3, -1)
        state_r, state_z, state_n = self.state_gates(hidden).chunk(3, -1)
        new = torch.tanh(input_n + torch.sigmoid(input_r + state_r) * state_n)
        keep = torch.sigmoid(input_z + state_z)
        return keep * hidden + (1 - keep) * new, weights.flatten(0, 1)
