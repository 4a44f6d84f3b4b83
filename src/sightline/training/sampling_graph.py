"""Captions that a captioner says by chance, all words of all captions as one CUDA graph.

A word is a hundred small kernels, and a loop that asks after each word who is done waits for the device each time. A
graph is recorded once for a shape and replayed by one call; captions that have ended go on as padding to the last
word. Rules other than those of self-critical training (nothing but padding and START is never said) are not known here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from sightline.models.captioner import Captioner, Memory, expand, images
from sightline.text.vocabulary import END, PAD, START
from sightline.training.cuda_graphs import graphs_wanted, unchanged

SHAPES = 4  # graphs that are kept; other shapes are not recorded
WARM_UP = 2  # runs before one is recorded, so that libraries have what they make at first use


class SamplingGraphs:
    """Samples of a captioner as graphs; None where there is none: off CUDA, or where recording failed.

    A graph reads the captioner's weights where they are, so it says what the captioner would say now. Sampling draws
    by torch's seed.
    """

    def __init__(self) -> None:
        self._graphs: dict[Hashable, tuple[Memory, Tensor, Callable[[], None]]] = {}
        self._wanted = graphs_wanted()

    def __call__(
        self, model: Captioner, memory: Memory, max_words: int, copies: int = 1, *, greedy: bool = False
    ) -> Tensor | None:
        """(B, K, T) START, words, END, padding; one without END was cut after `max_words` words."""
        if not (self._wanted and next(iter(memory.values())).is_cuda):
            return None
        autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
        precision = (torch.get_float32_matmul_precision(), autocast)
        parts = tuple((name, part.shape, part.dtype) for name, part in memory.items())
        key = (id(model), model.training, max_words, copies, greedy, precision, parts)
        if key not in self._graphs and len(self._graphs) < SHAPES:
            try:
                self._graphs[key] = _record(model, memory, max_words, copies, greedy)
            except RuntimeError as error:
                reason = str(error).strip().partition("\n")[0]
                warnings.warn(f"samples are drawn without a CUDA graph, which takes longer ({reason})", stacklevel=2)
                self._wanted = False
        if key not in self._graphs:
            return None
        inputs, words, replay = self._graphs[key]
        for name, part in inputs.items():
            part.copy_(memory[name])
        replay()
        longest = int((words != PAD).any(0).any(0).sum())  # the only question to the device
        return words[..., :longest].clone()


def sample(model: Captioner, memory: Memory, max_words: int, copies: int = 1, *, greedy: bool = False) -> Tensor:
    """(B, K, max_words + 1) captions, without a question to the device."""
    count = images(memory) * copies
    state = expand(model.start(memory), count)
    first = next(iter(memory.values()))
    words = [torch.full((count,), START, device=first.device)]
    ended = torch.zeros(count, dtype=torch.bool, device=first.device)
    for _ in range(max_words):
        log_probs, state = model.step(words[-1], memory, state)  # (N, V)
        log_probs[:, PAD] = -torch.inf
        log_probs[:, START] = -torch.inf
        if not greedy:
            # The largest of log p - log q, q drawn from the exponential distribution, is a draw from p (Gumbel).
            log_probs = log_probs - torch.empty_like(log_probs).exponential_().log_()
        chosen = log_probs.argmax(1).masked_fill(ended, PAD)
        ended = ended | (chosen == END)
        words.append(chosen)
    return torch.stack(words, 1).view(-1, copies, max_words + 1)


def _record(
    model: Captioner, memory: Memory, max_words: int, copies: int, greedy: bool
) -> tuple[Memory, Tensor, Callable[[], None]]:
    """What the graph reads, what it writes, and the call that runs it."""
    device = next(iter(memory.values())).device
    inputs = {name: part.detach().clone() for name, part in memory.items()}

    def run() -> Tensor:
        return sample(model, inputs, max_words, copies, greedy=greedy)

    with torch.no_grad(), unchanged(device):
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph: Any = torch.cuda.CUDAGraph()
        # the thread that reads the next batch may use the device meanwhile
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            words = run()
    return inputs, words, graph.replay
