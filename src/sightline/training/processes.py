"""Where training runs: the processes `torchrun` started, each with its device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist

from sightline.devices import choose_device


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
    """Whether this is the process that prints and writes."""
    return int(os.environ.get("RANK", "0")) == 0
