"""CIDEr-D of sampled captions where they were sampled: on a GPU nothing waits for the host.

The scores are those of `CiderDReward`, whose tables of n-grams and weights it reads. Captions of a batch are few and
short, so all pairs of their places are compared at once instead of looking for n-grams that two of them share.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.metrics.cider import SIGMA
from sightline.metrics.cider_reward import CiderDReward
from sightline.text.vocabulary import PAD

TINY = 1e-12  # what divisors are at least: where a norm is 0 the product is 0 too


class DeviceCiderD:
    """CIDEr-D × 10 of samples against the references of their photos, all tensors of one device.

    Both are word ids with END and padding behind them; a reference that is padding alone is none. Document frequencies
    are those of `scorer`.
    """

    def __init__(self, scorer: CiderDReward, device: torch.device) -> None:
        self._tables = [
            (order.bits, torch.from_numpy(order.table).to(device), torch.from_numpy(order.idf).float().to(device))
            for order in scorer.orders
        ]

    def __call__(self, samples: Tensor, references: Tensor) -> Tensor:
        """(B, K) scores of samples (B, K, T) against references (B, R, S)."""
        same = _equal(samples, samples)  # (B, K, T, T) whether two words of a sample are the same
        same_there = _equal(references, references)  # (B, R, S, S)
        same_across = _equal(samples[:, :, None], references[:, None])  # (B, K, R, T, S)
        idf, idf_there = self._weights(samples), self._weights(references)
        within, there, across = same, same_there, same_across  # whether two n-grams that begin there are the same
        total = torch.zeros(across.shape[:3], device=samples.device)  # (B, K, R)
        for n, (own, others) in enumerate(zip(idf, idf_there, strict=True)):
            if n:
                within, there = _longer(within, same, n), _longer(there, same_there, n)
                across = _longer(across, same_across, n)
            # An n-gram that is said `count` times stands in `count` places: each of these adds its share to the sums.
            count, shared = within.sum(-1), across.sum(-1)  # (B, K, T - n) in the sample, (B, K, R, T - n) in both
            weight = own.square()
            norm = (count * weight).sum(-1).sqrt()  # (B, K)
            norm_there = (there.sum(-1) * others.square()).sum(-1).sqrt()  # (B, R)
            clipped = torch.minimum(count[:, :, None], shared) * shared / count[:, :, None].clamp(min=1)
            product = (clipped * weight[:, :, None]).sum(-1)  # (B, K, R)
            total += product / (norm[:, :, None] * norm_there[:, None]).clamp(min=TINY)
        difference = _bigrams(samples)[:, :, None] - _bigrams(references)[:, None]
        total *= torch.exp(-difference.float().square() / (2 * SIGMA**2))
        real = (references != PAD).any(-1).float()[:, None]  # (B, 1, R)
        return 10 * (total * real).sum(-1) / (len(self._tables) * real.sum(-1))

    def _weights(self, words: Tensor) -> list[Tensor]:
        """For n = 1, 2, …, the weights of the n-grams that begin at each place of words (…, T): (…, T - n + 1)."""
        weights = []
        number = torch.zeros_like(words)  # of the (n - 1)-gram before the word, -1 where no reference has it
        for n, (bits, table, idf) in enumerate(self._tables):
            last = words[..., n:]
            keys = (number[..., : last.shape[-1]] << bits) | last
            keys = keys.masked_fill((last >> bits) > 0, -1)
            number = torch.full_like(keys, -1)
            if len(table):
                place = torch.searchsorted(table, keys).clamp(max=len(table) - 1)
                number = place.where(table[place] == keys, number)
            weights.append(idf[number])  # the last of `idf` is the weight of n-grams that no reference has
        return weights


def _equal(first: Tensor, second: Tensor) -> Tensor:
    """(…, T, S) whether a word of (…, T) is that of (…, S); padding is like nothing."""
    return (first[..., :, None] == second[..., None, :]) & (first != PAD)[..., :, None]


def _longer(ngrams: Tensor, words: Tensor, n: int) -> Tensor:
    """From which pairs of places on n + 1 words are the same, by those where n are, and the words n places later."""
    return ngrams[..., :-1, :-1] & words[..., n:, n:]


def _bigrams(words: Tensor) -> Tensor:
    return ((words != PAD).sum(-1) - 1).clamp(min=0)
