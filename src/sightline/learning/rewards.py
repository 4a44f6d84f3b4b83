"""What a sampled caption is worth: the rewards of self-critical training, all samples of a batch in one call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from sightline.errors import ConfigError
from sightline.learning.batches import Batch
from sightline.learning.objective import Context
from sightline.learning.tables import Pool, TextTable
from sightline.learning.teachers import Teacher
from sightline.metrics.base import LanguageMetric
from sightline.metrics.bleu import Bleu
from sightline.metrics.scst import CiderDReward
from sightline.metrics.spice import Spice
from sightline.text.vocabulary import END, PAD, UNK, Vocabulary


class Reward(ABC):
    """A number for each caption, without gradients."""

    @abstractmethod
    def __call__(self, batch: Batch, words: Tensor) -> Tensor:
        """(B, K) of captions (B, K, T) of the batch's photos: START, words, END, padding; a cut one has no END."""


@dataclass(frozen=True)
class CiderReward:
    """CIDEr-D × 10 over ids, END counted as a word. Document frequencies and references are the train split's."""

    kind: Literal["cider"] = "cider"
    weight: float = 1.0

    def build(self, context: Context) -> Reward:
        """The reward."""
        return _Cider(context.pools["train"])


@dataclass(frozen=True)
class BleuReward:
    """BLEU-`order` of single sentences, 0 to 1."""

    kind: Literal["bleu"] = "bleu"
    weight: float = 1.0
    order: int = 4

    def __post_init__(self) -> None:
        """Refuse an order that BLEU does not have."""
        if not 1 <= self.order <= 4:
            raise ConfigError(f"`order` is {self.order}", fix="give 1, 2, 3 or 4")

    def build(self, context: Context) -> Reward:
        """The reward."""
        return _Language(Bleu(), f"Bleu_{self.order}", context)


@dataclass(frozen=True)
class FMeanReward:
    """The F-mean of words that METEOR begins with (Banerjee and Lavie 2005), 0 to 1: without stems, synonyms and order.

    P · R / (α · P + (1 − α) · R) of the reference that fits best. CIDEr-D alone makes captions short, and recall asks
    for what they leave out. Words are compared as ids, on the model's device.

    Attributes:
        alpha: how much recall counts; by default that of METEOR 1.5.
    """

    kind: Literal["fmean"] = "fmean"
    weight: float = 1.0
    alpha: float = 0.85

    def __post_init__(self) -> None:
        """Refuse a share that is none."""
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"`alpha` is {self.alpha}", fix="give a number from 0 to 1")

    def build(self, context: Context) -> Reward:
        """The reward."""
        return _FMean(context.pools["train"], self.alpha)


@dataclass(frozen=True)
class SpiceReward:
    """SPICE (Sightline parser), 0 to 1. Slow beside the others: every sample is parsed into a scene graph."""

    kind: Literal["spice"] = "spice"
    weight: float = 1.0

    def build(self, context: Context) -> Reward:
        """The reward."""
        return _Language(Spice(), "SPICE", context)


@dataclass(frozen=True)
class MatcherReward:
    """S(I, c) of a matcher (Eq. 19), as it comes: about 0 to 1 for SCAN, where CIDEr-D is about 0 to 10.

    Attributes:
        model: the checkpoint of any matcher.
        full_stop: whether captions are given to it with a full stop at the end.
    """

    model: str
    kind: Literal["matcher"] = "matcher"
    weight: float = 1.0
    full_stop: bool = False

    def build(self, context: Context) -> Reward:
        """The reward."""
        return _Matcher(Teacher(context, self.model, self.full_stop), context.vocabulary)


RewardConfig = CiderReward | BleuReward | FMeanReward | SpiceReward | MatcherReward


