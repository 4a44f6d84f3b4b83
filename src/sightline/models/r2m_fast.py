"""R²M with a recurrent memory that runs faster than that of `r2m.py`: the same numbers but for rounding, by a test.

- What depends on f_t alone leaves the loop over steps: its key and value, and its part of the gates.
- The weights of the loop get their gradients by one product after it (`LoopWeights`).
- Two rows, [M_{t-1}; f_t], are attended to, and the softmax of two numbers is a sigmoid of their difference.

The loop's many small kernels never wait for the host, so `torch.cuda.make_graphed_callables` can take the memory.
"""

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from sightline.models.captioner import State
from sightline.models.custom_gradients import LoopWeights
from sightline.models.r2m import R2M, RecurrentMemory


class Weights(NamedTuple):
    """The matrices that every step uses."""

    qkv: LoopWeights  # W_q, W_k, W_v
    mlp_in: LoopWeights
    mlp_out: LoopWeights
    memory_gates: LoopWeights  # U_i, U_f


class FastRecurrentMemory(RecurrentMemory):
    """RM, Eq. 5-7, with the parameters of the plain one."""

    def step(self, f: Tensor, state: State) -> tuple[Tensor, State]:
        key, value, gates = self._inputs(f)
        memory, _ = self._update(state["memory"], key, value, gates, self._weights())
        return memory, {"memory": memory}

    def forward(self, f: Tensor) -> tuple[Tensor, Tensor]:
        keys, values, gates = self._inputs(f)
        weights = self._weights()
        memory = torch.zeros_like(f[:, 0])
        memories, memory_shares = [], []
        for key, value, gate in zip(keys.unbind(1), values.unbind(1), gates.unbind(1), strict=True):
            memory, share = self._update(memory, key, value, gate, weights)
            memories.append(memory)
            memory_shares.append(share)
        shares = torch.stack(memory_shares, 1)
        return torch.stack(memories, 1), torch.stack([shares, 1 - shares], -1)

    def _inputs(self, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """f_t (…, d) as its key and value (…, H, d_k) for Eq. 5-6 and its part of both gates (…, 2·d) for Eq. 7."""
        _, key, value = self.attention.project(f).unbind(-3)
        return key, value, self.input_gates(f)

    def _update(
        self, memory: Tensor, key: Tensor, value: Tensor, gates: Tensor, weights: Weights
    ) -> tuple[Tensor, Tensor]:
        """M_{t-1} (N, d) and the inputs of f_t to M_t (N, d) and the weight M→M (N, H) of Eq. 5; f→M is the rest."""
        qkv = self.attention.norm(weights.qkv.times(memory)).unflatten(-1, (3, self.attention.heads, -1))
        query, memory_key, memory_value = qkv.unbind(-3)  # (N, H, d_k)
        difference = (query * (memory_key - key)).sum(-1, keepdim=True) / self.attention.root
        share = torch.sigmoid(difference)  # Eq. 5  (N, H, 1)
        # Autocast on a GPU gives 16 bits and float32 side by side here; lerp wants one kind of numbers.
        value, memory_value = value.to(share.dtype), memory_value.to(share.dtype)
        attended = torch.lerp(value, memory_value, share).flatten(1)  # Eq. 6  (N, H·d_v)

        gain = self.attended_norm(memory + attended)  # module ψ
        gain = self.gain_norm(gain + weights.mlp_out.times(weights.mlp_in.times(gain).relu()))

        gates = torch.sigmoid(weights.memory_gates.times(memory.tanh(), plus=gates))  # Eq. 7, lines 1 and 2
        g_i, g_f = gates.chunk(2, -1)
        return g_i * gain.tanh() + g_f * memory, share[..., 0]  # Eq. 7, line 3

    def _weights(self) -> Weights:
        layers = cast("list[nn.Linear]", [self.attention.qkv, self.mlp[0], self.mlp[2], self.memory_gates])
        return Weights(*(LoopWeights(layer.weight, bias=layer.bias) for layer in layers))


class FastR2M(R2M):
    """R²M whose decoder and reconstructor are fast."""

    recurrent_memory = FastRecurrentMemory
