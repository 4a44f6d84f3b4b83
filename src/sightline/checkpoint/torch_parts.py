"""What the pickle in a PyTorch file may name. Nothing there is a tensor until the pickle is read.

PyTorch pickles a tensor as a window into a storage, and the storage as an id. Both stay descriptions while the pickle
runs, which may make them but not change them; then windows are checked against their storages and become tensors.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from sightline.data.restricted_pickle import CONTAINERS, NUMBERS, Inert, Namespace, shown

_TYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}


class _Fixed(Inert):
    """What a pickle may make but not change."""

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError(f"it changes a {type(self).__name__}")


class _StorageType(_Fixed):
    dtype: torch.dtype


class Storage(_Fixed):
    """A run of numbers in the file."""

    def __init__(self, dtype: torch.dtype, key: str, count: int) -> None:
        self.dtype, self.key, self.count = dtype, key, count


class _Window(_Fixed):
    """How PyTorch rebuilds a tensor: `size` numbers of a storage, from `offset` on, `stride` apart."""

    def __init__(self, storage: Any, offset: Any, size: Any, stride: Any, *_: object) -> None:
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride

    def tensor(self, storages: Mapping[str, Tensor]) -> Tensor:
        """The tensor; no number is read from outside its storage, and none serves often enough to outgrow it."""
        if not isinstance(self.storage, Storage):
            raise pickle.UnpicklingError("a tensor without a storage")
        numbers, offset, size, stride = storages[self.storage.key], self.offset, tuple(self.size), tuple(self.stride)
        if not all(isinstance(number, int) for number in (offset, *size, *stride)):
            raise pickle.UnpicklingError("a tensor whose shape is no whole numbers")
        last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        outside = 0 not in size and last >= len(numbers)
        if min(offset, *size, *stride, 0) < 0 or outside or math.prod(size) > len(numbers):
            raise pickle.UnpicklingError("a tensor larger than its storage")
        return numbers.as_strided(size, stride, offset)


class _Parameter(_Fixed):
    """A parameter is its tensor."""

    def __new__(cls, data: Any, *_: object) -> Any:
        return data


ALLOWED: dict[str, type] = {
    **CONTAINERS,
    **NUMBERS,
    "torch._utils._rebuild_tensor": _Window,
    "torch._utils._rebuild_tensor_v2": _Window,
    "torch._utils._rebuild_parameter": _Parameter,
    **{
        f"{module}.{name}Storage": type(f"{name}Storage", (_StorageType,), {"dtype": dtype})
        for module in ("torch", "torch.cuda")
        for name, dtype in _TYPES.items()
    },
}


def resolver(storages: dict[str, Storage]) -> Callable[[Any], Storage]:
    """What turns a persistent id into its storage, and notes it in `storages`."""

    def resolve(pid: Any) -> Storage:
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise pickle.UnpicklingError(f"it refers to {shown(pid)}")
        if not isinstance(pid[1], type) or not issubclass(pid[1], _StorageType):
            raise pickle.UnpicklingError(f"a storage of {shown(pid[1])}")
        if len(pid) > 5 and pid[5] is not None:
            raise pickle.UnpicklingError("a storage that is a view of another")
        if not isinstance(pid[4], int) or pid[4] < 0:
            raise pickle.UnpicklingError(f"a storage of {shown(pid[4])} numbers")
        if not isinstance(pid[2], str | int):
            raise pickle.UnpicklingError(f"a storage called {shown(pid[2])}")
        storage = storages.setdefault(str(pid[2]), Storage(pid[1].dtype, str(pid[2]), pid[4]))
        if (storage.dtype, storage.count) != (pid[1].dtype, pid[4]):
            raise pickle.UnpicklingError(f"storage {storage.key} is described twice")
        return storage

    return resolve


def with_tensors(content: Any, storages: Mapping[str, Tensor]) -> Any:
    """The content, its windows made tensors and its containers plain; what occurs twice is made once."""
    done: dict[int, tuple[object, Any]] = {}  # by id; the object is kept, since ids are only of living objects

    def made(value: Any) -> Any:
        if id(value) in done:
            return done[id(value)][1]
        new: Any = {} if isinstance(value, dict) else [] if isinstance(value, list) else value
        if isinstance(value, _Window):
            new = value.tensor(storages)
        elif isinstance(value, tuple):
            new = tuple(map(made, value))
        done[id(value)] = value, new  # before the members of what can hold itself
        if isinstance(value, dict):
            new.update((name, made(member)) for name, member in dict.items(value))
        elif isinstance(value, list):
            new.extend(map(made, value))
        elif isinstance(value, Namespace):
            vars(value).update({name: made(member) for name, member in vars(value).items()})
        return new

    return made(content)
