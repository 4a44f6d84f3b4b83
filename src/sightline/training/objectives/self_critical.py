"""Self-critical training: captions that score better than the model's own baseline become more probable.

Rennie et al., "Self-Critical Sequence Training for Image Captioning" (CVPR 2017), in the form of "More Grounded Image
Captioning by Distilling Image-Text Matching", Eq. 17–19, with the usual baselines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.config import check_ranges
from sightline.decoding.decode import decode
from sightline.decoding.decode_result import DecodeResult
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Beam, Greedy, Sample, Strategy
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner, Memory
from sightline.models.end_to_end import frozen_scenes
from sightline.text.vocabulary import END, PAD
from sightline.training.batches import Batch
from sightline.training.cuda_graphs import SamplingGraphs
from sightline.training.objective import Context, Losses, Objective, Progress, mode, no_gradients
from sightline.training.objectives.name_variation import NameVariation
from sightline.training.rewards import CiderReward, Reward, RewardConfig
from sightline.vision.concept_tokens import token_names


@dataclass(frozen=True)
class SelfCriticalConfig:
    """Self-critical training; the defaults are the paper's, with no units dropped."""

    kind: Literal["self-critical"] = "self-critical"
    samples: int = 5  # captions sampled for each image (K)
    # `greedy`, the reward of the greedy caption; `mean`, that of an image's other samples; `beam`: a beam of K takes
    # the place of the samples, and its mean reward that of the baseline
    baseline: Literal["greedy", "mean", "beam"] = "greedy"
    rewards: tuple[RewardConfig, ...] = (CiderReward(),)  # summed, each times its weight; `matcher` is for Eq. 19
    max_words: int = 20  # samples are cut there, and a cut one learns nothing about END
    # whether units are dropped, as in the released code, while sampling and in the log-probabilities that are trained.
    # These draw their own units, so that samples come from another distribution than the one whose probabilities are
    # lowered, and nothing stops these from falling: large batches and rates then diverge.
    dropout: bool = False
    cross_entropy: float = 0.0  # weight of cross-entropy on a random caption of each photo, which keeps the language
    # the share of photos in which a name that the captioner reads, and that caption with it, become another of its kind
    # (`name_variation`); rewards, which know no other names than people's, would unlearn it
    rename: float = 0.0

    def __post_init__(self) -> None:
        fewest = 1 if self.baseline == "greedy" else 2  # one sample is its own mean, and nothing is learned
        check_ranges(self, samples=f"[{fewest}, ∞)", max_words="[1, ∞)")
        if not self.rewards:
            raise ConfigError("`rewards` is empty", fix="give for example [{kind: cider}]")
        check_ranges(self, cross_entropy="[0, ∞)", rename="[0, 1]")

    def build(self, context: Context) -> SelfCritical:
        return SelfCritical(self, context)


