"""NeuralTalk2: an LSTM that reads the image as its first word (Vinyals et al. 2015; Karpathy's NeuralTalk2).

The plain one of the two captioners in "Contrastive Learning for Image Captioning" (Dai and Lin 2017, section 5.2): the
decoder sees one vector of the image, once, and has no attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.config import check_config
from sightline.models.captioner import Captioner, Memory, State, Trace, expand
from sightline.models.layers import LSTM


@dataclass(frozen=True)
class NeuralTalk2Config:
    """The sizes of NeuralTalk2; the defaults are those of its release, but for the width of the image vector."""

    kind: Literal["neuraltalk2"] = "neuraltalk2"

    vector_width: int = 2048  # width of a scene's vector (the release reads the 4096 of VGG-16's fc7)
    word_size: int = 512  # width of a word embedding, and of the image that is read as the first word
    hidden_size: int = 512  # width of the LSTM
    dropout: float = 0.5  # share of the LSTM's outputs set to zero in training

    def __post_init__(self) -> None:
        check_config(self)

    def build(self, vocab_size: int) -> NeuralTalk2:
        return NeuralTalk2(self, vocab_size)


class NeuralTalk2(Captioner):
    """The captioner of Vinyals et al. 2015, "Show and Tell", section 3.1; equation numbers are theirs.

    Three differences, all of NeuralTalk2: a ReLU after the image's Linear, a tanh on the cell before the output gate
    (Eq. 8 prints none), and dropout after the LSTM.
    """

    needs = ("vector",)

    def __init__(self, config: NeuralTalk2Config, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.image = nn.Sequential(nn.Linear(config.vector_width, config.word_size), nn.ReLU())
        self.embedding = nn.Embedding(vocab_size, config.word_size)
        self.lstm = LSTM(config.word_size, config.hidden_size, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.hidden_size, vocab_size)  # Eq. 9; the softmax is the contract's

    def encode(self, scenes: SceneBatch) -> Memory:
        vector = scenes.part("vector", by="NeuralTalk2", width=self.config.vector_width)
        return {"image": self.image(vector)}  # (B, word_size), Eq. 10

    def start(self, memory: Memory) -> State:
        """The state after the image was read."""
        return self._read(memory["image"].unsqueeze(1))[1]

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        hidden, state = self._read(self.embedding(words.unsqueeze(1)), state)  # Eq. 11
        return hidden.squeeze(1), state

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        hidden, _ = self._read(self.embedding(words), expand(self.start(memory), len(words)))  # Eq. 11
        return hidden, Trace()

    def _read(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Inputs (N, T, word_size) through the LSTM, from zeros where there is no state."""
        before = None if state is None else (state["hidden"].unsqueeze(0), state["cell"].unsqueeze(0))
        outputs, (hidden, cell) = self.lstm(inputs, before)  # (N, T, d), Eq. 4-8
        return self.dropout(outputs), {"hidden": hidden.squeeze(0), "cell": cell.squeeze(0)}
