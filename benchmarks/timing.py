"""How long calls take: in CPU time, or on a GPU until it has done what it was given."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def cpu_seconds(call: Callable[[], object], repeats: int = 1) -> float:
    """CPU seconds of a call, the fewest of some repeats."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def device_seconds(call: Callable[[], object], device: torch.device) -> float:
    """CPU seconds of a call on a CPU; elsewhere the seconds that pass until the device is done."""
    if device.type != "cuda":
        return cpu_seconds(call)
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def best_seconds(calls: Mapping[str, Callable[[], object]], repeats: int, device: torch.device) -> dict[str, float]:
    """The fewest seconds of each call. They take turns, so that a busy machine is fair, and a first turn warms up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats + 1):
        for name, call in calls.items():
            times[name].append(device_seconds(call, device))
    return {name: min(seconds[1:]) for name, seconds in times.items()}


def parse_options(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, torch.device]:
    """The options of a script that computes on a device beside a peer: `--threads`, `--device`, `--json`, its own."""
    import torch

    parser.add_argument("--threads", type=int, default=1, help="threads of both on a CPU")
    parser.add_argument("--device", default="cpu", help="where both compute")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    return options, torch.device(options.device)
