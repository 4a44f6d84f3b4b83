"""One open handle a process, for libraries whose handles must not cross a fork or a pickle (HDF5, LMDB)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """Call it for this process's handle: made by `make` at the first call, and again in every forked or spawned worker.

    >>> numbers = PerProcess(list)
    >>> numbers() is numbers()
    True
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: tuple[int, T] | None = None

    def __call__(self) -> T:
        """This process's handle."""
        if self._made is None or self._made[0] != os.getpid():
            self._made = (os.getpid(), self._make())
        return self._made[1]

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": self._make, "_made": None}