class _Cider(Reward):
    def __init__(self, pool: Pool) -> None:
        texts, first = _captions(pool)
        rows = [ids[1 : length - 1] for ids, length in zip(texts.ids.tolist(), texts.lengths.tolist(), strict=True)]
        self._score = CiderDReward([rows[start:stop] for start, stop in pairwise(first)])

    def __call__(self, batch: Batch, words: Tensor) -> Tensor:
        count, copies, _ = words.shape
        photos = batch.photos.repeat_interleave(copies)
        scores = self._score(photos.cpu().numpy(), words[..., 1:].flatten(0, 1).cpu().numpy())
        return torch.from_numpy(scores).view(count, copies).to(words.device, torch.float32)


class _Language(Reward):
    """A metric of strings; references are the words of the train split's captions, split and cut as in training."""

    def __init__(self, metric: LanguageMetric, key: str, context: Context) -> None:
        self.metric, self.key, self.vocabulary = metric, key, context.vocabulary
        self._texts, self._first = _captions(context.pools["train"])

    def __call__(self, batch: Batch, words: Tensor) -> Tensor:
        count, copies, _ = words.shape
        said = [" ".join(caption) for caption in _decoded(words, self.vocabulary)]
        hypotheses = {str(place): caption for place, caption in enumerate(said)}
        references = {}
        for place, photo in enumerate(batch.photos.tolist()):
            own = [" ".join(self._texts.words[row]) for row in range(self._first[photo], self._first[photo + 1])]
            references.update({str(place * copies + copy): own for copy in range(copies)})
        self.metric.reset()
        self.metric.update(hypotheses, references)
        scores = self.metric.compute().per_image
        values = [scores[str(place)][self.key] for place in range(len(said))]
        return torch.tensor(values, dtype=torch.float32, device=words.device).view(count, copies)


class _FMean(Reward):
    def __init__(self, pool: Pool, alpha: float) -> None:
        self._texts, first = _captions(pool)
        self._first = torch.tensor(first)
        self.alpha = alpha

    def __call__(self, batch: Batch, words: Tensor) -> Tensor:
        said, theirs = words[..., 1:], self._references(batch.photos.cpu()).to(words.device)  # (B, K, T), (B, R, S)
        spoken = (said != END) & (said != PAD)
        before = (said[..., :, None] == said[..., None, :]).tril(-1).sum(-1)  # how often a word was said already
        there = (said[:, :, None, :, None] == theirs[:, None, :, None, :]).sum(-1)  # (B, K, R, T)
        known = (spoken & (said != UNK))[:, :, None]
        matched = ((there > before[:, :, None]) & known).sum(-1).float()  # (B, K, R)
        precision = matched / spoken.sum(-1, keepdim=True).clamp(min=1)
        recall = matched / (theirs != PAD).sum(-1)[:, None].clamp(min=1)
        mean = precision * recall / (self.alpha * precision + (1 - self.alpha) * recall).clamp(min=1e-9)
        return mean.amax(2)

    def _references(self, photos: Tensor) -> Tensor:
        """(B, R, S) the words of each photo's references, without START and END."""
        first, last = self._first[photos, None], self._first[photos + 1, None]
        rows = first + torch.arange(int((last - first).max()))
        own = rows < last
        rows = rows.where(own, first)
        longest = int(self._texts.lengths[rows].max())
        found = self._texts.ids[rows, 1:longest]
        return found.masked_fill_(~own[..., None] | (found == END), PAD)


class _Matcher(Reward):
    def __init__(self, teacher: Teacher, vocabulary: Vocabulary) -> None:
        self.teacher, self.vocabulary = teacher, vocabulary

    def __call__(self, batch: Batch, words: Tensor) -> Tensor:
        assert batch.scenes is not None
        return self.teacher.fit(batch.scenes, _decoded(words, self.vocabulary)).view(words.shape[:2])


def _captions(pool: Pool) -> tuple[TextTable, list[int]]:
    if pool.texts is None or pool.first is None:
        raise ConfigError("this reward compares with references, and there are none", fix="give data.captions")
    return pool.texts, pool.first.tolist()


def _decoded(words: Tensor, vocabulary: Vocabulary) -> list[list[str]]:
    return [vocabulary.decode(row) for row in words.flatten(0, 1).tolist()]
