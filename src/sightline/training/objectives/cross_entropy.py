"""Cross-entropy: maximum likelihood, word by word (CL paper, Eq. 1), with label smoothing and scheduled sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sightline.config import check_ranges
from sightline.decoding.decode import draw
from sightline.models.captioner import Captioner, Memory, captions_read, expand
from sightline.models.end_to_end import frozen_scenes
from sightline.text.vocabulary import PAD
from sightline.training.batches import Batch
from sightline.training.objective import Context, Losses, Objective, Progress, no_gradients
from sightline.training.objectives.name_variation import NameVariation
from sightline.vision.concept_tokens import token_names


@dataclass(frozen=True)
class ScheduledSampling:
    """How often the model reads a word it drew itself instead of the caption's (Bengio et al. 2015).

    The probability is 0 at first and grows by `increase` each `every` epochs, up to `limit`. The defaults are those of
    self-critical code, which the POS-SCAN paper trains with.
    """

    start: int = 0  # the epoch (from 0) in which the counting begins
    increase: float = 0.05  # added each time
    every: int = 5  # epochs between two additions
    limit: float = 0.25  # the highest probability

    def __post_init__(self) -> None:
        where = "scheduled_sampling."
        check_ranges(self, where, start="[0, ∞)", every="[1, ∞)", increase="[0, 1]", limit="[0, 1]")

    def at(self, epoch: int) -> float:
        """The probability in an epoch (from 0)."""
        return min(self.limit, self.increase * (max(0, epoch - self.start) // self.every))


@dataclass(frozen=True)
class CrossEntropyConfig:
    """The choices of cross-entropy."""

    kind: Literal["cross-entropy"] = "cross-entropy"
    # ε, the probability that the target distribution moves from the caption's word to all other words
    smoothing: float = 0.0
    scheduled_sampling: ScheduledSampling | None = None  # when the model reads words of its own; null never
    leave_out: float = 0.0  # the share of the names a captioner reads (`SceneTrans.names`) that are left out
    # the share of photos in which a name and the captions become another of its kind (`name_variation`)
    rename: float = 0.0

    def __post_init__(self) -> None:
        check_ranges(self, smoothing="[0, 0.5)", leave_out="[0, 1)", rename="[0, 1]")

    def build(self, context: Context) -> CrossEntropy:
        varied = self.leave_out or self.rename
        return CrossEntropy(self, NameVariation(token_names(), context.vocabulary) if varied else None)


class CrossEntropy(Objective):
    r"""The mean over all words and ENDs of a batch of -ln p(w_t | I, w_1 … w_{t-1}), Eq. 1 of the CL paper.

    Inputs: scenes and captions. Every word of the batch counts the same, so a long caption counts more than a short one
    (weight: words and ENDs). That mean is how the field's public code divides; Eq. 1 itself is the sum.

    Label smoothing: the loss of a word is KL(q ‖ p), q being 1 - ε at the caption's word and ε / (V - 1) at each of the
    others of the model's V ids. It is the cross-entropy Σ q · (-ln p) less the constant
    H(q) = -(1 - ε) ln(1 - ε) - ε ln(ε / (V - 1)), so the least possible loss is 0 and gradients are those of the
    cross-entropy. With ε = 0 the constant is 0.

    Scheduled sampling: from the second word on, each caption at each step reads, with the probability of the epoch, a
    word drawn from the distribution the model gave one step before, in place of the caption's own. What is to be
    predicted stays the caption. Gradients flow through the states of all steps, not through the draw. In evaluation
    mode all words are the captions' own.

    Relations: CL (`contrastive`) starts from a model trained by this and compares with it; `distillation` adds a term
    for attention; `self-critical` continues it.
    """

    config: CrossEntropyConfig

    def __init__(self, config: CrossEntropyConfig, variation: NameVariation | None = None) -> None:
        super().__init__(config)
        self.variation = variation

    def weight(self, batch: Batch) -> float:
        return self.count_words(batch)

    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        model = self.captioner(model)
        images, words = self.scenes(batch), self.captions(batch).ids  # (N, T + 1)
        if self.variation is not None and model.training:
            with torch.no_grad():  # a vision model that learns is taught by `detect-and-caption`
                images = self.variation.leave_out(frozen_scenes(model, images), self.config.leave_out)
            images, words = self.variation.rename(images, words, self.config.rename)
        memory, smoothing = model.encode(images), self.config.smoothing
        hidden, _ = model.unroll(memory, words_read(self.config.scheduled_sampling, model, memory, words, progress))
        expected = model.target_log_probs(hidden, words[:, 1:], smoothing)  # (N, T), Σ q · ln p
        constant = _entropy(smoothing, model.vocab_size) * (words[:, 1:] != PAD).sum()
        return Losses(-expected.sum() - constant)


def _entropy(smoothing: float, vocab_size: int) -> float:
    """H(q): what the loss of a word is at least before it is subtracted."""
    if smoothing == 0:
        return 0.0
    return -(1 - smoothing) * math.log(1 - smoothing) - smoothing * math.log(smoothing / (vocab_size - 1))


def words_read(
    plan: ScheduledSampling | None, model: Captioner, memory: Memory, words: Tensor, progress: Progress
) -> Tensor:
    """(N, T) what the model reads to predict captions (N, T + 1): they without END, or some words of its own instead.

    A pass without gradients draws these words, so that the model then reads all of a caption at once.
    """
    own = captions_read(words)
    probability = plan.at(progress.epoch) if plan is not None and model.training else 0.0
    if probability == 0:
        return own
    with no_gradients(words.device):
        state = expand(model.start(memory), len(words))
        read = [own[:, 0]]
        for column in own[:, 1:].unbind(1):
            hidden, state = model.advance(read[-1], memory, state)
            read.append(_sample_words(model, column, hidden, probability))
    return torch.stack(read, 1)


def _sample_words(model: Captioner, words: Tensor, hidden: Tensor, probability: float) -> Tensor:
    """Words (N,), each with `probability` replaced by one drawn from what the step before predicted, never padding."""
    replaced = (torch.rand(len(words), device=words.device) < probability) & (words != PAD)
    if not replaced.any():
        return words
    logits = model.predict(hidden[replaced]).float()
    logits[:, PAD] = -torch.inf  # what follows it would be taken for padding
    return words.masked_scatter(replaced, draw(logits.softmax(-1), None).squeeze(1))
