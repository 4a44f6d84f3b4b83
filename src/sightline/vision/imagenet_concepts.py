"""From the 1,000 logits of an ImageNet classifier to what is in a photo, as specifically as the probabilities allow.

The probability of a name is the sum over the classes that are kinds of it (`imagenet_names`): where leopard, jaguar and
cheetah share the mass, each is unlikely and *spotted cat* is not. Of each subject, the most specific name is told that
is likely enough (Deng et al. 2012, "Hedging your bets: optimizing accuracy-specificity trade-offs in large scale visual
recognition": they choose by expected information; a threshold says how often a name may be wrong).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.errors import ConfigError, CountError
from sightline.scene import Concept
from sightline.vision.imagenet_names import imagenet_classes

TEMPERATURES = tuple(2 ** (step / 12) for step in range(-24, 25))  # that are tried: a quarter to 4


@dataclass(frozen=True)
class Hedging:
    """When a name is sure enough to be told.

    Attributes:
        temperature: logits are divided by it. The default was fitted on the classes of the shipped vision model, which
            has learned them from EfficientNet-Lite2 and is less sure than it is right (`tools/fit_hedging.py` tells
            0.89 of EfficientNet-Lite2 itself); another classifier needs its own.
        sure: a name is told if it has this share of the probability of its subject, which is the most general name
            above it (animal, vehicle, building); else a more general one is. More than a half, so that it is one name.
        least: the probability that a name needs in any case, beyond chance: of `animal`, which is 398 of the classes, a
            classifier that knows nothing is 0.398 sure, so its 0.2 begins there.
        most: names of one photo.
    """

    temperature: float = 0.75
    sure: float = 0.6
    least: float = 0.2
    most: int = 3

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ConfigError(f"`temperature` is {self.temperature}", fix="give more than 0")
        if not 0.5 < self.sure <= 1:
            raise ConfigError(f"`sure` is {self.sure}", fix="give more than a half, and 1 at most")
        if not 0 < self.least <= 1:
            raise ConfigError(f"`least` is {self.least}", fix="give more than 0, and 1 at most")
        if self.most < 1:
            raise ConfigError(f"`most` is {self.most}", fix="give 1 or more")


@dataclass(frozen=True, eq=False)
class Kinds:
    """The forest of names, the more general before their kinds.

    Attributes:
        chains: of each name, itself and what it is a kind of, from the most specific.
        members: (N, 1000) 1 where a class is a kind of a name.
        subjects: (N,) the place of the most general name above each.
        chance: (N,) the share of the classes that are kinds of a name.
    """

    chains: tuple[tuple[str, ...], ...]
    members: Tensor
    subjects: Tensor
    chance: Tensor

    def place(self, name: str) -> int:
        """Where a name stands."""
        for place, chain in enumerate(self.chains):
            if chain[0] == name:
                return place
        raise ConfigError(f"{name!r} is no name of a class of ImageNet", fix="see imagenet_names.tsv")


@cache
def kinds() -> Kinds:
    """The forest that comes with Sightline."""
    classes = imagenet_classes()
    every = {one.chain[place:] for one in classes for place in range(len(one.chain))}
    chains = sorted(every, key=lambda chain: (len(chain), chain))
    places = {chain: place for place, chain in enumerate(chains)}
    members = torch.zeros(len(chains), len(classes))
    for number, one in enumerate(classes):
        for place in range(len(one.chain)):
            members[places[one.chain[place:]], number] = 1
    subjects = torch.tensor([places[chain[-1:]] for chain in chains])
    return Kinds(tuple(chains), members, subjects, members.mean(1))


def name_probabilities(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """(B, 1000) logits to (B, N), how likely each name of `kinds` is."""
    chances = (logits.float() / temperature).softmax(-1)
    return chances @ kinds().members.T.to(logits.device)


def hedge(logits: Tensor, hedging: Hedging | None = None) -> list[tuple[Concept, ...]]:
    """(B, 1000) logits to what is in each photo: one name for each subject that is likely enough, likeliest first."""
    most = (hedging or Hedging()).most
    top, places = hedged_probabilities(logits, hedging).cpu().topk(most, 1)
    return [
        tuple(Concept(kinds().chains[place][0], chance) for chance, place in zip(*row, strict=True) if chance > 0)
        for row in zip(top.tolist(), places.tolist(), strict=True)
    ]


def hedged_probabilities(logits: Tensor, hedging: Hedging | None = None) -> Tensor:
    """(B, 1000) logits to (B, N): how likely each name of `kinds` is that is told of a photo, 0 for all others."""
    hedging, forest = hedging or Hedging(), kinds()
    subjects, chance = forest.subjects.to(logits.device), forest.chance.to(logits.device)
    chances = name_probabilities(logits, hedging.temperature)
    enough = chances >= hedging.sure * chances[:, subjects]
    beyond = (chances - chance) / (1 - chance)  # chance, as Cohen's κ counts it
    likely = enough & (beyond >= hedging.least)
    # The more general names stand before their kinds: of a subject, the last that is likely is the most specific.
    place = torch.arange(len(subjects), device=logits.device).expand_as(likely)
    last = torch.full_like(place, -1).scatter_reduce(
        1, subjects.expand_as(place), place.masked_fill(~likely, -1), "amax"
    )
    told = chances * (likely & (place == last[:, subjects]))
    least = told.topk(hedging.most, 1).values[:, -1:]
    return told * (told >= least)


def fit_temperature(logits: Tensor, names: Sequence[int], right: Sequence[bool]) -> float:
    """The temperature at which the probabilities of names are most honest (Guo et al. 2017).

    Args:
        logits: (n, 1000).
        names: (n,) of each photo, the place in `kinds` of the name that was told.
        right: (n,) whether it is true.
    """
    if not len(logits) == len(names) == len(right) or not len(names):
        raise CountError(
            f"{len(logits)} logits, {len(names)} names and {len(right)} judgements", fix="give one for each photo"
        )
    places, truth = torch.as_tensor(names), torch.as_tensor(right, dtype=torch.float)
    members = kinds().members[places].bool()  # (n, 1000)
    costs = {}
    for temperature in TEMPERATURES:
        scaled = logits.float().cpu() / temperature
        odds = _log_sum(scaled, members) - _log_sum(scaled, ~members)  # of the name against everything else
        costs[temperature] = float(F.binary_cross_entropy_with_logits(odds, truth))
    return min(costs, key=costs.__getitem__)


def _log_sum(logits: Tensor, chosen: Tensor) -> Tensor:
    """(n,) log Σ exp over the chosen of each row."""
    return logits.masked_fill(~chosen, -torch.inf).logsumexp(-1)
