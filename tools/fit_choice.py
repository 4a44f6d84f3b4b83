"""Fit how the caption of a photo is chosen (`sightline.grounding.choice.Choice`, and `Bundle.fit`).

    python tools/fit_choice.py --data DATA [--coco-images DATA/coco/images] [--photos 2000] [--flickr 600]
        [--model FILE] [--beam 5] [--cost 20] [--out choice.json] [--json]

DATA holds `coco/` (captions_val2014.json.gz, karpathy_val.txt.gz, and boxes of a detector, pseudo_boxes.jsonl.gz) and
`flickr8k/`. Photos are the first of Karpathy's val split, by id, and of Flickr8k's dev split. Every beam is searched
once, and those of doubtful photos once more.

First, how well the photo supports a noun that the captioner said: a logistic function of evidence that is not the
captioner's, fitted to whether people or boxes name the noun (measured_truth.py), with a reputation for nouns that come
often. Its AUROC is told for each half of the photos under the fit on the other half.

Then the weights: of all in the grid, those with the best CIDEr-D, times 100, less `cost` for each unsupported noun of a
caption, in the mean of both sets; of those within a tenth of a point of the best, the ones with the fewest second
looks, which take time. CHAIRs and CHAIRi are told beside. At last, from which margin on a concept, or a word for its
kind, takes the place of a noun. For concepts, it is the smallest one at which, on both sets together, four times as
many nouns become supported as cease to be; for kinds, which say less, at least 0.1, and the smallest one at which one
caption of 100 changes, or fewer.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from logistic_fits import fit_support
from measure_audit import auroc
from measured_options import parser, report
from measured_photos import TestPhoto, coco, flickr8k
from measured_truth import boxed_objects, unsupported

from sightline.batch import SceneBatch
from sightline.decoding.decode import decode
from sightline.decoding.rules import CAREFUL
from sightline.decoding.strategies import Beam
from sightline.grounding.calibration import SupportModel
from sightline.grounding.choice import Candidate, CaptionChooser, Choice, EncodedPhotos
from sightline.metrics.chair import Chair
from sightline.metrics.cider import CIDErD, DocumentFrequencies
from sightline.pipeline import Pipeline, groups, load
from sightline.text.tokenizer import ptb_tokenize_all
from sightline.vision.photo_reader import progress_bar

FITS = (0.0, 15.0, 30.0, 45.0)
DOUBTS = (0.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0)
SHORT = 0.8  # below this support of a noun, beginnings of captions are candidates
LOOKS = (0.0, 0.2, 0.3, 0.4, 0.5)
MARGINS = (-0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
NEVER = 2.0
TIMES = 4  # as many nouns as cease to be supported must become so where a concept takes their place
LEAST_VAGUE, MOST_VAGUE = 0.1, 0.01
AT_ONCE = 8


@dataclass(frozen=True)
class Weighed:
    """The candidates of a photo, with the places of unsupported nouns and the CIDEr-D, times 100, of each."""

    id: str
    candidates: list[Candidate]
    wrong: list[list[int]]
    cider: list[float]

    def allowed(self, look: float, score: Any) -> list[int]:
        """The candidates that there would be at this threshold of a second look."""
        beam = [place for place, one in enumerate(self.candidates) if one.origin == "beam"]
        doubtful = self.candidates[max(beam, key=score)].least < look
        return [place for place, one in enumerate(self.candidates) if doubtful or one.origin != "second"]


class PhotoSet:
    """Photos of one set: what is seen in them, and what people and boxes say is there."""

    def __init__(self, pipeline: Pipeline, name: str, photos: Sequence[TestPhoto], boxes: Path | None) -> None:
        self.name, self.photos = name, photos
        self.references = {photo.id: ptb_tokenize_all(list(photo.references)) for photo in photos}
        self.frequencies = DocumentFrequencies.of(self.references.values())
        self.objects = {} if boxes is None or not boxes.is_file() else boxed_objects(boxes, self.references)
        coming = map(pipeline.read, progress_bar(name)([photo.path for photo in photos]))
        with torch.inference_mode():
            self.scenes = [pipeline.scenes(group).to("cpu", torch.float16) for group in groups(coming, AT_ONCE)]

    def batches(self, device: torch.device) -> Any:
        """The scenes again, with the ids of their photos."""
        ids = iter(self.photos)
        for scenes in self.scenes:
            yield [next(ids).id for _ in range(len(scenes))], scenes.to(device, torch.float32)

    def wrong(self, id: str, candidates: Sequence[Candidate]) -> list[list[int]]:
        """Places of unsupported nouns of captions of a photo."""
        return unsupported([one.words for one in candidates], self.references[id], self.objects.get(id, ()))

    def ciders(self, captions: Mapping[str, str]) -> dict[str, float]:
        """Of each caption, times 100."""
        ids = list(captions)
        metric = CIDErD(self.frequencies)
        spoken = ptb_tokenize_all(list(captions.values()))
        metric.update(dict(zip(ids, spoken, strict=True)), {id: self.references[id] for id in ids})
        return {id: 100 * scores["CIDEr"] for id, scores in metric.compute().per_image.items()}

    def chair(self, captions: Mapping[str, str]) -> dict[str, float]:
        """CHAIRs and CHAIRi of captions, in per cent."""
        metric = Chair(self.objects)
        spoken = dict(zip(captions, ptb_tokenize_all(list(captions.values())), strict=True))
        metric.update(spoken, {id: self.references[id] for id in captions})
        return metric.compute().corpus


@torch.inference_mode()
def weighed(pipeline: Pipeline, photos: PhotoSet, choice: Choice, beam: int, fit: float = 30.0) -> list[Weighed]:
    """All candidates of every photo under a choice."""
    chooser, found = CaptionChooser(pipeline._grounder, choice, fit), []
    every: list[tuple[str, list[Candidate]]] = []
    for ids, scenes in photos.batches(pipeline.device):
        every += zip(ids, candidates(pipeline, chooser, encoded(pipeline, scenes), beam), strict=True)
    most = max(len(own) for _, own in every)
    scores = [
        photos.ciders({id: " ".join(own[place].words) for id, own in every if place < len(own)})
        for place in range(most)
    ]
    for id, own in every:
        found.append(Weighed(id, own, photos.wrong(id, own), [scores[place][id] for place in range(len(own))]))
    return found


def encoded(pipeline: Pipeline, scenes: SceneBatch) -> EncodedPhotos:
    """What the models make of scenes."""
    return EncodedPhotos(pipeline.captioner.encode(scenes), pipeline._grounder.photo_evidence(scenes))


def candidates(pipeline: Pipeline, chooser: CaptionChooser, photos: EncodedPhotos, beam: int) -> list[list[Candidate]]:
    """The candidates of photos."""
    vocabulary = pipeline.bundle.captioner.vocabulary
    decoded = decode(pipeline.captioner, photos.memory, Beam(beam, keep=beam), CAREFUL, vocabulary)
    return chooser.candidates(photos, decoded, CAREFUL)


def nouns_of(some: Sequence[Weighed]) -> tuple[list[Any], np.ndarray[Any, Any], list[str], list[int]]:
    """Evidence, whether it is supported, the noun, and the number of the photo, of each noun of each beam, once."""
    evidence, shown, names, photo = [], [], [], []
    for number, one in enumerate(some):
        seen: set[str] = set()
        for candidate, wrong in zip(one.candidates, one.wrong, strict=True):
            for at, known in zip(candidate.nouns, candidate.evidence, strict=True):
                if candidate.words[at] not in seen:
                    seen.add(candidate.words[at])
                    evidence.append(known)
                    shown.append(float(at not in wrong))
                    names.append(candidate.words[at])
                    photo.append(number)
    return evidence, np.array(shown), names, photo


def fitted_support(sets: Sequence[Sequence[Weighed]]) -> tuple[SupportModel, dict[str, float]]:
    """The support of nouns, fitted on all photos; and its AUROC on each set under the fit on the other half."""
    parts = [nouns_of(own) for own in sets]
    evidence, names = [one for part in parts for one in part[0]], [name for part in parts for name in part[2]]
    shown = np.concatenate([part[1] for part in parts])
    half = np.array([number % 2 == 0 for part in parts for number in part[3]])
    whose = np.concatenate([np.full(len(part[1]), place) for place, part in enumerate(parts)])
    support = np.zeros(len(shown))
    for own in (half, ~half):
        learned = _fit(evidence, shown, names, np.flatnonzero(~own))
        rows = np.flatnonzero(own)
        support[rows] = learned.support([evidence[i] for i in rows], [names[i] for i in rows])
    told = {
        str(place): auroc(support[(whose == place) & (shown == 1)], support[(whose == place) & (shown == 0)])
        for place in range(len(parts))
    }
    return _fit(evidence, shown, names, np.arange(len(shown))), told


def _fit(evidence: list[Any], shown: Any, names: list[str], rows: Any) -> SupportModel:
    return fit_support([evidence[i] for i in rows], shown[rows], 0.1, [names[i] for i in rows])


def picked(some: Sequence[Weighed], fit: float, doubt: float, look: float) -> list[int]:
    """Which candidate is chosen of each photo."""
    found = []
    for one in some:
        totals = [candidate.total(fit, doubt) for candidate in one.candidates]
        found.append(max(one.allowed(look, totals.__getitem__), key=totals.__getitem__))
    return found


def scores(photos: PhotoSet, some: Sequence[Weighed], places: Sequence[int]) -> dict[str, float]:
    """What captions are worth that were chosen."""
    said = {one.id: " ".join(one.candidates[place].words) for one, place in zip(some, places, strict=True)}
    wrong = [len(one.wrong[place]) for one, place in zip(some, places, strict=True)]
    return {
        "CIDEr-D": float(np.mean([one.cider[place] for one, place in zip(some, places, strict=True)])),
        "unsupported nouns": float(np.mean(wrong)),
        "captions with one": 100 * float(np.mean([count > 0 for count in wrong])),
        **{key: value for key, value in photos.chair(said).items() if key in ("CHAIRs", "CHAIRi")},
        "words": float(np.mean([len(text.split()) for text in said.values()])),
    }


@torch.inference_mode()
def margins(pipeline: Pipeline, sets: Sequence[PhotoSet], choice: Choice, fit: float, beam: int) -> dict[str, Any]:
    """How nouns that change fare, by the margin from which on they do."""
    changes: dict[str, list[tuple[float, bool, bool]]] = {"swap": [], "vague": []}
    chooser = CaptionChooser(pipeline._grounder, choice, fit)
    for photos in sets:
        for ids, scenes in photos.batches(pipeline.device):
            batch = encoded(pipeline, scenes)
            for row, (id, own) in enumerate(zip(ids, candidates(pipeline, chooser, batch, beam), strict=True)):
                best = chooser.best(own)
                for words, origin, gain in itertools.islice(chooser.other_nouns(best, row, batch.evidence), 1):
                    before, after = photos.wrong(id, [best, replace(best, words=words)])
                    changes[origin].append((gain, len(after) < len(before), len(after) > len(before)))
    results: dict[str, Any] = {}
    count = sum(len(photos.photos) for photos in sets)
    for origin, moves in changes.items():
        rows = []
        for margin in MARGINS:
            over = [(better, worse) for gain, better, worse in moves if gain > margin]
            better, worse = sum(better for better, _ in over), sum(worse for _, worse in over)
            rows.append({"margin": margin, "nouns": len(over), "better": better, "worse": worse})
        enough = [
            row["margin"]
            for row in rows
            if (origin == "vague" and row["margin"] >= LEAST_VAGUE and row["nouns"] <= MOST_VAGUE * count)
            or (origin == "swap" and row["better"] and row["better"] >= TIMES * row["worse"])
        ]
        results[origin] = {"chosen": min(enough, default=NEVER), "by margin": rows}
    return results


def fit_all(pipeline: Pipeline, sets: Sequence[PhotoSet], beam: int, cost: float) -> dict[str, Any]:
    """All numbers of the choice."""
    beams = [weighed(pipeline, photos, Choice(), beam) for photos in sets]
    support, told = fitted_support(beams)
    wide = Choice(doubt=8.0, shorten=SHORT, second_look=max(LOOKS), support=support)
    every = [weighed(pipeline, photos, wide, beam) for photos in sets]
    rows: list[dict[str, Any]] = []
    for fit_, doubt, look in itertools.product(FITS, DOUBTS, LOOKS):
        row: dict[str, Any] = {"fit": fit_, "doubt": doubt, "second look": look}
        for photos, own in zip(sets, every, strict=True):
            row[photos.name] = scores(photos, own, picked(own, fit_, doubt, look))
        rows.append(row)
    worth = [_worth(row, sets, cost) for row in rows]
    best = min(
        (row for row, value in zip(rows, worth, strict=True) if value >= max(worth) - 0.1),
        key=lambda row: row["second look"],
    )
    before: dict[str, Any] = {"fit": 30.0, "doubt": 0.0, "second look": 0.0}
    for photos, own in zip(sets, beams, strict=True):
        before[photos.name] = scores(photos, own, picked(own, 30.0, 0.0, 0.0))
    choice = Choice(best["doubt"], SHORT, best["second look"], NEVER, NEVER, support)
    moved = margins(pipeline, sets, choice, best["fit"], beam)
    choice = replace(choice, swap=moved["swap"]["chosen"], vague=moved["vague"]["chosen"])
    return {
        "photos": {photos.name: len(photos.photos) for photos in sets},
        "AUROC of support": {photos.name: told[str(place)] for place, photos in enumerate(sets)},
        "cost": cost,
        "before": before,
        "chosen": best,
        "nouns that change": moved,
        "fit": best["fit"],
        "choice": dataclasses.asdict(choice),
        "grid": rows,
    }


def _worth(row: Mapping[str, Any], sets: Sequence[PhotoSet], cost: float) -> float:
    return float(np.mean([row[one.name]["CIDEr-D"] - cost * row[one.name]["unsupported nouns"] for one in sets]))


def _tell(results: dict[str, Any]) -> None:
    print(
        "AUROC of support: " + ", ".join(f"{name} {value:.3f}" for name, value in results["AUROC of support"].items())
    )
    for title in ("before", "chosen"):
        row = results[title]
        print(f"{title}: fit {row['fit']:g}, doubt {row['doubt']:g}, second look {row['second look']:g}")
        for name in results["photos"]:
            print(f"  {name}: " + ", ".join(f"{key} {value:.2f}" for key, value in row[name].items()))
    for origin, own in results["nouns that change"].items():
        print(f"{origin}: from {own['chosen']:g}")
        for row in own["by margin"]:
            print(f"  {row['margin']:5g}: {row['nouns']} nouns, {row['better']} better, {row['worse']} worse")


def main(argv: list[str] | None = None) -> dict[str, Any]:
    asked = parser(__doc__, 2000)
    asked.add_argument("--coco-images", type=Path, help="by default DATA/coco/images")
    asked.add_argument("--flickr", type=int, default=600, help="dev photos of Flickr8k")
    asked.add_argument("--beam", type=int, default=5)
    asked.add_argument("--cost", type=float, default=20.0)
    options = asked.parse_args(argv)
    pipeline = load(options.model, options.device)
    images = options.coco_images or options.data / "coco" / "images"
    sets = [
        PhotoSet(
            pipeline,
            "COCO val",
            coco(options.data, images, "val")[: options.photos],
            options.data / "coco" / "pseudo_boxes.jsonl.gz",
        )
    ]
    if options.flickr:
        sets.append(PhotoSet(pipeline, "Flickr8k dev", flickr8k(options.data, "dev")[: options.flickr], None))
    results = fit_all(pipeline, sets, options.beam, options.cost)
    report(results, options, _tell)
    return results


if __name__ == "__main__":
    main()
