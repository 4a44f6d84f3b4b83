"""The state of a run on disk: weights, optimiser and counters, in one file that is whole or not there.

Tensors are named `model/…`, `objective/…` and `optimiser/PARAMETER/KEY`; counters are JSON in the header, beside the
checksums of both.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from sightline.checkpoint.checkpoint_file import checksum_of, write_tensors
from sightline.errors import CheckpointError
from sightline.files import atomic_write, checksum

MOST_STATES = 2  # states in the folder of a run: the one before the newest serves where that is damaged on disk


@dataclass
class Counters:
    """How far a run is."""

    stage: int = 0  # its number, from 0
    step: int = 0  # optimiser steps of the stage that are done
    best: float | None = None  # the highest value of the metric by which the stage chooses (of the loss, its negative)
    best_step: int = 0  # when that was
    without_better: int = 0  # evaluations since then
    lines: int = 0  # of metrics.jsonl that belong to this state
    done: bool = False  # whether the stage has ended
    recipe: str = ""  # fingerprint of what is run
    # losses and their parts, summed over the steps since the last line of metrics.jsonl
    sums: dict[str, float] = field(default_factory=dict)
    summed: int = 0  # how many steps that were


def save_state(
    folder: Path,
    counters: Counters,
    model: nn.Module,
    objective: nn.Module,
    optimiser: torch.optim.Optimizer,
    parameters: Mapping[str, nn.Parameter],
) -> Path:
    """Write the state, then remove all but the newest ones. The optimiser's moments go by names in `parameters`."""
    tensors = {f"model/{name}": part for name, part in model.state_dict().items()}
    tensors |= {f"objective/{name}": part for name, part in objective.state_dict().items()}
    for name, parameter in parameters.items():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"optimiser/{name}/{key}"] = torch.as_tensor(value)
    # a clone of each, since safetensors refuses tensors that share memory
    tensors = {name: part.detach().cpu().clone().contiguous() for name, part in tensors.items()}
    text = json.dumps(asdict(counters))
    header = {"counters": text, "counters_checksum": _seal(text), "checksum": str(checksum_of(tensors))}
    path = folder / f"state-{counters.stage:02d}-{counters.step:08d}.safetensors"
    with atomic_write(path) as file:
        write_tensors(file, tensors, header)
    for old in states(folder)[:-MOST_STATES]:
        old.unlink(missing_ok=True)
    return path


def states(folder: Path) -> list[Path]:
    return sorted(folder.glob("state-*.safetensors"))


def newest(folder: Path) -> str:
    """The name of the newest state that can be read, "" where there is none; what a killed process left is removed."""
    for left in folder.glob(".*.tmp"):
        left.unlink()
    paths = states(folder)
    for path in reversed(paths):
        with contextlib.suppress(CheckpointError):  # damaged on disk: the one before it is as good
            load_state(path)
            return path.name
    if paths:
        fix = "remove them to begin anew, or choose another --out"
        raise CheckpointError(f"none of the states here can be read, {paths[-1].name} neither", where=folder, fix=fix)
    return ""


def load_state(path: Path) -> tuple[Counters, dict[str, Tensor]]:
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            text = header["counters"]
            if header.get("counters_checksum", _seal(text)) != _seal(text):  # older ones have none
                raise ValueError("its counters are damaged")
            counters = Counters(**json.loads(text))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        if header["checksum"] != str(checksum_of(tensors)):
            raise ValueError("its numbers are damaged")
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        what = f"not a training state ({error})"
        raise CheckpointError(what, where=path, fix="remove the file; the state before it is used then") from error
    return counters, tensors


def _seal(text: str) -> str:
    return str(checksum(text.encode()))


def cut(log: Path, lines: int) -> int:
    """Cut a log to its first `lines` lines; gives how many it then has."""
    written = log.read_bytes().splitlines(keepends=True) if log.exists() else []
    if len(written) > lines:
        with atomic_write(log) as file:
            file.write(b"".join(written[:lines]))
    return min(lines, len(written))


def restore(tensors: dict[str, Tensor], module: nn.Module, prefix: str) -> None:
    """Load the weights of a state whose names begin with `prefix` (`model/` or `objective/`)."""
    weights = {name.removeprefix(prefix): part for name, part in tensors.items() if name.startswith(prefix)}
    module.load_state_dict(weights)


def restore_optimiser(
    tensors: dict[str, Tensor], optimiser: torch.optim.Optimizer, parameters: dict[str, nn.Parameter]
) -> None:
    for name, value in tensors.items():
        if name.startswith("optimiser/"):
            path, _, key = name.removeprefix("optimiser/").rpartition("/")
            parameter = parameters[path]
            state: dict[str, Any] = optimiser.state[parameter]
            state[key] = value if key == "step" else value.to(parameter.device)
