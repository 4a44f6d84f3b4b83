"""The ways to decode, as recipes name them: greedy, sample, beam, diverse_beam."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from sightline.errors import ConfigError


@dataclass(frozen=True)
class NoPenalty:
    """Hypotheses are ranked by their log-probability, whatever their length."""

    kind: Literal["none"] = field(default="none", kw_only=True)

    def score(self, log_prob: Tensor, length: int) -> Tensor:
        """The log-probability itself."""
        return log_prob


@dataclass(frozen=True)
class Wu:
    """Wu et al. 2016: the log-probability is divided by ((5 + L) / 6)^alpha, L counting the words and END."""

    alpha: float = 0.9  # 0 leaves the log-probability as it is; more favours longer captions
    kind: Literal["wu"] = field(default="wu", kw_only=True)

    def __post_init__(self) -> None:
        _require(self.alpha >= 0, "alpha", self.alpha, "0 or more")

    def score(self, log_prob: Tensor, length: int) -> Tensor:
        """The score of hypotheses of `length` words, END included."""
        scale: float = ((5 + length) / 6) ** self.alpha
        return log_prob / scale


@dataclass(frozen=True)
class Average:
    """The mean log-probability of the words and END."""

    kind: Literal["average"] = field(default="average", kw_only=True)

    def score(self, log_prob: Tensor, length: int) -> Tensor:
        """The score of hypotheses of `length` words, END included."""
        return log_prob / length


LengthPenalty = NoPenalty | Wu | Average


@dataclass(frozen=True)
class Greedy:
    """The most probable word at every step; of equal ones, the lowest id."""

    kind: Literal["greedy"] = field(default="greedy", kw_only=True)


@dataclass(frozen=True)
class Sample:
    """Words drawn at random: temperature first, then `top_k`, then `top_p`."""

    temperature: float = 1.0  # log-probabilities are divided by it; below 1 the draw keeps closer to the likely words
    top_k: int = 0  # only that many most probable words are drawn from; 0 means all
    top_p: float = 1.0  # only the most probable words that together reach this probability are drawn from (nucleus)
    copies: int = 1  # captions for each image
    # The same seed gives the same captions for the same batch; None draws from torch's own generator.
    seed: int | None = None
    kind: Literal["sample"] = field(default="sample", kw_only=True)

    def __post_init__(self) -> None:
        _require(1e-6 <= self.temperature <= 1e6, "temperature", self.temperature, "1e-6 (or decode greedily) to 1e6")
        _require(self.top_k >= 0, "top_k", self.top_k, "0 (all words) or more")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "more than 0 and at most 1")
        _require(self.copies >= 1, "copies", self.copies, "1 or more")


@dataclass(frozen=True)
class Beam:
    """Beam search."""

    size: int = 3  # hypotheses that are followed at once
    keep: int = 1  # captions to give for each image, best first; at most `size`
    length_penalty: LengthPenalty = NoPenalty()  # how finished hypotheses of different length are compared
    kind: Literal["beam"] = field(default="beam", kw_only=True)

    def __post_init__(self) -> None:
        _require(self.size >= 1, "size", self.size, "1 or more")
        _require(1 <= self.keep <= self.size, "keep", self.keep, f"between 1 and the beam's size, {self.size}")


@dataclass(frozen=True)
class DiverseBeam:
    """Diverse beam search (Vijayakumar et al. 2018): `groups` beams of `size / groups` hypotheses, all of them given.

    A group pays `strength` for a word each time a hypothesis of an earlier group chose it at the same step.
    """

    size: int = 6  # hypotheses that are followed at once, in all groups together; as many captions come back
    groups: int = 3  # beams that avoid each other
    strength: float = 0.5  # what a word costs for each earlier group's hypothesis that chose it
    length_penalty: LengthPenalty = NoPenalty()  # how finished hypotheses of different length are compared
    kind: Literal["diverse_beam"] = field(default="diverse_beam", kw_only=True)

    def __post_init__(self) -> None:
        _require(self.groups >= 1, "groups", self.groups, "1 or more")
        fits = self.size >= 1 and self.size % self.groups == 0
        _require(fits, "size", self.size, f"a multiple of the {self.groups} groups")
        _require(self.strength >= 0, "strength", self.strength, "0 or more")


Strategy = Greedy | Sample | Beam | DiverseBeam


def _require(condition: bool, name: str, value: object, expected: str) -> None:
    if not condition:
        raise ConfigError(f"`{name}` is {value!r}", fix=f"give {expected}")
