"""Fit the confidence of captions (`sightline.grounding.calibration.Calibration`) on photos that were not trained on.

    python tools/fit_confidence.py --data DATA [--coco-images DATA/coco/images] [--photos 2000] [--flickr 600]
        [--model FILE] [--out confidence.json] [--json]

DATA is that of tools/fit_choice.py, whose numbers are to be in the model before: what a caption's nouns are supported
by is part of its confidence. A caption is good if its CIDEr-D reaches the median of people's (human_bar.py) and none of
its nouns is unsupported (measured_truth.py). What is told of each set is of either half of its photos under the fit on
the other halves; what is written is fitted on all. *Wrong* is a caption with an unsupported noun.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fit_choice import PhotoSet
from human_bar import good
from logistic_fits import calibration_error, fit_calibration
from measure_audit import auroc
from measured_options import parser, report
from measured_photos import coco, flickr8k
from measured_truth import unsupported

from sightline.grounding.calibration import Calibration
from sightline.pipeline import Pipeline, load
from sightline.text.tokenizer import ptb_tokenize_all

FIFTH = 0.2


@dataclasses.dataclass(frozen=True)
class Judged:
    """The captions of a set: (n, features), whether each is good, and whether each names what is not there."""

    x: Any
    good: Any
    wrong: Any

    @property
    def half(self) -> Any:
        """Every second photo."""
        return np.arange(len(self.good)) % 2 == 0


@torch.inference_mode()
def judged(pipeline: Pipeline, photos: PhotoSet) -> Judged:
    """The captions of a set."""
    ids: list[str] = []
    rows, texts = [], []
    for own, scenes in photos.batches(pipeline.device):
        for id, (caption, numbers, _) in zip(own, pipeline.choose_captions(scenes), strict=True):
            ids.append(id)
            rows.append(numbers)
            texts.append(caption.words)
    spoken = ptb_tokenize_all([" ".join(words) for words in texts])
    reached, _ = good(dict(zip(ids, spoken, strict=True)), photos.references)
    wrong = [
        bool(unsupported([words], photos.references[id], photos.objects.get(id, ()))[0])
        for id, words in zip(ids, texts, strict=True)
    ]
    fine = [reached[id] and not bad for id, bad in zip(ids, wrong, strict=True)]
    return Judged(np.array(rows), np.array(fine), np.array(wrong))


def rates(confidence: Any, own: Judged, low: float) -> dict[str, float]:
    """How well confidences tell good captions from others, and right from wrong ones."""
    order = np.argsort(confidence, kind="stable")
    fifth = order[: max(1, round(FIFTH * len(order)))]
    below = confidence < low
    return {
        "captions": len(order),
        "good": 100 * float(own.good.mean()),
        "AUROC": auroc(confidence[own.good], confidence[~own.good]),
        "AUROC of wrong": auroc(confidence[~own.wrong], confidence[own.wrong]),
        "calibration error": calibration_error(confidence, own.good),
        "wrong": 100 * float(own.wrong.mean()),
        "wrong in the least confident fifth": 100 * float(own.wrong[fifth].mean()),
        "not good in the least confident fifth": 100 * float(1 - own.good[fifth].mean()),
        "of low confidence": 100 * float(below.mean()),
        "wrong among those": 100 * float(own.wrong[below].mean()) if below.any() else 0.0,
    }


def fit_all(pipeline: Pipeline, sets: Sequence[PhotoSet]) -> dict[str, Any]:
    """The calibration, and how good it is, beside that of the model as it is."""
    every = [judged(pipeline, photos) for photos in sets]

    def fitted(parts: Sequence[Any]) -> Calibration:
        x = np.concatenate([own.x[part] for own, part in zip(every, parts, strict=True)])
        y = np.concatenate([own.good[part] for own, part in zip(every, parts, strict=True)])
        return fit_calibration(x, y)

    first, second = fitted([own.half for own in every]), fitted([~own.half for own in every])
    whole = fitted([np.ones(len(own.good), np.bool_) for own in every])
    results: dict[str, Any] = {"calibration": dataclasses.asdict(whole)}
    for photos, own in zip(sets, every, strict=True):
        crossed = np.where(own.half, second.confidence(own.x), first.confidence(own.x))
        before = pipeline.bundle.calibration
        results[photos.name] = rates(crossed, own, whole.low)
        results[f"{photos.name}, before"] = rates(before.confidence(own.x), own, before.low)
    return results


def _tell(results: dict[str, Any]) -> None:
    for name, own in results.items():
        if name != "calibration":
            print(f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in own.items()))


def main(argv: list[str] | None = None) -> dict[str, Any]:
    asked = parser(__doc__, 2000)
    asked.add_argument("--coco-images", type=Path, help="by default DATA/coco/images")
    asked.add_argument("--flickr", type=int, default=600, help="dev photos of Flickr8k")
    options = asked.parse_args(argv)
    pipeline = load(options.model, options.device)
    images = options.coco_images or options.data / "coco" / "images"
    boxes = options.data / "coco" / "pseudo_boxes.jsonl.gz"
    sets = [PhotoSet(pipeline, "COCO val", coco(options.data, images, "val")[: options.photos], boxes)]
    if options.flickr:
        sets.append(PhotoSet(pipeline, "Flickr8k dev", flickr8k(options.data, "dev")[: options.flickr], None))
    results = fit_all(pipeline, sets)
    report(results, options, _tell)
    return results


if __name__ == "__main__":
    main()
