"""In the place of CUDA's recording: what `torch.cuda.make_graphed_callables` gives, computed on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sightline.training.cuda_graphs import Recurrence, Tensors


class Recorder:
    """Records functions, and counts what was recorded (the shapes of sequences) and run.

    As with CUDA, inputs are copied to where the samples are, unless they are there already; every run of a recording
    writes outputs and gradients over those of the run before it; and nothing but the samples gets gradients.
    """

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.runs = 0

    def __call__(self, run: Recurrence, samples: tuple[Tensor, ...], pool: Any) -> Recurrence:
        self.shapes.append(tuple(samples[0].shape))
        assert not torch.is_autocast_enabled("cpu")
        first = run(*samples)
        names, outputs = list(first), [part.detach().clone() for part in first.values()]
        learning = [sample for sample in samples if sample.requires_grad]
        gradients = [torch.zeros_like(sample) for sample in learning]
        live: list[Tensor] = []

        class Recorded(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
                for sample, given in zip(samples, inputs, strict=True):
                    assert (sample.shape, sample.dtype) == (given.shape, given.dtype)
                    if sample.data_ptr() != given.data_ptr():
                        sample.copy_(given)
                self.runs += 1
                with torch.enable_grad():
                    live[:] = run(*samples).values()
                for output, part in zip(outputs, live, strict=True):
                    output.copy_(part)
                return tuple(output.detach() for output in outputs)

            @staticmethod
            def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
                pairs = [(part, one) for part, one in zip(live, given, strict=True) if part.requires_grad]
                parts, wanted = zip(*pairs, strict=True)
                found = torch.autograd.grad(parts, learning, wanted, allow_unused=True)
                for gradient, one in zip(gradients, found, strict=True):
                    gradient.copy_(torch.zeros_like(gradient) if one is None else one)
                used = {
                    id(sample): gradient.detach()
                    for sample, gradient, one in zip(learning, gradients, found, strict=True)
                    if one is not None
                }
                return tuple(used.get(id(sample)) for sample in samples)

        def replay(*inputs: Tensor) -> Tensors:
            return dict(zip(names, Recorded.apply(*inputs), strict=True))

        return replay
