"""The ways to decode, as recipes name them: greedy, sample, beam, diverse_beam."""

from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from sightline.config import check_ranges
from sightline.errors import ConfigError


@dataclass(frozen=True)
class NoPenalty:
    """Hypotheses are ranked by their log-probability, whatever their length."""

    kind: Literal["none"] = field(default="none", kw_only=True)

    def score(self, log_prob: Tensor, length: int) -> Tensor:
        return log_prob


@dataclass(frozen=True)
class Wu:
    """Wu et al. 2016: the log-probability is divided by ((5 + L) / 6)^alpha, L counting the words and END."""

    alpha: float = 0.9  # 0 leaves the log-probability as it is; more favours longer captions
    kind: Literal["wu"] = field(default="wu", kw_only=True)

    def __post_init__(self) -> None:
        check_ranges(self, alpha="[0, ∞)")

    def score(self, log_prob: Tensor, length: int) -> Tensor:
        scale: float = ((5 + length) / 6) ** self.alpha
        return log_prob / scale


@dataclass(frozen=True)
class Average:
    """The mean log-probability of the words and END."""

    kind: Literal["average"] = field(default="average", kw_only=True)

    def score(self, log_prob: Tensor, length: int) -> Tensor:
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
        check_ranges(self, temperature="[1e-6, 1e6]", top_k="[0, ∞)", top_p="(0, 1]", copies="[1, ∞)")


@dataclass(frozen=True)
class Beam:
    """Beam search."""

    size: int = 3  # hypotheses that are followed at once
    keep: int = 1  # captions to give for each image, best first; at most `size`
    length_penalty: LengthPenalty = NoPenalty()  # how finished hypotheses of different length are compared
    kind: Literal["beam"] = field(default="beam", kw_only=True)

    def __post_init__(self) -> None:
        check_ranges(self, size="[1, ∞)", keep=f"[1, {self.size}]")


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
        check_ranges(self, size="[1, ∞)", groups="[1, ∞)", strength="[0, ∞)")
        if self.size % self.groups:
            raise ConfigError(f"`size` is {self.size}", fix=f"give a multiple of the {self.groups} groups")


Strategy = Greedy | Sample | Beam | DiverseBeam
