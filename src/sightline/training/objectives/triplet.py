"""The triplet loss of matchers: a pair must score higher than the hardest others of its batch, by a margin.

SCAN and POS-SCAN ("More Grounded Image Captioning by Distilling Image-Text Matching", Eq. 7) and VSRN ("Visual Semantic
Reasoning for Image-Text Matching", Eq. 8) train by it; VSRN adds the likelihood of the caption given its regions
(Eq. 9–10). R2M's matching loss (Eq. 12) is `hinge` of another similarity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sightline.config import check_ranges
from sightline.errors import ConfigError
from sightline.training.batches import Batch
from sightline.training.objective import Context, Losses, Objective, Progress


def hinge(
    scores: Tensor, margin: float = 0.2, hardest: bool = True, mask: Tensor | None = None, semi: bool = False
) -> Tensor:
    """(N,) the loss of each pair: [m − S(i,i) + S(i,j)]₊ + [m − S(i,i) + S(j,i)]₊ over the negatives j of pair i.

    Args:
        scores: (N, N) S of image (row) and text (column); pairs are on the diagonal.
        margin: m.
        hardest: of the hardest negative alone; otherwise summed over all of them.
        mask: (N, N) True where row and column may be negatives of each other's partner; None is all but the diagonal.
        semi: only negatives that score below the pair count ("semi-hard").

    >>> hinge(torch.tensor([[0.9, 0.8], [0.1, 0.5]]), margin=0.2)
    tensor([0.1000, 0.5000])
    """
    if mask is None:
        mask = ~torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    scores = scores.float()  # in half precision a margin of 0.2 has a hundred steps at most
    return _costs(scores, margin, hardest, mask, semi) + _costs(scores.T, margin, hardest, mask.T, semi)


def _costs(scores: Tensor, margin: float, hardest: bool, mask: Tensor, semi: bool) -> Tensor:
    """(N,) the costs of rows as queries."""
    pairs = scores.diagonal()[:, None]
    counted = mask & (scores < pairs) if semi else mask
    costs = (margin - pairs + scores).clamp(min=0).masked_fill(~counted, 0)
    return costs.max(1).values if hardest else costs.sum(1)


@dataclass(frozen=True)
class TripletConfig:
    """The triplet loss, with the hardest negatives of the batch."""

    kind: Literal["triplet"] = "triplet"
    margin: float = 0.2  # m of the equations
    hardest: bool = True  # only the hardest negative of each pair counts; otherwise all are summed, as in the first VSE
    # `sum` over the pairs of a batch (the released code of SCAN and VSRN), or their `mean`
    reduce: Literal["sum", "mean"] = "sum"
    # optimiser steps at the beginning that take the milder loss of `warmup_by`. Hardest negatives can make an untrained
    # model collapse: all scores become equal, and the loss stays at 2 · batch · margin.
    warmup: int = 0
    warmup_epochs: int = 0  # the same, in epochs
    # `all` negatives, or the hardest of those below the pair (`semi-hard`)
    warmup_by: Literal["all", "semi-hard"] = "all"
    # whether a caption of the same image counts as a negative. It is none, but the released code, which does not look,
    # takes it as one.
    same_image: bool = False
    generation: float = 0.0  # weight of VSRN's L_G (Eq. 9), the likelihood of captions; 1 is Eq. 10, 0 leaves it out.

    def __post_init__(self) -> None:
        check_ranges(self, **dict.fromkeys(("margin", "warmup", "warmup_epochs", "generation"), "[0, ∞)"))

    def build(self, context: Context) -> Triplet:
        return Triplet(self)


class Triplet(Objective):
    """L = L_M + λ · L_G over images with their captions, in batches of pairs or of images.

    L_M is `hinge` (POS-SCAN Eq. 7, VSRN Eq. 8), with `sum` over the batch or `mean`. L_G (VSRN Eq. 9) is the negative
    log-likelihood of a caption's words and END, summed over them and averaged over captions in either case.

    With `sum`, the weight of a batch is 1: the loss of an optimiser step is the mean over accumulated batches and
    processes of their sums. Negatives come from the batch of one process.

    Parts: `matching` and, with L_G, `generation`.
    """

    config: TripletConfig

    def weight(self, batch: Batch) -> float:
        """1 for `sum`, the number of captions for `mean`."""
        return 1.0 if self.config.reduce == "sum" else super().weight(batch)

    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        model, texts = self.matcher(model), self.captions(batch)
        images = model.embed_images(self.scenes(batch))
        scores = model.similarity(images, model.embed_texts(texts))  # (B, N)
        copies = len(texts) // len(batch.photos)
        matching = self._matching(scores.repeat_interleave(copies, 0), batch.photos.repeat_interleave(copies), progress)
        if not self.config.generation:
            return Losses(matching, {"matching": matching})
        if not hasattr(model, "generation_log_probs"):
            what = f"`generation` is {self.config.generation}, and a {model.config.kind} model writes no captions"
            raise ConfigError(what, fix="set it to 0, or train vsrn")
        log_probs = model.generation_log_probs(images, texts.ids)  # (N, T)
        generation = -log_probs.sum() * (self.weight(batch) / len(texts))  # VSRN Eq. 9
        total = matching + self.config.generation * generation  # VSRN Eq. 10
        return Losses(total, {"matching": matching, "generation": generation})

    def _matching(self, scores: Tensor, photos: Tensor, progress: Progress) -> Tensor:
        """The sum over pairs of POS-SCAN Eq. 7, VSRN Eq. 8."""
        config = self.config
        mask = None
        if not config.same_image:
            mask = (photos[:, None] != photos[None]).to(scores.device)
        warming = progress.step < config.warmup or progress.epoch < config.warmup_epochs
        semi = warming and config.warmup_by == "semi-hard"
        hardest = semi if warming else config.hardest
        return hinge(scores, config.margin, hardest, mask, semi).sum()
