"""A pass without gradients inside a step that has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def no_gradients(device: torch.device) -> Iterator[None]:
    """No gradients, and no weights left behind that lack them.

    Autocast keeps the half-precision copy of a weight until its block ends. PyTorch releases differ in whether one that
    was made without gradients then serves the pass with gradients too, and the weight silently does not learn.
    """
    enabled, dtype = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
    with torch.no_grad(), torch.autocast(device.type, dtype, enabled=enabled, cache_enabled=False):
        yield
