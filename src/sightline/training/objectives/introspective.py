"""Introspective learning (IL): a caption is likelier on its own image than on another, by the model's own word.

The baseline "Base + IL" of Dai and Lin 2017, Table 4, after Vedantam et al. 2017 and Mao et al. 2016.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.config import check_ranges
from sightline.errors import ConfigError, CountError
from sightline.training.batches import Batch
from sightline.training.objective import Context, Losses, Objective, Progress, mode
from sightline.training.tensor_tables import Pool

DRAW = 0x494C  # sets this draw apart from those of batches


@dataclass(frozen=True)
class IntrospectiveConfig:
    """The choices of introspective learning."""

    kind: Literal["introspective"] = "introspective"
    loss: Literal["log-sigmoid", "max-margin"] = "log-sigmoid"  # `log-sigmoid`, or `max-margin`
    margin: float = 1.0  # of max-margin, by how much ln p(c | I) must exceed ln p(c | I′)
    # whether log-probabilities are computed with dropout. Both are the target's, but each with units of its own
    # dropped, so that their difference is partly noise.
    target_dropout: bool = False

    def __post_init__(self) -> None:
        check_ranges(self, margin="(0, ∞)")

    def build(self, context: Context) -> Introspective:
        """The objective; its other images come from the pool `train`."""
        if "train" not in context.pools:
            raise ConfigError("the objective introspective draws images from the training split, and there is none")
        pool = context.pools["train"]
        return Introspective(self, pool, draw_mismatches(pool, context.seed))


class Introspective(Objective):
    r"""The mean over captions of -ln σ(ln p(c | I) - ln p(c | I′)).

    Inputs: scenes and captions of the pool `train`. The other image I′ of a caption is drawn once for the whole run: it
    follows from the seed and the caption's row. The target is its own reference: gradients go through both terms. With
    `max-margin` the loss is max(0, margin - ln p(c | I) + ln p(c | I′)). Log-probabilities are sums over words and END.

    Each caption has an image I′ of its own, so a batch of 20 images with 5 captions each encodes 120 images.

    Log: `gap`, the mean of ln p(c | I) - ln p(c | I′).

    Relations: `contrastive` mismatches the caption instead, draws it anew each time, and compares with a fixed
    reference, which also keeps the likelihood of true captions from falling.
    """

    config: IntrospectiveConfig

    def __init__(self, config: IntrospectiveConfig, pool: Pool, others: Tensor) -> None:
        super().__init__(config)
        self.pool, self.others = pool, others

    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        model = self.captioner(model)
        images, words = self.scenes(batch), self.captions(batch).ids
        assert batch.captions is not None
        others = self.pool.scene_batch(self.others[batch.captions.cpu()]).to(words.device)  # I′, N of them
        with mode(model, model.training and self.config.target_dropout):
            true = model.log_prob(model.encode(images), words)
            mismatched = model.log_prob(model.encode(others), words)
        gap = true - mismatched  # (N,)
        loss = -F.logsigmoid(gap) if self.config.loss == "log-sigmoid" else (self.config.margin - gap).clamp(min=0)
        return Losses(loss.sum(), {"gap": gap.sum()})


def draw_mismatches(pool: Pool, seed: int) -> Tensor:
    """(M,) for each caption of the pool the row of a photo that is not its own, any other being as likely."""
    _, first = pool.captions("the objective introspective")
    owner = torch.repeat_interleave(first.diff())  # (M,) the photo of each caption
    if len(pool) < 2:
        raise CountError("another photo is needed for each caption, and there is one photo", fix="give more photos")
    shift = np.random.default_rng([DRAW, seed]).integers(1, len(pool), size=len(owner))
    return (owner + torch.from_numpy(shift)) % len(pool)
