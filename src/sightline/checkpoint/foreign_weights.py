"""Foreign weights as ours. Every tensor of the file must find a place, and every place of the model a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from sightline.checkpoint.checkpoint_file import assign, meta_init
from sightline.data.restricted_pickle import Namespace
from sightline.errors import CheckpointError

Weights = Mapping[str, Tensor]
Model = TypeVar("Model", bound=nn.Module, covariant=True)
COUNTER = "num_batches_tracked"  # of a batch norm: PyTorch before 0.4.1 had none, and nothing here reads it


class Buildable(Protocol[Model]):
    """A model's config."""

    def build(self, vocab_size: int) -> Model:
        """The model."""


def tensors(weights: Mapping[Any, Any], path: Path) -> dict[str, Tensor]:
    """A state dict, once it is known to hold tensors alone."""
    for name, tensor in weights.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise CheckpointError(f"`{name}` is no tensor", where=path, fix="give the state dict of a whole model")
    return dict(weights)


def need(weights: Weights, name: str, path: Path) -> Tensor:
    """The tensor called `name`."""
    if name not in weights:
        raise CheckpointError(f"it has no `{name}`", where=path, fix="check that it is the whole model")
    return weights[name]


def matrix(weights: Weights, name: str, path: Path) -> Tensor:
    """The matrix called `name`, from whose shape sizes are read."""
    found = need(weights, name, path)
    if found.ndim != 2 or not found.numel():
        raise CheckpointError(
            f"`{name}` has shape {tuple(found.shape)} and is no matrix", where=path, fix="copy or download it again"
        )
    return found


def rename_tensors(weights: Weights, rules: Mapping[str, str], path: Path) -> dict[str, Tensor]:
    """All weights under our names; `rules` give, for the beginning of their names, the beginning of ours."""
    ours = {}
    for name, tensor in weights.items():
        prefix = next((theirs for theirs in rules if name.startswith(theirs)), None)
        if prefix is not None:
            ours[rules[prefix] + name.removeprefix(prefix)] = tensor
        elif not name.endswith(COUNTER):
            raise _surplus(name, path)
    return ours


def fill_model(config: Buildable[Model], vocab_size: int, weights: Weights, path: Path) -> Model:
    """The model of `config` with these weights, our names, in evaluation mode."""
    try:
        with meta_init(len(weights)):
            model = config.build(vocab_size)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"no model can have its sizes: {error}", where=path, fix="only use files you trust"
        ) from error
    own = model.state_dict()
    for name, tensor in own.items():
        if name not in weights and not name.endswith(COUNTER):
            raise CheckpointError(f"it has nothing for `{name}`", where=path, fix="check that it is the whole model")
        if name in weights and weights[name].shape != tensor.shape:
            raise CheckpointError(
                f"`{name}` has shape {tuple(weights[name].shape)}, {tuple(tensor.shape)} was expected",
                where=path,
                fix="the model's options differ from what the converter knows; please report it",
            )
    for name in weights:
        if name not in own and not name.endswith(COUNTER):
            raise _surplus(name, path)
    counters = {name: torch.zeros((), dtype=torch.long) for name in own if name.endswith(COUNTER)}
    assign(model, {**counters, **{name: tensor for name, tensor in weights.items() if name in own}})
    return model.eval()


def options(namespace: Any) -> dict[str, Any]:
    """The options a model was trained with, as far as they are plain values."""
    if not isinstance(namespace, Namespace):
        return {}
    return {name: value for name, value in vars(namespace).items() if _is_plain(value)}


def _is_plain(value: object) -> bool:
    if isinstance(value, int):
        return value.bit_length() < 64  # Python refuses to print numbers of thousands of digits
    return isinstance(value, (float, str))


def _surplus(name: str, path: Path) -> CheckpointError:
    return CheckpointError(
        f"`{name}` has no place in the model it seems to be",
        where=path,
        fix="the model has a part that the converter does not know; please report it",
    )
