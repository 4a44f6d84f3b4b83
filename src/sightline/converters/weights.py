"""Filling our models with foreign weights, and telling what was told with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sightline.data.restricted_pickle import Namespace
from sightline.errors import CheckpointError


def fill(model: nn.Module, weights: Mapping[str, Tensor], path: Path, spare: tuple[str, ...] = ()) -> None:
    """Load `weights`, our names; every parameter must be there, except those under a prefix in `spare`."""
    own = model.state_dict()
    for name, tensor in own.items():
        if name.startswith(spare or "\0") or name.endswith("num_batches_tracked"):
            continue
        if name not in weights:
            raise CheckpointError(f"it has nothing for `{name}`", where=path, fix="check that it is the whole model")
        if weights[name].shape != tensor.shape:
            raise CheckpointError(
                f"`{name}` has shape {tuple(weights[name].shape)}, {tuple(tensor.shape)} was expected",
                where=path,
                fix="the model's options differ from what the converter knows; please report it",
            )
    model.load_state_dict({**own, **{name: tensor for name, tensor in weights.items() if name in own}})


def options(namespace: Any) -> dict[str, Any]:
    """The options a model was trained with, as far as they are plain values."""
    if not isinstance(namespace, Namespace):
        return {}
    return {name: value for name, value in vars(namespace).items() if isinstance(value, (bool, int, float, str))}
