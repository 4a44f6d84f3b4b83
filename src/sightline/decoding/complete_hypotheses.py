"""Hypotheses of a beam that have ended."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.decoding.decode_result import DecodeResult, empty, no_caption, not_a_number
from sightline.text.vocabulary import PAD


@dataclass(frozen=True, eq=False)
class CompleteHypotheses:
    """The best finished hypotheses of every image and group, best first; missing ones score -inf."""

    words: Tensor  # (B, groups, keep, max_words + 2)
    scores: Tensor  # (B, groups, keep)
    log_probs: Tensor  # (B, groups, keep)

    @classmethod
    def none(cls, count: int, groups: int, keep: int, max_words: int, device: torch.device) -> CompleteHypotheses:
        """The places, all missing."""
        lowest = torch.full((count, groups, keep), -torch.inf, device=device)
        return cls(empty(count, groups, keep, max_words=max_words, device=device), lowest, lowest.clone())

    def add(self, image: Tensor, said: Tensor, scores: Tensor, log_probs: Tensor) -> None:
        """Take in new ones (b, p, …) of the images `image` where their score is above -inf; of equals, the older."""
        groups, keep, longest = self.words.shape[1:]
        by_group = (len(image), groups, -1)
        new = torch.nn.functional.pad(said, (0, longest - said.shape[2]), value=PAD).view(*by_group, longest)
        all_scores = torch.cat([self.scores[image], scores.view(by_group)], 2)
        ranked = all_scores.sort(dim=2, descending=True, stable=True)
        order = ranked.indices[..., :keep]
        all_words = torch.cat([self.words[image], new], 2)
        all_log_probs = torch.cat([self.log_probs[image], log_probs.view(by_group)], 2)
        self.words[image] = all_words.gather(2, order.unsqueeze(3).expand(-1, -1, -1, longest))
        self.scores[image] = ranked.values[..., :keep]
        self.log_probs[image] = all_log_probs.gather(2, order)

    def decoded(self) -> DecodeResult:
        """All groups together, best first."""
        ranked = self.scores.flatten(1).sort(dim=1, descending=True, stable=True)
        if ranked.values.isnan().any():
            raise not_a_number()
        if ranked.values[:, 0].isinf().any():
            raise no_caption(int(ranked.values[:, 0].isinf().nonzero()[0]))
        words = along(self.words.flatten(1, 2), ranked.indices)
        return DecodeResult.of(words, self.log_probs.flatten(1).gather(1, ranked.indices), ranked.values)


def along(rows: Tensor, places: Tensor) -> Tensor:
    """rows (b, c, t) at places (b, p): (b, p, t)."""
    return rows.gather(1, places.unsqueeze(2).expand(-1, -1, rows.shape[2]))
