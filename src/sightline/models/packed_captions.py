"""Captions that go on: after its end a caption teaches nothing, so the steps that follow can leave its row out."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sightline.models.captioner import Memory, State, images, per_image, select
from sightline.text.vocabulary import PAD


class ActiveRows(NamedTuple):
    """The hypotheses that a step computes, and how they meet their images; as it is, all of them.

    Attributes:
        kept: (n,) which those of the step before they are; None for all.
        places: (n,) where they are in (B, K), K being the most of an image; None if there is no other place.
        most: K.
    """

    kept: Tensor | None = None
    places: Tensor | None = None
    most: int = 0

    def of(self, state: State) -> State:
        """Their rows of the state of the step before."""
        return state if self.kept is None else select(state, self.kept)

    def per_image(self, rows: Tensor, memory: Memory) -> Tensor:
        """(n, …) as (B, K, …), which broadcasts against memory, 0 in the places of no hypothesis."""
        if self.places is not None:
            rows = rows.new_zeros(images(memory) * self.most, *rows.shape[1:]).index_copy(0, self.places, rows)
        return per_image(rows, memory)

    def flat(self, parts: Tensor) -> Tensor:
        """(B, K, …) as (n, …)."""
        rows = parts.flatten(0, 1)
        return rows if self.places is None else rows.index_select(0, self.places)

    def plus_image(self, rows: Tensor, memory: Memory, name: str) -> Tensor:
        """(n, …) and, to each, what memory has of its image under `name`; in place without gradients."""
        if self.places is not None:
            return rows + memory[name].index_select(0, self.places // self.most)
        shared, image = per_image(rows, memory), memory[name].unsqueeze(1)
        return (shared + image if torch.is_grad_enabled() else shared.add_(image)).flatten(0, 1)


class PackedCaptions:
    """Words (N, T) step by step: all of them, or each caption only to its last one that is no padding.

    >>> from sightline.text.vocabulary import START
    >>> words = torch.tensor([[START, 7, 8, 9], [START, 5, PAD, PAD]])
    >>> reading = PackedCaptions(words, {"regions": torch.zeros(1, 36, 2048)}, to_end=True)
    >>> [step.tolist() for step in reading.words]
    [[1, 1], [7, 5], [8], [9]]
    >>> reading.join([step * 10 for step in reading.words])
    tensor([[10, 70, 80, 90],
            [10, 50,  0,  0]])
    """

    def __init__(self, words: Tensor, memory: Memory, to_end: bool) -> None:
        self.words, self.rows = words.unbind(1), [ActiveRows()] * words.shape[1]
        self._going: Tensor | None = None
        if to_end and words.numel():
            self._leave_out(words, memory)

    def _leave_out(self, words: Tensor, memory: Memory) -> None:
        going = (words != PAD).flip(1).cummax(1).values.flip(1).T.contiguous()  # (T, N), to the last word
        grouped = per_image(going.T, memory).permute(2, 0, 1)  # (T, B, K)
        most = grouped.sum(2).amax(1)  # (T,)
        first = torch.arange(grouped.shape[1], device=words.device) * most.unsqueeze(1)  # (T, B)
        places = (first.unsqueeze(2) + grouped.cumsum(2) - 1).flatten(1)[going]
        kept = (going.cumsum(1) - 1).roll(1, 0)[going]
        counts = going.sum(1).tolist()
        self._going, self.words = going, torch.split(words.T[going], counts)
        steps = zip(torch.split(kept, counts), torch.split(places, counts), most.tolist(), strict=True)
        before = len(words)
        for t, (rows, where, width) in enumerate(steps):
            full = len(rows) == len(first[0]) * width
            self.rows[t] = ActiveRows(None if len(rows) == before else rows, None if full else where, width)
            before = len(rows)

    def join(self, steps: list[Tensor]) -> Tensor:
        """What each step computed, T times (n, …), as (N, T, …), 0 after the last word."""
        if self._going is None:
            return torch.stack(steps, 1)
        found = torch.cat(steps)
        whole = found.new_zeros(*self._going.shape, *found.shape[1:])
        return whole.index_put((self._going,), found).transpose(0, 1)
