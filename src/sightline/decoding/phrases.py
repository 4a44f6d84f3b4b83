"""Runs of words in what was said so far, over all hypotheses at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def follows(said: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The words that would end an n-gram which (N, t) `said` already holds.

    Returns (N, t - n + 1) last words of its n-grams, and where the n - 1 words before are those said last.
    """
    if said.shape[1] < n:
        return said[:, :0], said[:, :0].bool()
    grams = said.unfold(1, n, 1)  # (N, t - n + 1, n)
    begins = said[:, said.shape[1] - n + 1 :]  # (N, n - 1)
    return grams[..., -1], (grams[..., :-1] == begins.unsqueeze(1)).all(-1)


def progress(said: Tensor, wanted: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """How far (M, t) hypotheses have come with the wanted phrases.

    Returns (M,) the words of phrases already said whole, plus those of the longest one begun; and (M, phrases) for each
    phrase the word that takes it on. The word that takes on the longest adds at least 1, so that hypotheses which never
    fall behind exist; the number of wanted words is reached only when every phrase has been said.
    """
    met = torch.zeros(len(said), dtype=torch.long, device=said.device)
    begun_most = torch.zeros_like(met)
    steps = []
    for phrase in wanted:
        size = len(phrase)
        if said.shape[1] >= size:
            whole = (said.unfold(1, size, 1) == phrase).all(-1).any(1)
        else:
            whole = torch.zeros_like(met, dtype=torch.bool)
        begun = torch.zeros_like(met)
        for length in range(1, min(size, said.shape[1] + 1)):
            begun = torch.where((said[:, -length:] == phrase[:length]).all(1), length, begun)
        met += whole * size
        begun_most = torch.maximum(begun_most, begun.masked_fill(whole, 0))
        steps.append(phrase[begun])
    return met + begun_most, torch.stack(steps, 1)


def contains(phrase: Sequence[int], other: Sequence[int]) -> bool:
    """Whether `other` is a run of words within `phrase`."""
    size = len(other)
    return any(list(phrase[i : i + size]) == list(other) for i in range(len(phrase) - size + 1))
