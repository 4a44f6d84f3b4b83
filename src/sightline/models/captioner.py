"""The captioner contract: what every captioner offers to decoding, learning and metrics.

    memory = model.encode(scenes)                       once per image
    state = model.start(memory)                         one hypothesis per image
    log_probs, state = model.step(words, memory, state) one word further
    output = model.forward(memory, words)               teacher forcing, all steps at once
    scores = model.log_prob(memory, words)              log p(caption | image), END included

`Memory` and `State` are dicts of tensors, batch first. Rows of `Memory` are images; rows of `State` and of words are
hypotheses, N = B·K of them, the K of one image next to each other. So a beam reorders only `State`, and five captions
share their image's memory: features are never repeated.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sightline.batch import SceneBatch
from sightline.errors import CountError
from sightline.models.custom_gradients import fused_cross_entropy
from sightline.text.vocabulary import PAD, START

Memory = dict[str, Tensor]
State = dict[str, Tensor]

CHUNK = 2048  # positions whose (V,) distributions exist at the same time in `log_prob`; on a GPU eight times as many


@dataclass(frozen=True, eq=False)
class Trace:
    """Where each predicted word came from; step t belongs to the word the step predicts.

    Attributes:
        regions: (N, T, n) attention over regions, or None.
        grid: (N, T, L) attention over grid cells, or None.
        gates: named gate values, each (N, T, …).
    """

    regions: Tensor | None = None
    grid: Tensor | None = None
    gates: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Output:
    """What teacher forcing gives for words (N, T + 1): T predictions.

    Attributes:
        log_probs: (N, T, V); row t predicts word t + 1.
        hidden: (N, T, d) what the prediction was made from.
        trace: where each word came from.
    """

    log_probs: Tensor
    hidden: Tensor
    trace: Trace


class Captioner(nn.Module, ABC):
    """A model of p(caption | scene), word by word.

    A captioner implements `encode`, `start`, `advance` (one step) and `unroll` (all steps), and has a linear layer
    `output` from hidden to logits, or a `predict` and an `output_bias` of its own. The rest follows. `needs` names the
    scene parts it reads.
    """

    needs: tuple[str, ...] = ()
    # whether `unroll` is a recurrence, which on a GPU never waits for the host: training runs it as a CUDA graph
    recurrent = False
    vocab_size: int
    config: Any

    @abstractmethod
    def encode(self, scenes: SceneBatch) -> Memory:
        """What the decoder reads of each image, computed once: tensors with B rows."""

    @abstractmethod
    def start(self, memory: Memory) -> State:
        """The state before START is read, one row per image."""

    @abstractmethod
    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        """Read one word (N,) of each hypothesis: hidden (N, d) and the new state (N rows)."""

    @abstractmethod
    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        """Read words (N, T), START first: hidden (N, T, d) and the trace, equal to T times `advance`."""

    def predict(self, hidden: Tensor) -> Tensor:
        """(…, d) to unnormalised scores (…, V) of the next word: a new tensor, which no gradient needs as it is."""
        logits: Tensor = self.get_submodule("output")(hidden)
        return logits

    def output_bias(self) -> nn.Parameter | None:
        """(V,) the bias of `predict`, which training starts at log word frequencies; None where there is none."""
        output = getattr(self, "output", None)
        return output.bias if isinstance(output, nn.Linear) else None

    def step(self, words: Tensor, memory: Memory, state: State, rows: Tensor | None = None) -> tuple[Tensor, State]:
        """Read one word of each hypothesis: log-probabilities (N, V) of the next, and the new state.

        With `rows` (n,) it is (n, V), of those hypotheses alone. The caller may write into the log-probabilities.
        """
        hidden, state = self.advance(words, memory, state)
        logits = self.predict(hidden if rows is None else hidden.index_select(0, rows))
        if not torch.is_grad_enabled() and logits.dtype == torch.float32 and logits.device.type == "cpu":
            return torch.log_softmax(logits, -1, out=logits), state  # in place: fresh memory costs more than the sums
        return log_softmax(logits), state

    def forward(self, memory: Memory, words: Tensor) -> Output:
        """Teacher forcing over words (N, T + 1): START, the caption, END, padding. N is a multiple of the images."""
        hidden, trace = self.unroll(memory, words[:, :-1])
        return Output(log_softmax(self.predict(hidden)), hidden, trace)

    def log_prob(self, memory: Memory, words: Tensor) -> Tensor:
        """(N,) log p(words and END | image)."""
        return self.word_log_probs(memory, words).sum(1)

    def word_log_probs(self, memory: Memory, words: Tensor, smoothing: float = 0.0) -> Tensor:
        """(N, T) log-probability of each word after START, END included, 0 on padding.

        Distributions over the vocabulary exist for `CHUNK` positions at a time, in the backward pass too. `smoothing`
        is that of `target_log_probs`.
        """
        return self.target_log_probs(self.unroll(memory, captions_read(words))[0], words[:, 1:], smoothing)

    def sampled_log_probs(self, memory: Memory, words: Tensor) -> Tensor:
        """`word_log_probs` by the distribution samples come from: PAD and START, never said, have no share in it.

        A policy gradient needs it. It moves the share of what is never drawn neither up nor down, but at random, so
        that by `word_log_probs` padding may end up with all of it, and the samples' log-probabilities without bound.
        """
        return self.target_log_probs(self.unroll(memory, captions_read(words))[0], words[:, 1:], never=(PAD, START))

    def target_log_probs(
        self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0, never: tuple[int, ...] = ()
    ) -> Tensor:
        """(N, T) log-probability of each word of `targets` (N, T) by what `hidden` (N, T, d) predicts, 0 on padding.

        With `smoothing` ε it is the expected one of a word that is the target with 1 - ε, else any other, all alike.
        What is in `never` has no probability, which smoothing, over all words, cannot go with.
        """
        real = targets != PAD
        # Asking how many are real waits for a GPU. Where they are many, that takes less time than predicting padding,
        # two fifths of a batch of COCO's captions.
        if targets.is_cuda and targets.numel() <= 8 * CHUNK:
            log_probs = self._log_probs_in_chunks(hidden.flatten(0, 1), targets.flatten(), smoothing, never)
            return log_probs.view(targets.shape).masked_fill(~real, 0)
        log_probs = self._log_probs_in_chunks(hidden[real], targets[real], smoothing, never)
        zeros = torch.zeros(targets.shape, dtype=log_probs.dtype, device=log_probs.device)
        return zeros.masked_scatter(real, log_probs)

    def _log_probs_in_chunks(self, hidden: Tensor, targets: Tensor, smoothing: float, never: tuple[int, ...]) -> Tensor:
        """(M,) log-probability of each of `targets` (M,) by its row of `hidden` (M, d)."""
        spread = smoothing * self.vocab_size / (self.vocab_size - 1)  # over all words, the target too

        def log_probs(rows: Tensor, ids: Tensor) -> Tensor:
            logits = self.predict(rows).float()
            for id in never:
                logits[:, id] = -torch.inf
            return fused_cross_entropy(logits, ids, spread)

        size = 8 * CHUNK if hidden.is_cuda else CHUNK
        chunks = list(zip(torch.split(hidden, size), torch.split(targets, size), strict=True))
        if not torch.is_grad_enabled():
            return torch.cat([log_probs(*chunk) for chunk in chunks])
        # The backward pass begins with the last chunk, so keeping it takes no more memory than computing it again.
        first = [checkpoint(log_probs, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks[:-1]]
        return torch.cat([*first, log_probs(*chunks[-1])])


class WrappedCaptioner(Captioner):
    """A captioner that encodes scenes in its own way, and leaves all else to the captioner inside."""

    captioner: Captioner

    @property
    def reader(self) -> Captioner:
        return self.captioner

    def start(self, memory: Memory) -> State:
        return self.reader.start(memory)

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        return self.reader.advance(words, memory, state)

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        return self.reader.unroll(memory, words)

    def predict(self, hidden: Tensor) -> Tensor:
        return self.reader.predict(hidden)

    def output_bias(self) -> nn.Parameter | None:
        return self.reader.output_bias()


def captions_read(words: Tensor) -> Tensor:
    """(N, T) what is read of captions (N, T + 1) to predict each word after START: all but END."""
    return words[:, :-1].masked_fill(words[:, 1:] == PAD, PAD)


def log_softmax(logits: Tensor) -> Tensor:
    """The log-softmax over the last dimension, in float32 even under autocast."""
    return F.log_softmax(logits.float(), -1)


def images(memory: Memory) -> int:
    count = len(next(iter(memory.values())))
    if not count:
        raise CountError("a memory needs at least one image")
    return count


def per_image(rows: Tensor, memory: Memory) -> Tensor:
    """(N, …) rows of hypotheses as (B, K, …), so that they broadcast against memory."""
    count = images(memory)
    return rows.reshape(count, _captions_per_image(len(rows), count), *rows.shape[1:])


def expand(state: State, rows: int) -> State:
    """A state of one row per image as one of `rows` rows, each image's next to each other."""
    count = images(state)
    if rows == count:
        return state
    copies = _captions_per_image(rows, count)
    return {name: part.repeat_interleave(copies, 0) for name, part in state.items()}


def _captions_per_image(captions: int, images: int) -> int:
    if captions % images:
        raise CountError(f"{captions} captions for {images} images", fix="give each image the same number of captions")
    return captions // images


def select(rows: dict[str, Tensor], index: Tensor) -> dict[str, Tensor]:
    """The rows `index` of every tensor: how a beam reorders its state."""
    return {name: part.index_select(0, index) for name, part in rows.items()}
