"""Fit and measure the audit: nouns that the photo does not show, in captions of Flickr8k.

    python tools/measure_audit.py --data DATA [--model FILE] [--out audit.json] [--limit N] [--flagged 0.1]

DATA holds `flickr8k/` (images, Flickr8k.token.txt, Flickr_8k.{train,dev,test}Images.txt). Half of the captions have one
noun replaced (measured_swaps.py). The numbers of `SupportModel` (`sightline.grounding.calibration`), its threshold
among them, are fitted on the dev photos; what is told is of the test photos. *Caught* is the share of replaced nouns
that are flagged, *flagged* that of the nouns that people wrote; *captions caught* and *captions flagged* are the shares
of captions with a replaced noun, and without one, in which any noun is flagged. A replaced noun that is not taken for
one counts as not caught. *Blind* is an audit fitted in the same way to the same captions with another photo: what
language alone gives away.

Where DATA also holds `flickr8k/flickr30k_entities*`, how sure boxes are is fitted on dev, too, and *placed* tells of
test: the share of boxes that overlap by half or more with one that people drew for the noun, and the calibration error.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from logistic_fits import calibration_error, fit_place, fit_support
from measured_photos import TestPhoto
from measured_places import box_hits
from measured_swaps import Swapped, noun_counts, swapped

from sightline.checkpoint.bundle import default_bundle, load_bundle
from sightline.data.image_list import photo_number, read_names
from sightline.devices import choose_device
from sightline.files import existing_path, write_json
from sightline.grounding.calibration import Floats, SupportModel
from sightline.grounding.evidence import Evidence
from sightline.pipeline import Pipeline
from sightline.training.recipe_captions import read_captions
from sightline.vision.photo_reader import progress_bar

SEED = 8
SHARES = (0.05, 0.1, 0.2)  # of untouched nouns that are flagged on dev


@dataclass(frozen=True)
class Nouns:
    """What is known about the nouns of captions, and which of them are as people wrote them; `missed` others are none
    to the tagger. `caption` is the number of each noun's caption, and `whole` of each caption whether it is as people
    wrote it.
    """

    evidence: list[Evidence]
    shown: Floats
    missed: int
    caption: list[int]
    whole: list[bool]

    def supports(self, auditing: SupportModel) -> tuple[Floats, Floats]:
        """Of the nouns people wrote, and of those in the place of others."""
        support = auditing.support(self.evidence)
        return support[self.shown == 1], np.concatenate([support[self.shown == 0], np.full(self.missed, math.inf)])


def photos(data: Path, split: str, limit: int | None = None) -> list[TestPhoto]:
    """Photos of a split of Flickr8k that are there, in its order."""
    folder = existing_path(data / "flickr8k")
    said = {photo.file: photo for photo in read_captions(folder / "Flickr8k.token.txt")}
    names = [name for name in read_names(folder / f"Flickr_8k.{split}Images.txt") if name in said]
    found = [
        TestPhoto(name, folder / "images" / name, tuple(sentence.text for sentence in said[name].sentences))
        for name in names
    ]
    return [photo for photo in found if split == "train" or photo.path.is_file()][:limit]


def audited(pipeline: Pipeline, captions: Sequence[Swapped], title: str, blind: bool = False) -> Nouns:
    """Ask the model about every noun; if `blind`, with the photo of the next captions."""
    groups = [list(own) for _, own in itertools.groupby(captions, key=lambda caption: caption.photo)]
    paths = [own[0].photo.path for own in groups]
    if blind:
        paths = paths[1:] + paths[:1]
    evidence: list[Evidence] = []
    shown: list[float] = []
    missed = 0
    caption_of, whole = list[int](), list[bool]()
    for path, own in zip(progress_bar(title)(paths), groups, strict=True):
        for caption, audit in zip(own, pipeline.audit(path, [caption.text for caption in own]), strict=True):
            caption_of += [len(whole)] * len(audit.nouns)
            whole.append(caption.at is None)
            evidence += [noun.evidence for noun in audit.nouns]
            shown += [float(noun.index != caption.at) for noun in audit.nouns]
            missed += caption.at is not None and all(noun.index != caption.at for noun in audit.nouns)
    return Nouns(evidence, np.array(shown), missed, caption_of, whole)


def auroc(real: Floats, wrong: Floats) -> float:
    """The probability that a noun people wrote has more support than one in the place of another; ties count half."""
    order = np.sort(wrong)
    below, equal = np.searchsorted(order, real, "left"), np.searchsorted(order, real, "right")
    return float((below + equal).mean() / (2 * len(wrong)))


def rates(nouns: Nouns, auditing: SupportModel) -> dict[str, float]:
    """At the threshold of `auditing`, in per cent; and the AUROC, which needs none."""
    real, wrong = nouns.supports(auditing)
    flagged, whole = np.zeros(len(nouns.whole), np.bool_), np.array(nouns.whole)
    flagged[
        [at for at, low in zip(nouns.caption, auditing.support(nouns.evidence) < auditing.least, strict=True) if low]
    ] = True
    return {
        "caught": 100 * float((wrong < auditing.least).mean()),
        "flagged": 100 * float((real < auditing.least).mean()),
        "captions caught": 100 * float(flagged[~whole].mean()) if (~whole).any() else 0.0,
        "captions flagged": 100 * float(flagged[whole].mean()) if whole.any() else 0.0,
        "AUROC": auroc(real, wrong),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Fit on dev, tell of test."""
    device = choose_device(options.device)
    pipeline = Pipeline(load_bundle(options.model or default_bundle(), device), device)
    counts = noun_counts(text for photo in photos(options.data, "train") for text in photo.references)
    dev, test = (
        list(swapped(photos(options.data, split, options.limit), counts, SEED + number))
        for number, split in enumerate(("dev", "test"))
    )
    learned, asked = audited(pipeline, dev, "dev"), audited(pipeline, test, "test")
    fitted = fit_support(learned.evidence, learned.shown, options.flagged)
    place = boxes(pipeline, options) if any((options.data / "flickr8k").glob("flickr30k_entities*")) else None
    if place is not None:
        fitted = replace(fitted, place=place["numbers"])
    results: dict[str, Any] = {
        "auditing": dataclasses.asdict(fitted),
        "nouns": {"people's": int(asked.shown.sum()), "replaced": int((1 - asked.shown).sum()) + asked.missed},
        "test": rates(asked, fitted),
        "dev": rates(learned, fitted),
        "placed": place,
    }
    for share in SHARES:
        other = fit_support(learned.evidence, learned.shown, share)
        results[f"test, where dev flags {share:.0%}"] = rates(asked, other)
    for name in Evidence._fields:
        alone = [only(one, name) for one in learned.evidence]
        if np.isfinite([getattr(one, name) for one in alone]).any():
            part = replace(asked, evidence=[only(one, name) for one in asked.evidence])
            results[f"test, {name} alone"] = rates(part, fit_support(alone, learned.shown, options.flagged))
    if not options.quick:
        blind = [audited(pipeline, own, f"{name}, blind", blind=True) for name, own in (("dev", dev), ("test", test))]
        results["test, blind"] = rates(blind[1], fit_support(blind[0].evidence, blind[0].shown, options.flagged))
    return results


