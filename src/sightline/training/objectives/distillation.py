"""Distillation: cross-entropy, and attention that follows a matcher's, or people's boxes, wherever a noun is said.

Zhou et al., "More Grounded Image Captioning by Distilling Image-Text Matching" (CVPR 2020), section 3.3, Eq. 15–16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.config import check_ranges
from sightline.errors import ConfigError
from sightline.models.layers import masked_softmax
from sightline.models.matcher import AligningMatcher
from sightline.text.tagger import NOUNS, Tagger
from sightline.text.vocabulary import UNK
from sightline.training.batches import Batch
from sightline.training.objective import Context, Losses, Objective, Progress, Teacher, no_gradients
from sightline.training.objectives.cross_entropy import ScheduledSampling, words_read
from sightline.training.word_boxes import POSITIVE

BOXES = "boxes"
TEMPERATURE = 0.5  # of the softmax over overlaps
LEAST = 1e-8  # the least weight a logarithm is taken of, as in the released code

Form = Literal["kl", "kl-reversed", "nll", "sum", "extend-nll"]


@dataclass(frozen=True)
class DistillationConfig:
    """Cross-entropy with guided attention."""

    teacher: str  # the checkpoint of a matcher that aligns words with regions (pos-scan, scan), or `boxes`
    kind: Literal["distillation"] = "distillation"
    # how attention β follows the teacher's α: `kl`, KL(β‖α) as printed; `kl-reversed`, KL(α‖β), the released code;
    # `nll`, −log β of the region with the largest α. With boxes α is softmax(IoU / 0.5), `nll` takes the region with
    # the largest IoU, and there are `sum`, Eq. 16 over all positive regions, and `extend-nll`, their mean.
    form: Form = "kl"
    weight: float = 0.1  # λ₁ of the attention term
    scheduled_sampling: ScheduledSampling | None = None  # when the model reads words of its own; null never
    full_stop: bool = False  # captions are given to the teacher with a full stop at the end

    def __post_init__(self) -> None:
        check_ranges(self, weight="[0, ∞)")
        if self.form in ("sum", "extend-nll") and self.teacher != BOXES:
            raise ConfigError(f"`form` is {self.form}, which needs boxes", fix="choose kl, kl-reversed or nll")

    def build(self, context: Context) -> Distillation:
        return Distillation(self, context)


class Distillation(Objective):
    """l = mean over words and ENDs of −log p + λ₁ · mean over nouns of the attention term (Eq. 15, 16).

    β of a word is the attention of the step that predicts it, α the teacher's over the same scene and surface words.
    Eq. 15 compares distributions over regions: there β is divided by its sum, which is below 1 where a model looks at
    grid cells too. Eq. 16 and `nll` take β as it is, so that they also draw attention from the cells to the regions.
    Words that captioner or teacher does not know get no term; with boxes, only words of which some region is positive
    do. Eq. 15 prints sums; the released code takes two means over different counts. So the weight of a batch is its
    tokens, and its mean over nouns comes times the tokens: for one batch the loss is the formula above, for several (of
    processes, or accumulated) their means over nouns are averaged by tokens.

    One pass gives likelihood and attention. The teacher is frozen. Relations: λ₁ = 0 is `cross-entropy`;
    `self-critical` with a matcher's reward is the next stage.

    Parts: `cross-entropy` and `attention`.
    """

    config: DistillationConfig

    def __init__(self, config: DistillationConfig, context: Context) -> None:
        super().__init__(config)
        self.positives = config.teacher == BOXES
        self.teacher = None if self.positives else Teacher(context, config.teacher, config.full_stop)
        if self.teacher is not None and not isinstance(self.teacher.model, AligningMatcher):
            what = f"{config.teacher} is a {self.teacher.model.config.kind} model and does not align words with regions"
            raise ConfigError(what, fix="give a pos-scan or scan model")

    def weight(self, batch: Batch) -> float:
        return self.count_words(batch)

    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        model, texts = self.captioner(model), self.captions(batch)
        memory = model.encode(self.scenes(batch))
        read = words_read(self.config.scheduled_sampling, model, memory, texts.ids, progress)
        hidden, trace = model.unroll(memory, read)
        if trace.regions is None:
            raise ConfigError(f"a {model.config.kind} model has no attention over regions", fix="train updown or jran")
        nll = -model.target_log_probs(hidden, texts.ids[:, 1:]).sum()
        target, counted = self._target(batch, texts)  # (N, T, n), (N, T)
        terms = self._terms(trace.regions[counted].float(), target[counted])  # one for each noun
        attention = terms.sum() / max(1, len(terms)) * self.weight(batch)
        return Losses(nll + self.config.weight * attention, {"cross-entropy": nll, "attention": attention})

    def _target(self, batch: Batch, texts: TextBatch) -> tuple[Tensor, Tensor]:
        """(N, T, n) the teacher's α, or the regions' IoU, of the words after START; (N, T) which words count."""
        if self.teacher is not None:
            with no_gradients(texts.ids.device):
                return self._alignment(self.teacher, self.scenes(batch), texts)
        assert batch.positives is not None
        overlaps = batch.positives[:, 1:].float()
        return overlaps, (overlaps > POSITIVE).any(2)

    def _alignment(self, teacher: Teacher, photos: SceneBatch, texts: TextBatch) -> tuple[Tensor, Tensor]:
        nouns = texts.tagged if texts.tagged is not None else _nouns(texts)
        theirs = teacher.texts(texts.words, texts.ids.device, nouns)
        copies = len(texts) // len(photos)
        images = {name: part.repeat_interleave(copies, 0) for name, part in teacher.images(photos).items()}
        assert isinstance(teacher.model, AligningMatcher)
        weights = teacher.model.alignment(images, teacher.model.embed_texts(theirs))  # (N, T + 1 or more, n)
        length = texts.ids.shape[1]
        known = (texts.ids != UNK) & (theirs.ids[:, :length] != UNK)
        return weights[:, 1:length].float(), (nouns & known)[:, 1:]

    def _terms(self, beta: Tensor, target: Tensor) -> Tensor:
        """(M,) the attention term of each counted word, from β (M, n) and what `_target` gives (M, n)."""
        form, positive = self.config.form, target > POSITIVE
        if form == "nll":
            return -_log(beta).gather(1, target.argmax(1, keepdim=True)).squeeze(1)
        if form in ("sum", "extend-nll"):
            costs = -(positive * _log(beta)).sum(1)  # Eq. 16
            return costs if form == "sum" else costs / positive.sum(1)
        beta = beta / beta.sum(1, keepdim=True).clamp(min=LEAST)  # of a model that looks at more than regions, below 1
        alpha = masked_softmax(target / TEMPERATURE, target >= 0) if self.positives else target
        p, q = (beta, alpha) if form == "kl" else (alpha, beta)
        return (p * (_log(p) - _log(q))).sum(1)  # Eq. 15


def _log(weights: Tensor) -> Tensor:
    return weights.clamp(min=LEAST).log()


def _nouns(texts: TextBatch) -> Tensor:
    """(N, T + 1) which words the tagger calls nouns."""
    nouns = torch.zeros(texts.mask.shape, dtype=torch.bool)
    for row, tags in zip(nouns, Tagger.default().tag_all(texts.words), strict=True):
        row[1 : len(tags) + 1] = torch.tensor([tag in NOUNS for tag in tags], dtype=torch.bool)
    return nouns.to(texts.mask.device)
