"""What is in a photo, as a fixed number of names that a captioner reads: those of regions and those of the whole.

A detector's regions are called by its own names (`concept_names`), and the photo as a whole by the classes of ImageNet,
as specifically as their probabilities allow. Both are one list, in which a name stands once. Everything here is
computed for a batch at once, so that a captioner can read names while both are trained.

The probability of one of ImageNet's names is the sum over the classes that are kinds of it: where leopard, jaguar and
cheetah share the mass, each is unlikely and *spotted cat* is not. Of each subject, the most specific name is taken that
is likely enough (Deng et al. 2012, "Hedging your bets: optimizing accuracy-specificity trade-offs in large scale visual
recognition": they choose by expected information; a threshold says how often a name may be wrong).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from sightline.scene import Scene
from sightline.vision.concept_names import concept_names, imagenet_classes

MOST = 8  # names of a photo that are read
AHEAD = 0.3  # of regions' names are ImageNet's by so much: regions have many names for one thing
LEAST = 0.3  # how sure a region's name must be, as for `Detector.concepts`

# Logits of ImageNet's classes are divided by it. Fitted on those of the shipped vision model, which has learned them
# from EfficientNet-Lite2 and is less sure than it is right.
TEMPERATURE = 0.75
DOWNLOADED_TEMPERATURE = 0.89  # the same for EfficientNet-Lite2 as downloaded (`tools/fit_hedging.py` tells both)
# The share of the probability of its subject (the most general name above it: animal, vehicle, building) that makes a
# name sure; else a more general one is taken. More than a half, so that it is one name.
SURE = 0.6
# The probability that a name needs in any case, beyond chance: of `animal`, which is 398 of the classes, a classifier
# that knows nothing is 0.398 sure, so its 0.2 begins there.
BEYOND_CHANCE = 0.2
MOST_OF_IMAGENET = 3  # names of one photo that are ImageNet's


@dataclass(frozen=True, eq=False)
class NameForest:
    """The N names of ImageNet's classes and of what these are kinds of, the more general before their kinds."""

    chains: tuple[tuple[str, ...], ...]  # of each name, itself and what it is a kind of, from the most specific
    members: Tensor  # (N, 1000) 1 where a class is a kind of a name
    subjects: Tensor  # (N,) the place of the most general name above each
    chance: Tensor  # (N,) the share of the classes that are kinds of a name


@cache
def imagenet_forest() -> NameForest:
    """The forest that comes with Sightline."""
    classes = imagenet_classes()
    suffixes = [[each.chain[start:] for start in range(len(each.chain))] for each in classes]
    chains = sorted(set(itertools.chain.from_iterable(suffixes)), key=lambda chain: (len(chain), chain))
    places = {chain: place for place, chain in enumerate(chains)}
    members = torch.zeros(len(chains), len(classes))
    for number, names in enumerate(suffixes):
        members[[places[name] for name in names], number] = 1
    subjects = torch.tensor([places[chain[-1:]] for chain in chains])
    return NameForest(tuple(chains), members, subjects, members.mean(1))


@cache
def token_names() -> tuple[str, ...]:
    """The names: those of regions, in their order, then those of ImageNet's classes that are not among them."""
    return tuple(dict.fromkeys((*concept_names(), *(chain[0] for chain in imagenet_forest().chains))))


@cache
def _place_of_name() -> dict[str, int]:
    return {name: number for number, name in enumerate(token_names())}


@cache
def _places() -> Tensor:
    """(N,) where each name of `imagenet_forest` stands in `token_names`."""
    return torch.tensor([_place_of_name()[chain[0]] for chain in imagenet_forest().chains])


