"""Several processes that train one model together: what they add up, what they agree on, and when they stop."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sightline.devices import choose_device
from sightline.errors import LearningError


class Distributed:
    """This process and the others that `torchrun` started with it; with one process, its methods do nothing.

    Every method is called by all processes at the same point, or by none, since each waits for the others. Where one of
    them has stopped, the others get a LearningError instead of waiting for ever. Process 0 writes, and decides where
    all must be of one mind.
    """

    def __init__(self) -> None:
        joined = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if joined else 0
        self.world = dist.get_world_size() if joined else 1
        # small messages go between CPUs, so that they never wait for what a GPU has still to do
        self._cpu = dist.new_group(backend="gloo") if self.world > 1 and dist.get_backend() != "gloo" else None

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        if self.world == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        with _broken_connection():
            dist.all_reduce(total, group=self._cpu)
        return total.tolist()

    def gather(self, value: Any) -> list[Any]:
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        with _broken_connection():
            dist.all_gather_object(values, value, group=self._cpu)
        return values

    def broadcast(self, value: Any) -> Any:
        """Every process gets the value that process 0 has."""
        return self.gather(value)[0]

    def broadcast_tensors(self, tensors: Sequence[Tensor]) -> None:
        """In place: every process gets the numbers that process 0 has."""
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors if self.world > 1):
            same = [tensor.detach() for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.flatten() for tensor in same])
            with _broken_connection():
                dist.broadcast(flat, src=0)
            for tensor, part in zip(same, torch.split(flat, [tensor.numel() for tensor in same]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum gradients over processes, in one piece. A parameter that no process has a gradient of keeps none."""
        if self.world == 1:
            return
        # DistributedDataParallel gives the same gradients, but wants CUDA graphs recorded before it wraps a module, and
        # those of R²M are recorded as shapes come; and it searches every step for parameters that nothing depends on.
        counts = self.sum(*(float(parameter.grad is not None) for parameter in parameters))
        learned = [parameter for parameter, count in zip(parameters, counts, strict=True) if count]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in learned])
        with _broken_connection():
            dist.all_reduce(flat)
        for parameter, part in zip(learned, torch.split(flat, [p.numel() for p in learned]), strict=True):
            parameter.grad = part.view_as(parameter)


@contextlib.contextmanager
def _broken_connection() -> Iterator[None]:
    """Turn the error of a broken connection into one that says what happened."""
    try:
        yield
    except RuntimeError as error:  # all that a broken connection and a time-out have in common
        fix = "see what it said, then start all of them again: they go on from the last state"
        raise LearningError("another process of this run has stopped", fix=fix) from error


@contextlib.contextmanager
def processes(device: str) -> Iterator[torch.device]:
    """The device of this process; joined with the other processes if `torchrun` started several."""
    chosen = choose_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or dist.is_initialized():
        yield chosen
        return
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield chosen
    finally:
        dist.destroy_process_group()


def first_process() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Gives a function that is True once Ctrl-C or kill came; a second one interrupts at once."""
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        old = {number: signal.signal(number, ask) for number in SIGNALS}
    except ValueError:  # not the main thread: only that one receives signals
        yield lambda: False
        return
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
