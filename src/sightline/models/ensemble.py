"""Several captioners of one vocabulary that say one caption: each word has the mean of the members' probabilities."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner, Memory, State, Trace, log_softmax


class Ensemble(Captioner):
    """The captioner p(word) = mean of p_m(word), of members that may be of different kinds and share one vocabulary.

    Names in memory, state and gates start with the member's number: "0.", "1.", …. `hidden` is the members' one after
    the other. The trace has the mean attention over regions (or grid) if every member has one.
    """

    def __init__(self, members: Sequence[Captioner]) -> None:
        super().__init__()
        sizes = sorted({member.vocab_size for member in members})
        if len(sizes) != 1:
            raise ConfigError(
                f"an ensemble of captioners of {' and '.join(map(str, sizes))} words" if sizes else "an empty ensemble",
                fix="give captioners that share one vocabulary",
            )
        self.vocab_size = sizes[0]
        self.needs = tuple(dict.fromkeys(need for member in members for need in member.needs))
        self.members = nn.ModuleList(members)
        self._widths: list[int] = []  # of the members' hidden vectors, known when they first make one

    @property
    def config(self) -> Any:
        raise ConfigError("an ensemble has no config and is not saved", fix="save its members, one file each")

    def encode(self, scenes: SceneBatch) -> Memory:
        return _join(member.encode(scenes) for member in self._each())

    def start(self, memory: Memory) -> State:
        return _join(member.start(_part(memory, i)) for i, member in enumerate(self._each()))

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        steps = [member.advance(words, _part(memory, i), _part(state, i)) for i, member in enumerate(self._each())]
        return self._concatenate([hidden for hidden, _ in steps]), _join(state for _, state in steps)

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        runs = [member.unroll(_part(memory, i), words) for i, member in enumerate(self._each())]
        traces = [trace for _, trace in runs]
        trace = Trace(
            regions=_mean([trace.regions for trace in traces]),
            grid=_mean([trace.grid for trace in traces]),
            gates=_join(trace.gates for trace in traces),
        )
        return self._concatenate([hidden for hidden, _ in runs]), trace

    def predict(self, hidden: Tensor) -> Tensor:
        """The log of the mean probability of each word."""
        parts = zip(self._each(), torch.split(hidden, self._widths, -1), strict=True)
        log_probs = torch.stack([log_softmax(member.predict(part)) for member, part in parts])
        mean = (log_probs - math.log(len(self.members))).logsumexp(0)
        return mean.clone()  # the caller may change it, and gradients need the original

    def _each(self) -> Iterator[Captioner]:
        for member in self.members:
            assert isinstance(member, Captioner)
            yield member

    def _concatenate(self, hidden: list[Tensor]) -> Tensor:
        self._widths = [part.shape[-1] for part in hidden]
        return torch.cat(hidden, -1)


def _mean(attention: list[Tensor | None]) -> Tensor | None:
    weights = [part for part in attention if part is not None]
    return torch.stack(weights).mean(0) if len(weights) == len(attention) else None


def _join(parts: Iterator[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{i}.{name}": tensor for i, part in enumerate(parts) for name, tensor in part.items()}


def _part(joined: dict[str, Tensor], member: int) -> dict[str, Tensor]:
    prefix = f"{member}."
    return {name.removeprefix(prefix): tensor for name, tensor in joined.items() if name.startswith(prefix)}
