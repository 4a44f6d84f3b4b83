"""What is in a photo, as a fixed number of names that a captioner reads: those of regions and those of the whole.

A detector's regions are called by its own names (`concept_names`), and the photo as a whole by the classes of ImageNet,
as specifically as their probabilities allow (`imagenet_concepts`). Both are one list, in which a name stands once.
Everything here is computed for a batch at once, so that a captioner can read names while both are trained.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from sightline.vision.concept_names import concept_names
from sightline.vision.imagenet_concepts import Hedging, hedged_probabilities, kinds

MOST = 8  # names of a photo that are read
AHEAD = 0.3  # of regions' names are ImageNet's by so much: regions have many names for one thing
LEAST = 0.3  # how sure a region's name must be, as for `Detector.concepts`


class ConceptTokens(NamedTuple):
    """Names of B photos, the surest first."""

    names: Tensor
    """(B, k) places in `token_names`, -1 where a photo has no more."""
    scores: Tensor
    """(B, k, 2) how sure a region's name is, and how sure ImageNet's is; 0 where it is not told."""
    boxes: Tensor
    """(B, k, 4) of the region that bears the name; the whole photo where none does."""


@cache
def token_names() -> tuple[str, ...]:
    """The names: those of regions, in their order, then those of ImageNet's classes that are not among them."""
    return tuple(dict.fromkeys((*concept_names(), *(chain[0] for chain in kinds().chains))))


@cache
def _places() -> Tensor:
    """(N,) where each name of `kinds` stands in `token_names`."""
    place = {name: number for number, name in enumerate(token_names())}
    return torch.tensor([place[chain[0]] for chain in kinds().chains])


def concept_tokens(sure: Tensor, boxes: Tensor, logits: Tensor | None, hedging: Hedging | None = None) -> ConceptTokens:
    """The surest names of photos.

    Args:
        sure: (B, n, K) how sure each region is of each of the names of `concept_names`.
        boxes: (B, n, 4) of the regions.
        logits: (B, 1000) of the classes of ImageNet; None leaves them out.
        hedging: when one of these is sure enough.
    """
    best, region = sure.max(1)  # (B, K)
    count = len(token_names())
    scores = best.new_zeros(len(best), count, 2)
    scores[:, : best.shape[1], 0] = best * (best >= LEAST)
    if logits is not None:
        chances = hedged_probabilities(logits, hedging).to(scores.dtype)  # (B, N), 0 where a name is not told
        place = _places().to(scores.device).expand(len(scores), -1)
        scores[:, :, 1] = scores[:, :, 1].scatter_reduce(1, place, chances, "amax")
    _, names = (scores + scores.new_tensor([0.0, AHEAD]) * (scores > 0)).amax(2).topk(MOST, 1)
    top = scores.amax(2).gather(1, names)
    whole = boxes.new_tensor([0.0, 0.0, 1.0, 1.0])
    of_region = (names < best.shape[1]) & (scores[:, :, 0].gather(1, names) > 0)
    row = region.gather(1, names.clamp(max=best.shape[1] - 1))
    own = boxes.gather(1, row[..., None].expand(-1, -1, 4))
    return ConceptTokens(
        names.masked_fill(top <= 0, -1),
        scores.gather(1, names[..., None].expand(-1, -1, 2)),
        torch.where(of_region[..., None], own, whole),
    )