class SelfCritical(Objective):
    """l = −Σ (r − b) · log p / tokens over the words and END of all sampled captions of the batch.

    r is a caption's reward, b its baseline; their difference is the same at each of its words (Eq. 18). How many tokens
    samples have is known only after sampling, and a batch's weight before. So the weight is the number of samples, and
    the sum is the batch's token mean times that: for one batch the loss is exactly the formula, for several (of
    processes, or accumulated) the mean of theirs. The loss itself says little, as it is near 0 whatever the model is
    worth: watch the reward.

    Samples come from the model's own distribution, the unknown word included; only padding and START are never said.
    Batches need scenes alone (`of: photos`); references are found by photo in the train split.

    Parts, as means over samples: `reward`, `baseline`, `length` in words, and each kind of reward as it comes.
    """

    config: SelfCriticalConfig

    def __init__(self, config: SelfCriticalConfig, context: Context) -> None:
        super().__init__(config)
        self.pool = context.pools["train"]
        self.variation = NameVariation(token_names(), context.vocabulary) if config.rename else None
        self.rewards: list[Reward] = [reward.build(context) for reward in config.rewards]
        self._graphs = SamplingGraphs()

    def weight(self, batch: Batch) -> float:
        return float(len(batch.photos) * self.config.samples)

    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        model, images = self.captioner(model), self.scenes(batch)
        config = self.config
        with no_gradients(next(model.parameters()).device):
            images = frozen_scenes(model, images)
            captions = self._captions(model, images)  # (B, K or K + 1, T)
            each = [reward(batch, captions) for reward in self.rewards]
            weighted = [reward.weight * values for reward, values in zip(config.rewards, each, strict=True)]
            rewards, baseline = self._baseline(torch.stack(weighted).sum(0))  # Eq. 19
        words = captions[:, : config.samples].flatten(0, 1)  # (N, T)
        with nullcontext() if config.dropout else without_dropout(model):
            memory = model.encode(images)
            log_probs = model.sampled_log_probs(memory, words)  # (N, T - 1), 0 on padding
        tokens = (words[:, 1:] != PAD).sum()
        advantage = (rewards - baseline).flatten()
        loss = -(advantage * log_probs.sum(1)).sum() / tokens.clamp(min=1)  # Eq. 18
        length = ((words[:, 1:] != PAD) & (words[:, 1:] != END)).sum().float()
        parts = {"reward": rewards.sum(), "baseline": baseline.sum(), "length": length}
        for reward, values in zip(config.rewards, each, strict=True):
            parts[reward.kind] = values[:, : config.samples].sum()
        if config.cross_entropy:
            references = self._references(batch.photos).to(words.device)  # (B, T)
            if self.variation is not None:
                renamed, references = self.variation.rename(images, references, config.rename)
                memory = model.encode(renamed)
            cross_entropy = -model.word_log_probs(memory, references).sum() / (references[:, 1:] != PAD).sum()
            parts["cross-entropy"] = cross_entropy * len(words)
            loss = loss + config.cross_entropy * cross_entropy
        return Losses(loss * len(words), parts)

    def _references(self, photos: Tensor) -> Tensor:
        """(B, T) ids of one caption of each photo, chosen at random."""
        texts, first = self.pool.captions("cross-entropy")
        count = first[photos + 1] - first[photos]
        rows = first[photos] + (torch.rand(len(photos)) * count).long()
        return texts.batch(rows).ids

    def _captions(self, model: Captioner, images: SceneBatch) -> Tensor:
        """(B, K, T) samples of each image, and behind them its greedy caption where that is the baseline."""
        config = self.config
        with mode(model, model.training and config.dropout):
            memory = model.encode(images)
            if config.baseline == "beam":
                return self._decode(model, memory, Beam(config.samples, config.samples))
            samples = None
            if not config.dropout:
                samples = self._graphs(model, memory, config.max_words, config.samples)
            if samples is None:
                samples = self._decode(model, memory, Sample(copies=config.samples))
        if config.baseline != "greedy":
            return samples
        with mode(model, False):
            if config.dropout:
                memory = model.encode(images)
            greedy = self._graphs(model, memory, config.max_words, greedy=True)
            if greedy is None:
                greedy = self._decode(model, memory, Greedy())
        longest = max(samples.shape[2], greedy.shape[2])
        return torch.cat([F.pad(part, (0, longest - part.shape[2]), value=PAD) for part in (samples, greedy)], 1)

    def _decode(self, model: Captioner, memory: Memory, strategy: Strategy) -> Tensor:
        """Captions as ids, without END where it was not the model that ended them."""
        rules = Rules(max_words=self.config.max_words, suppress_unk=False)
        decoded: DecodeResult = decode(model, memory, strategy, rules)
        cut = ~decoded.finished.unsqueeze(2) & (decoded.words == END)
        return decoded.words.masked_fill(cut, PAD)

    def _baseline(self, total: Tensor) -> tuple[Tensor, Tensor]:
        """Rewards of all captions to those of samples, and their baselines, both (B, K)."""
        samples = total[:, : self.config.samples]
        if self.config.baseline == "greedy":
            return samples, total[:, -1:].expand_as(samples)
        if self.config.baseline == "beam":
            return samples, samples.mean(1, keepdim=True).expand_as(samples)
        others = samples.sum(1, keepdim=True) - samples
        return samples, others / (samples.shape[1] - 1)


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """No unit is dropped within; all else trains as it did."""
    dropping = [module for module in model.modules() if isinstance(module, nn.Dropout) and module.training]
    try:
        for module in dropping:
            module.eval()
        yield
    finally:
        for module in dropping:
            module.train()
