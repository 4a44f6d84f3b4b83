"""Which device to compute on, by the name people give, what its processor is good at, and with how many threads."""

import contextlib
import os
from collections.abc import Iterator

import torch

from sightline.errors import ConfigError

MOST_THREADS = 1024  # where there are fewer cores


def choose_device(name: str) -> torch.device:
    """The device called `name`; auto takes an accelerator where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"no device is called {name!r}", fix="give auto, cpu, cuda, cuda:1 or mps") from None
    there = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available()), "cpu": 1}
    if (device.index or 0) >= there.get(device.type, 0):
        raise ConfigError(f"this machine has no {name}", fix="`sightline doctor` lists its devices")
    return device


def has_vnni() -> bool:
    """Whether this processor sums products of 8-bit integers without overflow, and fast."""
    check = getattr(torch.cpu, "_is_vnni_supported", None)
    return bool(check is not None and check())


def set_threads(threads: int) -> None:
    """Compute with so many threads of the processor. Thousands more than there are cores end Python without a word."""
    most = max(MOST_THREADS, os.cpu_count() or 1)
    if not 1 <= threads <= most:
        fix = "give 1 or more" if threads < 1 else f"give {os.cpu_count() or 1}, the number of cores, or fewer"
        raise ConfigError(f"`threads` is {threads}", fix=fix)
    torch.set_num_threads(threads)


@contextlib.contextmanager
def one_thread(enabled: bool = True) -> Iterator[None]:
    """In here PyTorch computes with one thread of the processor, if `enabled`."""
    threads = torch.get_num_threads()
    if not enabled or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