def name_probabilities(logits: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """(B, 1000) logits to (B, N), how likely each name of `imagenet_forest` is."""
    probabilities = (logits.float() / temperature).softmax(-1)
    return probabilities @ imagenet_forest().members.T.to(logits.device)


def hedged_probabilities(logits: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """(B, 1000) logits to (B, N): the probabilities of the names that are taken for a photo, 0 for all others."""
    forest = imagenet_forest()
    subjects, chance = forest.subjects.to(logits.device), forest.chance.to(logits.device)
    probabilities = name_probabilities(logits, temperature)
    sure = probabilities >= SURE * probabilities[:, subjects]
    beyond_chance = (probabilities - chance) / (1 - chance)  # as Cohen's κ counts it
    likely = sure & (beyond_chance >= BEYOND_CHANCE)
    # The more general names stand before their kinds: of a subject, the last that is likely is the most specific.
    place = torch.arange(len(subjects), device=logits.device).expand_as(likely)
    last = torch.full_like(place, -1).scatter_reduce(
        1, subjects.expand_as(place), place.masked_fill(~likely, -1), "amax"
    )
    specific = probabilities * (likely & (place == last[:, subjects]))
    least = specific.topk(MOST_OF_IMAGENET, 1).values[:, -1:]
    return specific * (specific >= least)


def concept_tokens(sure: Tensor, boxes: Tensor, logits: Tensor) -> dict[str, Tensor]:
    """The surest names of photos, the surest first, as parts of a `SceneBatch`.

    Args:
        sure: (B, n, K) how sure each region is of each of the names of `concept_names`.
        boxes: (B, n, 4) of the regions.
        logits: (B, 1000) of the classes of ImageNet.

    Returns:
        `names` (B, k), places in `token_names`, -1 where a photo has no more; `name_scores` (B, k, 2), how sure a
        region's name is, and how sure ImageNet's is, 0 where it has no such name; `name_boxes` (B, k, 4) of the region
        that bears the name, or of the whole photo where none does.
    """
    best, region = sure.max(1)  # (B, K)
    scores = best.new_zeros(len(best), len(token_names()), 2)
    scores[:, : best.shape[1], 0] = best * (best >= LEAST)
    hedged = hedged_probabilities(logits).to(scores.dtype)  # (B, N), 0 where a name is not taken
    place = _places().to(scores.device).expand(len(scores), -1)
    scores[:, :, 1] = scores[:, :, 1].scatter_reduce(1, place, hedged, "amax")
    _, names = (scores + scores.new_tensor([0.0, AHEAD]) * (scores > 0)).amax(2).topk(MOST, 1)
    top = scores.amax(2).gather(1, names)
    whole_photo = boxes.new_tensor([0.0, 0.0, 1.0, 1.0])
    of_region = (names < best.shape[1]) & (scores[:, :, 0].gather(1, names) > 0)
    row = region.gather(1, names.clamp(max=best.shape[1] - 1))
    region_boxes = boxes.gather(1, row[..., None].expand(-1, -1, 4))
    return {
        "names": names.masked_fill(top <= 0, -1),
        "name_scores": scores.gather(1, names[..., None].expand(-1, -1, 2)),
        "name_boxes": torch.where(of_region[..., None], region_boxes, whole_photo),
    }


def stored_names(scenes: Sequence[Scene]) -> dict[str, Tensor]:
    """The same parts of a `SceneBatch` for scenes from a feature store, read from their concepts.

    A concept has one score: that of the region whose box it has, else ImageNet's. Of a name that both gave, the lower
    score is lost. Concepts that are not among `token_names` are left out.
    """
    place = _place_of_name()
    names = torch.full((len(scenes), MOST), -1)
    scores = torch.zeros(len(scenes), MOST, 2)
    boxes = torch.tensor([0.0, 0.0, 1.0, 1.0]).repeat(len(scenes), MOST, 1)
    for row, scene in enumerate(scenes):
        known = [concept for concept in scene.concepts if concept.name in place]
        for column, concept in enumerate(known[:MOST]):
            names[row, column] = place[concept.name]
            scores[row, column, int(concept.box is None)] = concept.score
            if concept.box is not None:
                boxes[row, column] = torch.tensor(concept.box)
    return {"names": names, "name_scores": scores, "name_boxes": boxes}
