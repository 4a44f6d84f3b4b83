"""Choose what a caption's fit with its photo counts among the captions of a beam
(`sightline.checkpoint.bundle.Bundle.fit`).

    python tools/fit_choice.py --data DATA [--coco-images DATA/coco/images] [--photos 1000] [--model FILE] [--beam 3]
        [--out choice.json] [--json]

DATA holds `coco/` (captions_val2014.json.gz, karpathy_val.txt.gz). Photos are the first of Karpathy's val split, by id.
Every beam is searched once; for each weight, the caption with the best log-probability + weight · cosine is taken, and
all are scored by CIDEr-D, times 100. The weight with the best is chosen; of equals, the smallest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from measured_options import parser, told
from measured_photos import TestPhoto, coco

from sightline.decoding.decode import captions
from sightline.decoding.strategies import Beam
from sightline.errors import ConfigError
from sightline.grounding.rerank import photo_cosines
from sightline.metrics.scorecard import scorecard
from sightline.models.matcher import GlobalMatcher
from sightline.pipeline import Pipeline, groups, load
from sightline.vision.photo_reader import progress_bar

WEIGHTS = (0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0)
AT_ONCE = 8
Candidate = tuple[str, float, float]  # a caption, its log-probability, its cosine with the photo


@torch.inference_mode()
def candidates(pipeline: Pipeline, photos: Sequence[TestPhoto], beam: int) -> dict[str, list[Candidate]]:
    """The beams of photos, by id, the captioner's best first."""
    says, finds = pipeline.bundle.captioner, pipeline.bundle.matcher
    if finds is None or not isinstance(finds.model, GlobalMatcher):
        raise ConfigError("this model has no matcher of whole photos", fix="give one that has")
    ids, found = iter([photo.id for photo in photos]), {}
    coming = map(pipeline.read, progress_bar("val")([photo.path for photo in photos]))
    for group in groups(coming, AT_ONCE):
        scenes = pipeline.scenes(group)
        said = captions(pipeline.captioner, scenes, says.vocabulary, Beam(beam, keep=beam), trace=False)
        cosines = photo_cosines(finds, finds.model.embed_images(scenes), [[one.words for one in own] for own in said])
        for own, row in zip(said, cosines.tolist(), strict=True):
            found[next(ids)] = [(one.text, one.log_prob, fit) for one, fit in zip(own, row, strict=True)]
    return found


def best(beams: Mapping[str, Sequence[Candidate]], weight: float) -> dict[str, str]:
    """The caption of each photo at a weight."""
    return {id: max(own, key=lambda one: one[1] + weight * one[2])[0] for id, own in beams.items()}


def scores(beams: Mapping[str, Sequence[Candidate]], photos: Sequence[TestPhoto]) -> dict[float, float]:
    """CIDEr-D at each weight, times 100."""
    references = {photo.id: photo.references for photo in photos}
    return {
        weight: 100 * scorecard(best(beams, weight), references, ["cider"]).scores.corpus["CIDEr"] for weight in WEIGHTS
    }


def _tell(results: dict[str, Any]) -> None:
    for weight, value in results["CIDEr-D"].items():
        print(f"{float(weight):5g} {value:7.2f}" + (" chosen" if float(weight) == results["fit"] else ""))


def main(argv: list[str] | None = None) -> dict[str, Any]:
    asked = parser(__doc__, 1000)
    asked.add_argument("--coco-images", type=Path, help="by default DATA/coco/images")
    asked.add_argument("--beam", type=int, default=3)
    options = asked.parse_args(argv)
    images = options.coco_images or options.data / "coco" / "images"
    photos = coco(options.data, images, "val")[: options.photos]
    found = scores(candidates(load(options.model, options.device), photos, options.beam), photos)
    results = {
        "photos": len(photos),
        "beam": options.beam,
        "CIDEr-D": {str(weight): value for weight, value in found.items()},
        "fit": max(found, key=lambda weight: (found[weight], -weight)),
    }
    told(results, options, _tell)
    return results


if __name__ == "__main__":
    main()
