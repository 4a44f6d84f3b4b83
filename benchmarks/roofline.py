"""How fast a device could do a piece of work at best: the FLOPs and bytes of every operator, over measured ceilings.

Two limits. The roofline: all FLOPs at the device's own rate of matrix products, or what must be moved at least
(weights, inputs, results, each once) at its own bandwidth, whichever takes longer. The operators' limit is what a
program of separate operators can reach at most: each of them reads its tensors from memory and writes them back, so
that the sum over operators of the longer of both times counts. What lies above it is waiting: launches,
synchronisation, Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
PICKS = {aten.embedding, aten.index_select, aten.gather, aten.index}  # read only those rows that they give
NOTHING = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}  # move no bytes
CONVOLUTIONS = {aten.convolution, aten.convolution_backward}


@dataclass(frozen=True)
class Ceilings:
    """What a device reaches: FLOP/s of products by kind ("bfloat16", "tf32", "float32"), and bytes/s of copies."""

    flops: dict[str, float]
    bandwidth: float

    def seconds(self, flops: dict[str, float], bytes_: float) -> float:
        """The least time for so much."""
        computed = sum(count / self.flops[kind] for kind, count in flops.items())
        return max(computed, bytes_ / self.bandwidth)


@dataclass
class Work:
    """What a call did: FLOPs by kind, bytes that its operators moved, and each operator's own share of both."""

    flops: dict[str, float] = field(default_factory=dict)
    bytes: float = 0.0
    operators: list[tuple[str, float, float]] = field(default_factory=list)

    def operators_seconds(self, ceilings: Ceilings) -> float:
        """The operators' limit."""
        return sum(ceilings.seconds({kind: flops} if flops else {}, moved) for kind, flops, moved in self.operators)


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside it, operators are counted into `work` as they run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.work = Work()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator, and count it."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet, returns = func._overloadpacket, func._schema.returns
        views = bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        if views or packet in NOTHING:
            return out
        flops = _flops(packet, args, kwargs, out)
        kind, moved = _kind(packet, args), _moved(func, args, kwargs, out)
        self.work.bytes += moved
        self.work.operators.append((kind, flops, moved))
        if flops:
            self.work.flops[kind] = self.work.flops.get(kind, 0.0) + flops
        return out


def count(call: Callable[[], object]) -> Work:
    """What a call does, by running it once."""
    counting = Counting()
    with counting:
        call()
    return counting.work


def _flops(packet: Any, args: Any, kwargs: Any, out: Any) -> float:
    """By PyTorch's formulas, but for gradients of convolutions, where they multiply by the groups of depthwise ones."""
    if packet is aten.convolution_backward:
        gradient, _, weights, *_, wanted = args
        return float(2 * gradient.numel() * weights[0].numel() * sum(wanted[:2]))
    formula = flop_registry.get(packet)
    return float(formula(*args, **kwargs, out_val=out)) if formula is not None else 0.0


def _kind(packet: Any, args: Any) -> str:
    """In which kind of numbers an operator multiplies."""
    given = next((leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor) and leaf.is_floating_point()), None)
    if given is None or given.dtype in (torch.float32, torch.float64):
        convolves, precise = packet in CONVOLUTIONS, torch.get_float32_matmul_precision() == "highest"
        fast = given is not None and given.is_cuda and (torch.backends.cudnn.allow_tf32 if convolves else not precise)
        return "tf32" if fast else "float32"
    return "bfloat16"


def _moved(func: Any, args: Any, kwargs: Any, out: Any) -> float:
    """Bytes read and written; what is changed in place is both."""
    written = sum(map(size, tree_leaves(out)))
    if func._overloadpacket in PICKS:
        indexes = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor) and not leaf.is_floating_point()]
        return 2 * written + sum(map(size, indexes))
    changed = 0.0
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            changed += sum(map(size, tree_leaves(value)))
    fresh = not any(r.alias_info is not None for r in func._schema.returns)
    return sum(map(size, tree_leaves((args, kwargs)))) + changed + (written if fresh else 0.0)


def size(leaf: object) -> float:
    """Bytes of a tensor's elements; those that expanding repeats count once."""
    if not isinstance(leaf, Tensor):
        return 0.0
    elements = 1
    for length, stride in zip(leaf.shape, leaf.stride(), strict=True):
        elements *= length if stride else min(length, 1)
    return float(elements * leaf.element_size())


def least_bytes(tensors: Sequence[Tensor | None]) -> float:
    """Bytes of tensors that have to be moved once."""
    return sum(map(size, tensors))


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds_of(call: Callable[[], object], device: torch.device, budget: float, warm: int = 2) -> float:
    """Seconds a call takes, the mean over as many as fit into `budget` seconds: the device is waited for at the end."""
    for _ in range(warm):
        call()
    wait(device)
    start = time.perf_counter()
    call()
    wait(device)
    once = time.perf_counter() - start
    calls = max(1, min(200, int(budget / max(once, 1e-6))))
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait(device)
    return (time.perf_counter() - start) / calls


def measure_ceilings(device: torch.device, quick: bool) -> Ceilings:
    """The device's rates: products of large square matrices, and copies of a large tensor."""
    side, length, budget = (256, 1 << 22, 0.05) if quick else (8192, 1 << 28, 1.0)
    flops = {}
    before = torch.get_float32_matmul_precision()
    for kind, dtype, precision in (
        ("bfloat16", torch.bfloat16, "highest"),
        ("tf32", torch.float32, "high"),
        ("float32", torch.float32, "highest"),
    ):
        torch.set_float32_matmul_precision(precision)
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        result = torch.empty_like(a)
        flops[kind] = 2 * side**3 / seconds_of(lambda a=a, b=b, to=result: torch.mm(a, b, out=to), device, budget)  # type: ignore[misc]
    torch.set_float32_matmul_precision(before)
    source, target = (torch.ones(length, device=device) for _ in range(2))
    return Ceilings(flops, 2 * 4 * length / seconds_of(lambda: target.copy_(source), device, budget))
