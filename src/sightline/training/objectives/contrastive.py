"""Contrastive learning (CL): tell true pairs from mismatched ones better than a reference does.

Dai and Lin, "Contrastive Learning for Image Captioning", NeurIPS 2017, section 4.2; equation numbers are theirs.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch, TextBatch
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.config import check_ranges
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner
from sightline.text.vocabulary import PAD
from sightline.training.batches import Batch
from sightline.training.objective import Context, Losses, Objective, Progress, mode, refuse_other_vision

START = "start"


@dataclass(frozen=True)
class ContrastiveConfig:
    """The choices of contrastive learning; the defaults are the paper's, but for `target_dropout`."""

    kind: Literal["contrastive"] = "contrastive"
    # `start`, a copy of the model at the beginning of the stage; or a checkpoint, `row:NAME` or a path, of any
    # captioner with the same words
    reference: str = START
    negatives: int = 5  # K, mismatched captions for each true one
    nu: float = 1.0  # ν, how many mismatched pairs there are for each true one; see Eq. 3.
    # `full`; `positive`, true pairs alone, CL(P); `negative`, mismatched pairs alone, CL(N)
    terms: Literal["full", "positive", "negative"] = "full"
    ratio: bool = True  # true for G and h of Eq. 7-9; false for the difference D of Eq. 5-6.
    scale: float = 1e8  # D is multiplied by it. Probabilities of captions are about 1e-8, says section 4.2.
    # epochs after which the reference becomes a copy of the model as it is then, again and again; 0 never
    replace_every: int = 0
    target_dropout: bool = False  # whether ln p_m is computed with dropout, as in the released code; see `Contrastive`

    def __post_init__(self) -> None:
        if not self.reference:
            raise ConfigError("`reference` is empty", fix="give `start`, `row:NAME` or a path to a checkpoint")
        check_ranges(self, negatives="[1, ∞)", nu="(0, ∞)", scale="(0, ∞)", replace_every="[0, ∞)")

    def build(self, context: Context) -> Contrastive:
        if self.reference == START:
            return Contrastive(self, Reference())
        checkpoint = context.checkpoint(self.reference)
        if checkpoint.vocabulary != context.vocabulary:
            theirs, ours = len(checkpoint.vocabulary), len(context.vocabulary)
            raise ConfigError(
                f"the reference knows {theirs} words and the trained model {ours}, or the same words in another order",
                where=self.reference,
                fix="train both with one word list: the same captions, data.rule and words",
            )
        checkpoint.model.to(context.device)
        return Contrastive(self, Reference(checkpoint, self.reference))


