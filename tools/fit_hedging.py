"""Choose the temperature of ImageNet's answers, and tell how often what they name is what people say.

    python tools/fit_hedging.py --data DATA [--model FILE] [--photos 1000] [--out hedging.json] [--json]

DATA holds `flickr8k/`. Photos are the first of the official dev split, squashed; names are those that
`concept_tokens.hedged_probabilities` tells at the temperature 1 about the classes of a model's file, or of
EfficientNet-Lite2 as downloaded. A name is right if one of the photo's captions says it, or a noun that WordNet calls a
kind of it. People do not name everything that is there, so right ones are undercounted, most of all small things.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from measure_forgetting import logits, reader
from measured_options import parser, report
from measured_photos import TestPhoto, flickr8k
from torch import Tensor

from sightline.text import wordnet
from sightline.text.lemmas import lemma
from sightline.vision.concept_tokens import hedged_probabilities, imagenet_forest, name_probabilities

USUAL = 2  # senses of a word that count: the most frequent ones
EDGES = (0.2, 0.4, 0.6, 0.8, 1.0)
TEMPERATURES = tuple(2 ** (step / 12) for step in range(-24, 25))  # that are tried: a quarter to 4


class Told(NamedTuple):
    """A name that was told: of which photo, its place in `imagenet_forest`, and whether people say so."""

    photo: int
    place: int
    right: bool


def said(name: str, captions: Iterable[str]) -> bool:
    """Whether one of the captions says a name, or a kind of it."""
    return any(_says(name, caption) for caption in captions)


def _says(name: str, caption: str) -> bool:
    words = re.findall(r"[a-z]+", caption.lower())
    nouns = [lemma(word, "n") for word in words]
    wanted = [lemma(word, "n") for word in re.findall(r"[a-z]+", name)]
    size = len(wanted)
    if any(nouns[start : start + size] == wanted for start in range(len(nouns))):
        return True
    return any(not _synsets(name).isdisjoint(_above(noun)) for noun in nouns)


@cache
def _synsets(name: str) -> frozenset[int]:
    return frozenset(wordnet.senses(name, "n")[:USUAL])


@cache
def _above(noun: str) -> frozenset[int]:
    return frozenset().union(*(wordnet.ancestors(synset) for synset in wordnet.senses(noun, "n")[:USUAL]))


def judged(answers: Tensor, photos: Sequence[TestPhoto]) -> list[Told]:
    """The names that are told about photos at the temperature 1."""
    chains = imagenet_forest().chains
    return [
        Told(row, place, said(chains[place][0], photos[row].references))
        for row, place in hedged_probabilities(answers, 1.0).nonzero().tolist()
    ]


def fit_temperature(answers: Tensor, names: Sequence[Told]) -> float:
    """The temperature at which the probabilities of the names are most honest (Guo et al. 2017)."""
    logits = answers[[one.photo for one in names]].float().cpu()  # (n, 1000)
    members = imagenet_forest().members[[one.place for one in names]].bool()  # (n, 1000)
    truth = torch.tensor([float(one.right) for one in names])
    costs = {}
    for temperature in TEMPERATURES:
        scaled = logits / temperature
        odds = _log_sum(scaled, members) - _log_sum(scaled, ~members)  # of the name against everything else
        costs[temperature] = float(F.binary_cross_entropy_with_logits(odds, truth))
    return min(costs, key=costs.__getitem__)


def _log_sum(logits: Tensor, chosen: Tensor) -> Tensor:
    """(n,) log Σ exp over the chosen of each row."""
    return logits.masked_fill(~chosen, -torch.inf).logsumexp(-1)


def reliability(answers: Tensor, names: Sequence[Told], temperature: float) -> list[dict[str, float]]:
    """Of names as sure as each range says: how many, how sure they are, and the share that is right."""
    chances = name_probabilities(answers, temperature)
    rows = [(float(chances[one.photo, one.place]), one.right) for one in names]
    found = []
    for low, high in zip((0.0, *EDGES), EDGES, strict=False):
        own = [(sure, right) for sure, right in rows if low <= sure < high]
        if own:
            mean = sum(sure for sure, _ in own) / len(own)
            found.append({"names": len(own), "sure": mean, "right": sum(right for _, right in own) / len(own)})
    return found


def _tell(results: dict[str, Any]) -> None:
    print(f"temperature {results['temperature']:.2f}: {results['names']} names of {results['photos']} photos")
    for one in results["reliability"]:
        print(f"  {one['names']:5} names, {one['sure']:.2f} sure, {one['right']:.2f} right")


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = parser(__doc__, 1000, "of dev").parse_args(argv)
    device = torch.device(options.device)
    photos = flickr8k(options.data, "dev")[: options.photos]
    reads, size = reader(options.model, None if options.model else "lite2", device)
    with torch.inference_mode():
        answers = logits(reads, size, photos, device, "dev")
    names = judged(answers, photos)
    temperature = fit_temperature(answers, names)
    results = {
        "photos": len(photos),
        "names": len(names),
        "temperature": temperature,
        "reliability": reliability(answers, names, temperature),
    }
    report(results, options, _tell)
    return results


if __name__ == "__main__":
    main()