def boxes(pipeline: Pipeline, options: argparse.Namespace) -> dict[str, Any]:
    """How sure boxes are, fitted on dev, and how right that is on test."""
    (shares, right), (others, truth) = (
        np.array(
            box_hits(pipeline, options.data, numbered(photos(options.data, split, options.limit)), f"{split}, boxes")
        ).T
        for split in ("dev", "test")
    )
    numbers = fit_place(shares, right)
    rates = {"boxes": len(truth), "right": 100 * float(truth.mean())}
    for name, auditing in (("", SupportModel(place=numbers)), (", the model's own", pipeline.auditing)):
        rates[f"calibration error{name}"] = calibration_error(auditing.place_probability(others), truth)
    return {"numbers": numbers, **rates}


def numbered(some: Sequence[TestPhoto]) -> list[TestPhoto]:
    """The photos with the ids of Flickr30k Entities."""
    return [replace(photo, id=photo_number(photo.id)) for photo in some]


def only(evidence: Evidence, name: str) -> Evidence:
    """One part of the evidence."""
    return Evidence(**{name: getattr(evidence, name)})


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("SIGHTLINE_DATA")
    parser.add_argument("--data", type=Path, default=data and Path(data), required=not data)
    parser.add_argument("--model", type=Path, help="by default the one that comes with the package")
    parser.add_argument("--out", type=Path, help="write what is told as JSON, too")
    parser.add_argument("--limit", type=int, help="only the first photos of dev and of test")
    parser.add_argument("--flagged", type=float, default=0.1, help="share of dev's nouns that the threshold flags")
    parser.add_argument("--quick", action="store_true", help="not blind")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    results = measure(options)
    for name, told in results.items():
        print(f"{name}: {told}", flush=True)
    if options.out is not None:
        write_json(options.out, results, indent=1)
    return results


if __name__ == "__main__":
    main()
