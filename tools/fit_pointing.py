"""Choose the numbers of pointing (`sightline.grounding.box_chooser.BoxChooser`) on the dev photos of Flickr8k.

    python tools/fit_pointing.py --data DATA [--photos 1000] [--model FILE] [--out pointing.json] [--json]

DATA holds `flickr8k/` (images, Flickr8k.token.txt, Flickr_8k.{dev,test}Images.txt, flickr30k_entities*). The words are
those of people's captions that people drew boxes for. *Shown* is the share of them that get a box, *right* the share
whose box overlaps one of people's with an IoU above one half, both in per cent of all of them.

A word that points nowhere is never right, so *right* alone would always choose the lowest `least`. What is chosen has
the best *F1* of boxes: 2 · right / (all words + shown ones). Test photos are told of, and choose nothing. *Its own
nouns* is the chosen rule where the model also chooses the words, as `sightline ground` does. Of a file with a word
pointer (tools/train_pointer.py), only `least` is chosen: the rest of the rule is for words that it does not know.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from measured_models import grounded_photos, look
from measured_options import parser, report
from measured_photos import entities_file, flickr8k
from measured_words import SentenceEvidence, sentence_evidence

from sightline.checkpoint.bundle import Bundle, default_bundle, load_bundle
from sightline.data.entities import read_photos as read_entities
from sightline.devices import choose_device
from sightline.grounding.box_chooser import BoxChooser
from sightline.metrics.grounding_accuracy import overlaps_enough

MATCHER = (0.0, 0.3, 0.5, 0.7, 0.9, 1.0)
LEAST = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3)
OBJECTNESS = (0.0, 0.5, 1.0)
NAME = (0.0, 0.25, 0.5, 1.0)


class Tried(NamedTuple):
    """A rule, and what came of it: shares of words, in per cent."""

    matcher: float
    least: float
    objectness: float
    name: float
    right: float
    shown: float

    @property
    def rule(self) -> BoxChooser:
        """The rule itself."""
        return BoxChooser(self.matcher, self.least, self.objectness, self.name)

    @property
    def f1(self) -> float:
        """Of boxes that are right, in per cent."""
        return 200 * self.right / (100 + self.shown)

    def to_json(self) -> dict[str, float]:
        """A JSON-ready form."""
        return {**self._asdict(), "f1": self.f1}


def split_evidence(bundle: Bundle, data: Path, split: str, count: int, device: torch.device) -> list[SentenceEvidence]:
    """What the models make of the annotated sentences of a split's first photos."""
    photos = flickr8k(data, split)[:count]
    scenes = look(bundle, photos, device, f"{split}, looking", keep=True).scenes
    return list(sentence_evidence(bundle, photos, scenes, grounded_photos(read_entities(entities_file(data)), photos)))


def tried(
    evidence: Sequence[SentenceEvidence], rule: BoxChooser, leasts: Sequence[float], choosing: bool = False
) -> list[Tried]:
    """What comes of a rule with several thresholds instead of its own.

    A word whose box is too weak leaves it to others. That is not looked into: the threshold only takes boxes away.
    """
    scores, right = _scored(evidence, dataclasses.replace(rule, least=0.0), choosing)
    results = []
    for least in leasts:
        shown = scores >= least
        rates = 100 * float((right & shown).mean()), 100 * float(shown.mean())
        results.append(Tried(rule.matcher, least, rule.objectness, rule.name, *rates))
    return results


def tried_all(evidence: Sequence[SentenceEvidence], rule: BoxChooser | None = None) -> list[Tried]:
    """The whole grid, or all thresholds of one rule."""
    rules = [
        BoxChooser(matcher, 0.0, objectness, name)
        for objectness, name, matcher in itertools.product(OBJECTNESS, NAME, MATCHER)
    ]
    if rule is not None:
        rules = [rule]
    return [one for rule in rules for one in tried(evidence, rule, LEAST)]


def chosen(grid: Sequence[Tried]) -> Tried:
    """The one with the best F1; of equals, the first."""
    return max(grid, key=lambda one: one.f1)


def fit(options: argparse.Namespace) -> dict[str, Any]:
    """The grid on dev, the choice, and what it and the model's own numbers give on test."""
    device, model = choose_device(options.device), options.model or default_bundle()
    bundle = load_bundle(model, device)
    evidence = split_evidence(bundle, options.data, "dev", options.photos, device)
    grid = tried_all(evidence, None if bundle.pointer is None else bundle.pointing)
    best = chosen(grid).rule
    test = split_evidence(bundle, options.data, "test", options.photos, device)

    def rates(evidence: Sequence[SentenceEvidence], rule: BoxChooser, choosing: bool = False) -> dict[str, float]:
        return tried(evidence, rule, [rule.least], choosing)[0].to_json()

    return {
        "model": model.name,
        "photos": {"dev": len(evidence), "test": len(test)},
        "words": {"dev": _words(evidence), "test": _words(test)},
        "pointing": dataclasses.asdict(best),
        "dev": [one.to_json() for one in grid],
        "dev, the model's own": rates(evidence, bundle.pointing),
        "dev, its own nouns": rates(evidence, bundle.pointing, choosing=True),
        "test": {
            "chosen": rates(test, best),
            "the model's own": rates(test, bundle.pointing),
            "its own nouns": rates(test, bundle.pointing, choosing=True),
        },
    }


def _scored(
    evidence: Sequence[SentenceEvidence], rule: BoxChooser, choosing: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """How sure each word's box is, -1 where it points nowhere, and whether the box is right."""
    scores, right = list[float](), list[bool]()
    for photo in evidence:
        for sentence, places in zip(photo.truth.sentences, photo.pointed(rule, choosing), strict=True):
            for word in sentence.words:
                box, score = places.get(word.index, (None, -1.0))
                scores.append(score)
                right.append(box is not None and overlaps_enough([box], word.boxes))
    return np.array(scores), np.array(right, bool)


def _words(evidence: Sequence[SentenceEvidence]) -> int:
    return sum(len(sentence.words) for photo in evidence for sentence in photo.truth.sentences)


def _tell(results: dict[str, Any]) -> None:
    print(f"dev: {results['photos']['dev']:,} photos, {results['words']['dev']:,} words")
    print("objectness   name  matcher  least   right   shown      F1")
    best = results["pointing"]
    rows = [
        (one, "  chosen" if all(one[key] == value for key, value in best.items()) else "")
        for one in _best_of_each(results["dev"])
    ]
    rows += [(results[name], f"  {name}") for name in ("dev, the model's own", "dev, its own nouns")]
    rows += [(one, f"  test, {name}") for name, one in results["test"].items()]
    for one, name in rows:
        numbers = "".join(f"{one[key]:8.1f}" for key in ("right", "shown", "f1"))
        print(f"{one['objectness']:10.2f}{one['name']:7.2f}{one['matcher']:9.2f}{one['least']:7.2f}{numbers}{name}")


def _best_of_each(grid: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Of each two powers, the best."""
    found: dict[tuple[float, float], dict[str, float]] = {}
    for one in grid:
        key = one["objectness"], one["name"]
        if key not in found or one["f1"] > found[key]["f1"]:
            found[key] = one
    return list(found.values())


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = parser(__doc__, 1000, "of dev and of test").parse_args(argv)
    results = fit(options)
    report(results, options, _tell)
    return results


if __name__ == "__main__":
    main()
