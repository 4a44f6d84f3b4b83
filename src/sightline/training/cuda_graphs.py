"""R²M's memories as CUDA graphs: a recurrence of many small kernels, launched all at once.

A step of the recurrent memory is some thirty kernels of a few microseconds, which a GPU finishes sooner than Python can
ask for them. A graph is recorded once for a shape and then replayed by one call. The mathematics is the same; shapes
are kept few by padding the time axis, and what comes after a caption's end cannot change what came before it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.models.r2m import RecurrentMemory

Recurrence = Callable[[Tensor], Tensor]  # f (N, T, d) to M (N, T, d)
Capture = Callable[[nn.Module, Tensor], Recurrence]

LENGTHS = 4  # steps are padded to a multiple of this
SHAPES = 12  # graphs that are kept for each memory; other shapes run as usual


class Graphs:
    """Recurrent memories that run as graphs, inside `on` and nowhere else.

    A graph has one place for its activations and one for its gradients, so it holds one batch at a time. A memory runs
    as usual, with the same result, where that would not do: without gradients, under autocast, off CUDA, while a batch
    of the same memory waits for its backward pass, and where gradients are already there to be added to.

    While a graph runs, the memory gives no attention weights. Nothing else may use the device while a graph is being
    recorded, so keep tables that another thread reads on the CPU.

    `wanted` False runs everything as usual; `capture` records a module for inputs like a sample, another one in tests.
    """

    def __init__(self, wanted: bool = True, capture: Capture | None = None) -> None:
        self._wanted, self._capture = wanted, capture
        self._recorded: dict[nn.Module, dict[tuple[int, ...], Recurrence]] = {}
        self._waiting: set[nn.Module] = set()

    @contextlib.contextmanager
    def on(self, *memories: nn.Module) -> Iterator[None]:
        """Within it, the recurrent ones of `memories` run as graphs where they can."""
        replaced = [one for one in memories if self._wanted and isinstance(one, RecurrentMemory)]
        for memory in replaced:
            memory.forward = partial(self._run, memory)  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            for memory in replaced:
                del memory.forward  # the class's own shows again

    def _run(self, memory: RecurrentMemory, f: Tensor) -> tuple[Tensor, Tensor | None]:
        steps = f.shape[1]
        replay = self._graph(memory, f, padded_steps(steps)) if self._can(memory, f) else None
        if replay is None:
            return type(memory).forward(memory, f)
        memories = replay(F.pad(f, (0, 0, 0, padded_steps(steps) - steps)))
        self._waiting.add(memory)
        memories.register_hook(lambda gradient: self._waiting.discard(memory))  # type: ignore[no-untyped-call]
        return memories[:, :steps], None

    def _can(self, memory: nn.Module, f: Tensor) -> bool:
        if not (f.is_cuda or self._capture is not None) or not (torch.is_grad_enabled() and f.requires_grad):
            return False
        if torch.is_autocast_enabled(f.device.type) or memory in self._waiting:
            return False
        return all(parameter.grad is None for parameter in memory.parameters())

    def _graph(self, memory: RecurrentMemory, f: Tensor, steps: int) -> Recurrence | None:
        """The graph for f's padded shape, recorded if there is none yet and room for it."""
        recorded, shape = self._recorded.setdefault(memory, {}), (f.shape[0], steps, f.shape[2])
        if shape not in recorded and len(recorded) < SHAPES:
            sample = torch.zeros(shape, dtype=f.dtype, device=f.device, requires_grad=True)
            recorded[shape] = (self._capture or capture)(_Memories(memory), sample)
        return recorded.get(shape)


class _Memories(nn.Module):
    """A recurrent memory without its attention weights, by the class's own `forward`."""

    def __init__(self, memory: RecurrentMemory) -> None:
        super().__init__()
        self.memory = memory

    def forward(self, f: Tensor) -> Tensor:
        return type(self.memory).forward(self.memory, f)[0]


def capture(module: nn.Module, sample: Tensor) -> Recurrence:
    recorded: Any = torch.cuda.make_graphed_callables(module, (sample,))
    return recorded  # type: ignore[no-any-return]


def padded_steps(steps: int) -> int:
    return -(-steps // LENGTHS) * LENGTHS