class Contrastive(Objective):
    r"""The mean over captions c of -ln h(c, I) - 1/K Σ_k ln(1 - h(c_/k, I)), which is -J of Eq. 10.

    Inputs: scenes, their captions c, and K captions c_/ of other images for each of them. For a pair,

        G = ln p_m(c | I) - ln p_n(c | I)    (Eq. 7)    target against reference, summed over words and END
        h = 1 / (1 + ν e^{-G}) = σ(G - ln ν) (Eq. 3, 8)

    and ln h, ln(1 - h) are computed as logsigmoid of ±(G - ln ν), without rounding h to 0 or 1. Log-probabilities are
    summed in float32, whatever the model computes in: G is a small difference of large sums.

    How strongly a true pair is pulled up is 1 - h, how strongly a mismatched one is pushed down is h. Where target and
    reference are the same model, both are 0.5, since the target is evaluated like the reference: without dropout and
    with the statistics that batch norms have by then. `target_dropout` trains the target as it was trained before. It
    then knows every caption less well than the reference does, G is negative for true and mismatched pairs alike, and
    the mismatched ones hardly count: a pull of 0.91 and a push of 0.18 at the start, measured at a dropout of 0.5.

    `ratio: false` is the paper's first attempt, which it gives up: D = p_m - p_n (Eq. 5), to be maximised on true and
    minimised on mismatched pairs (Eq. 6), here times `scale`, e^{ln p + ln scale}, which keeps float32 and Adam's eps
    out of it and changes the loss by that factor only. What it means: p_n is a constant, so the reference has no effect
    on the gradient; and the gradient of a pair is p_m · ∇ ln p_m, so pairs count by the probability they already have,
    and improbable ones, the hard cases among true pairs, hardly at all.

    Log: `positive` and `negative`, the two terms; `G true` and `G mismatched`, means; with `ratio` also `pull` and
    `push`, the means of 1 - h of true and of h of mismatched pairs.

    Relations: `positive` alone is cross-entropy of whole captions that fades where a caption is already likelier than
    under the reference; `introspective` mismatches the image and has no reference. Table 6 replaces the reference by
    the best model of a run: two stages, each with `reference: start`. `replace_every` takes the latest model instead.
    """

    config: ContrastiveConfig

    def __init__(self, config: ContrastiveConfig, reference: Reference) -> None:
        super().__init__(config)
        self.reference = reference
        self.negatives = 0 if config.terms == "positive" else config.negatives

    def begin(self, model: Any, epoch: int = 0) -> None:
        replaced = self.config.replace_every and epoch >= self.config.replace_every
        if self.config.reference == START or replaced:
            self.reference.replace(self.captioner(model))

    def after_epoch(self, model: Any, epoch: int) -> None:
        """Replace the reference where it is due (section 4.3)."""
        if self.config.replace_every and (epoch + 1) % self.config.replace_every == 0:
            self.reference.replace(self.captioner(model))

    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        model = self.captioner(model)
        images = self.scenes(batch)
        assert len(batch.negatives) == self.negatives
        # the captions of the images, then K times those of other images
        texts = [*([] if self.config.terms == "negative" else [self.captions(batch)]), *batch.negatives]
        words = _side_by_side(texts, len(images))
        with mode(model, model.training and self.config.target_dropout):
            target = model.log_prob(model.encode(images), words)
        with torch.no_grad():
            frozen = self.reference.get(images)
            reference = frozen.log_prob(frozen.encode(images), words)
        # (B, true and mismatched, C); with terms `negative` there is none that is true
        target, reference = (part.view(len(images), len(texts), -1) for part in (target, reference))
        return self._losses(target, reference, len(texts) - self.negatives)

    def _losses(self, target: Tensor, reference: Tensor, true: int) -> Losses:
        """From log-probabilities (B, S, C), of which the first `true` of S belong to the image."""
        gap = target - reference  # Eq. 7
        logit = gap - math.log(self.config.nu)  # Eq. 3, 8: h = σ(logit)
        if self.config.ratio:
            positive, negative = -F.logsigmoid(logit[:, :true]), -F.logsigmoid(-logit[:, true:])  # Eq. 9
        else:
            scale = math.log(self.config.scale)
            difference = (target + scale).exp() - (reference + scale).exp()  # Eq. 5
            positive, negative = -difference[:, :true], difference[:, true:]  # Eq. 6
        parts, copies = dict[str, Tensor](), self.config.negatives
        if true:
            parts |= {"positive": positive.sum(), "G true": gap[:, :true].sum()}
        if self.negatives:
            parts |= {"negative": negative.sum() / copies, "G mismatched": gap[:, true:].sum() / copies}
        if true and self.config.ratio:
            parts["pull"] = (-logit[:, :true]).sigmoid().sum()
        if self.negatives and self.config.ratio:
            parts["push"] = logit[:, true:].sigmoid().sum() / copies
        return Losses(positive.sum() + negative.sum() / copies, parts)  # Eq. 10


def _side_by_side(texts: list[TextBatch], images: int) -> Tensor:
    """(B·S·C, T): all captions of an image next to each other, from S batches of C captions for each of B images."""
    longest = max(part.ids.shape[1] for part in texts)
    padded = [F.pad(part.ids, (0, longest - part.ids.shape[1]), value=PAD) for part in texts]
    return torch.stack([ids.view(images, -1, longest) for ids in padded], 1).flatten(0, 2)


class Reference(nn.Module):
    """A captioner in evaluation mode that no gradient and no optimiser reaches.

    A checkpoint can be loaded again, so the training state leaves it out. A copy of the trained model exists nowhere
    else, so it is a submodule, whose weights are in the state.
    """

    def __init__(self, checkpoint: Checkpoint | None = None, name: str = "") -> None:
        super().__init__()
        self.copy: Captioner | None = None
        self._fingerprint = "" if checkpoint is None else checkpoint.fingerprint
        # a tuple, so that it is no submodule
        self._loaded = () if checkpoint is None else (checkpoint.captioner(name).eval().requires_grad_(False),)

    def train(self, mode: bool = True) -> Reference:
        return super().train(False)

    def replace(self, model: Captioner) -> None:
        if self.copy is None:
            self.copy = deepcopy(model).eval().requires_grad_(False)
        else:
            self.copy.load_state_dict(model.state_dict())
        self._loaded, self._fingerprint = (), ""

    def get(self, scenes: SceneBatch) -> Captioner:
        """The reference; scenes of another vision model than it was trained on are refused."""
        refuse_other_vision("the reference", self._fingerprint, scenes.fingerprint)
        reference = self._loaded[0] if self._loaded else self.copy
        assert reference is not None, "`begin` comes before the first batch"
        return reference
