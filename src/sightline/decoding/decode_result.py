"""What decoding gives, and what its loops share: the best words, dropping images that are done, errors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.errors import ConfigError, NonFiniteError
from sightline.models.captioner import Memory
from sightline.text.vocabulary import END, PAD, START

DONE_SHARE = 0.25  # of the images in the loop: as many must be done before the others are copied together

BLOCK = 128  # words of which `top` and sampling look at the best, or the sum, before they look at each


@dataclass(frozen=True, eq=False)
class DecodeResult:
    """K captions for each of B images, best first (samples: in the order they were drawn).

    `words.flatten(0, 1)` goes straight into a captioner's `forward` or `log_prob`. Every caption ends in END. Where the
    rules allow fewer than K different captions, the missing ones are empty with a log-probability of -inf.
    """

    words: Tensor  # (B, K, T) ids: START, the words, END, padding
    # (B, K) the model's log-probability of words and END; of words alone where a caption that is to be whole
    # (`Rules.whole`) ends before the model would.
    log_probs: Tensor
    scores: Tensor  # (B, K) what ranked them: the log-probability less penalties, after the length penalty
    finished: Tensor  # (B, K) False where the caption has `max_words` words, after which END was forced, or is missing

    @classmethod
    def of(cls, words: Tensor, log_probs: Tensor, scores: Tensor) -> DecodeResult:
        """From words as long as the rules allow, (B, K, max_words + 2), which are cut to the longest caption."""
        lengths = (words != PAD).sum(-1)
        finished = (lengths < words.shape[-1]) & log_probs.isfinite()
        return cls(words[..., : int(lengths.max())].contiguous(), log_probs, scores, finished)


def empty(*shape: int, max_words: int, device: torch.device) -> Tensor:
    """(…, max_words + 2) captions without words: START, END, padding."""
    words = torch.full((*shape, max_words + 2), PAD, dtype=torch.long, device=device)
    words[..., 0], words[..., 1] = START, END
    return words


def device_of(memory: Memory) -> torch.device:
    return next(iter(memory.values())).device


def should_drop(busy: int, total: int) -> bool:
    """Whether enough of the images in the loop are done for the rest to be copied together."""
    return busy <= total * (1 - DONE_SHARE)


def not_a_number() -> NonFiniteError:
    return NonFiniteError(
        "the model gives probabilities that are not numbers", fix="check its weights and the features it was given"
    )


def no_caption(image: int) -> ConfigError:
    """The error for an image whose hypotheses all came to a point where the rules forbid every word."""
    return ConfigError(
        f"no caption was found for image {image} of the batch: at some step the rules leave no word to say",
        fix="allow more words, ask for fewer that must be said, or decode with a larger beam",
    )


def top(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(N, V) to the k largest of each row and their places, (N, k) each; of equal ones, the lowest place first.

    `torch.topk` promises no order among equals, and on a CPU is slower than this: the maximum of every block of a row,
    then k times the best of the best block. It writes -inf over what it takes out of `values`.
    """
    count = values.shape[1]
    k = min(k, count)
    if k == 1:
        best = values.max(1, keepdim=True)
        return best.values, best.indices
    if k * BLOCK > count:
        ordered = values.sort(dim=1, descending=True, stable=True)
        return ordered.values[:, :k], ordered.indices[:, :k]
    in_blocks = count // BLOCK * BLOCK  # places in full blocks
    maxima = values[:, :in_blocks].view(len(values), -1, BLOCK).amax(-1)  # (N, blocks)
    if in_blocks < count:
        maxima = torch.cat([maxima, values[:, in_blocks:].amax(1, keepdim=True)], 1)
    within = torch.arange(BLOCK, device=values.device)
    largest, places = [], []
    for _ in range(k):
        block = maxima.max(1, keepdim=True).indices  # (N, 1)
        members = (block * BLOCK + within).clamp_(max=count - 1)  # (N, BLOCK)
        best = values.gather(1, members).max(1, keepdim=True)
        place = members.gather(1, best.indices)
        largest.append(best.values)
        places.append(place)
        values.scatter_(1, place, -torch.inf)
        maxima.scatter_(1, block, values.gather(1, members).amax(1, keepdim=True))
    return torch.cat(largest, 1), torch.cat(places, 1)
