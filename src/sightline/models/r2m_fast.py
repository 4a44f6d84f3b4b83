"""R²M with a recurrent memory that runs faster than that of `r2m.py`: the same numbers but for rounding, by a test.

- What depends on f_t alone leaves the loop over steps: its key and value, and its part of the gates.
- The weights of the loop get their gradients by one product after it (`LoopWeights`).
- Two rows, [M_{t-1}; f_t], are attended to, and the softmax of two numbers is a sigmoid of their difference.

The loop's many small kernels never wait for the host, so `torch.cuda.make_graphed_callables` can take the memory.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from sightline.models.captioner import State
from sightline.models.custom_gradients import LoopWeights
from sightline.models.r2m import R2M, RecurrentMemory

_Products = tuple[LoopWeights, LoopWeights, LoopWeights, LoopWeights]  # W of q, k, v; both layers of the MLP; U


class FastRecurrentMemory(RecurrentMemory):
    """RM, Eq. 5-7, with the parameters of the plain one."""

    def step(self, f: Tensor, state: State) -> tuple[Tensor, State]:
        """One step over f_t (N, d): M_t (N, d) and the new state."""
        memory, _ = self._update(state["memory"], *self._inputs(f), self._products())
        return memory, {"memory": memory}

    def forward(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """All steps over f (N, T, d): M (N, T, d) and the weights (N, T, H, 2) of Eq. 5."""
        memory, memories, weights, loop = torch.zeros_like(f[:, 0]), [], [], self._products()
        for key, value, gates in zip(*(part.unbind(1) for part in self._inputs(f)), strict=True):
            memory, weight = self._update(memory, key, value, gates, loop)
            memories.append(memory)
            weights.append(weight)
        own = torch.stack(weights, 1)
        return torch.stack(memories, 1), torch.stack([own, 1 - own], -1)

    def _inputs(self, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """f_t (…, d) as its key and value (…, H, d_k) for Eq. 5-6 and its part of both gates (…, 2·d) for Eq. 7."""
        _, key, value = self.attention.project(f).unbind(-3)
        return key, value, self.input_gates(f)

    def _update(
        self, memory: Tensor, key: Tensor, value: Tensor, gates: Tensor, loop: _Products
    ) -> tuple[Tensor, Tensor]:
        """M_{t-1} (N, d) and the inputs of f_t to M_t (N, d) and the weight M→M (N, H) of Eq. 5; f→M is the rest.

        `gates` may be written into.
        """
        project, first, second, remember = loop
        qkv = self.attention.norm(project.times(memory)).unflatten(-1, (3, self.attention.heads, -1))
        query, own_key, own_value = qkv.unbind(-3)  # (N, H, d_k)
        ahead = (query * (own_key - key)).sum(-1, keepdim=True) / self.attention.root
        own = torch.sigmoid(ahead)  # Eq. 5  (N, H, 1)
        attended = torch.lerp(value, own_value, own).flatten(1)  # Eq. 6  (N, H·d_v)

        gain = self.attended_norm(memory + attended)  # module ψ
        gain = self.gain_norm(gain + second.times(first.times(gain).relu()))

        g_i, g_f = torch.sigmoid(remember.plus(gates, memory.tanh())).chunk(2, -1)  # Eq. 7, lines 1 and 2
        return g_i * gain.tanh() + g_f * memory, own[..., 0]  # Eq. 7, line 3

    def _products(self) -> _Products:
        """The matrices that every step uses."""
        layers = cast("list[nn.Linear]", [self.attention.qkv, self.mlp[0], self.mlp[2], self.memory_gates])
        project, first, second, remember = (LoopWeights(layer.weight, bias=layer.bias) for layer in layers)
        return project, first, second, remember


class FastR2M(R2M):
    """R²M whose decoder and reconstructor are fast."""

    recurrent_memory = FastRecurrentMemory
