"""Tell how much of a captioner is learned by heart: photos it was trained on, and photos it was not.

    python tools/measure_gap.py --data DATA [--coco-images DATA/coco/images] [--photos 500] [--model FILE]
        [--out gap.json] [--json]

DATA holds `coco/` (captions_val2014.json.gz, karpathy_{train,val}.txt.gz). Photos are the first of COCO's val2014, by
id, in Karpathy's splits train and val: both were taken and described alike, and only those of train were trained on.
Captions are greedy. CIDEr-D weighs words by the captions of all these photos, so that both sets are scored alike; it is
told times 100, with its standard error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measured_options import parser, report
from measured_photos import TestPhoto, coco, refuse

from sightline.metrics.scorecard import scorecard
from sightline.pipeline import Pipeline, load
from sightline.vision.photo_reader import progress_bar


def greedy(pipeline: Pipeline, photos: Sequence[TestPhoto], title: str) -> dict[str, str]:
    """The captions of photos, by id."""
    said = pipeline.caption_many([photo.path for photo in photos], beam=1, bad=refuse, progress=progress_bar(title))
    return {photo.id: one.text for photo, one in zip(photos, said, strict=True)}


def gap(said: Mapping[str, str], sets: Mapping[str, Sequence[TestPhoto]]) -> dict[str, dict[str, float]]:
    """CIDEr-D of each set, and how far the first is ahead of the second."""
    references = {photo.id: photo.references for photos in sets.values() for photo in photos}
    scored = scorecard(said, references, ["cider"]).scores.per_image
    found = {}
    for name, photos in sets.items():
        own = 100 * np.array([scored[photo.id]["CIDEr"] for photo in photos])
        found[name] = {"photos": len(own), "CIDEr-D": float(own.mean()), "error": float(own.std() / len(own) ** 0.5)}
    first, second = found.values()
    difference = first["CIDEr-D"] - second["CIDEr-D"]
    return {**found, "gap": {"CIDEr-D": difference, "error": float(np.hypot(first["error"], second["error"]))}}


def _tell(results: dict[str, Any]) -> None:
    for name, found in results.items():
        print(f"{name:6} CIDEr-D {found['CIDEr-D']:6.1f} ± {found['error']:.1f}")


def main(argv: list[str] | None = None) -> dict[str, Any]:
    asked = parser(__doc__, 500, "of each split")
    asked.add_argument("--coco-images", type=Path, help="by default DATA/coco/images")
    options = asked.parse_args(argv)
    pipeline, images = load(options.model, options.device), options.coco_images or options.data / "coco" / "images"
    sets = {split: coco(options.data, images, split)[: options.photos] for split in ("train", "val")}
    said = {id: text for split, photos in sets.items() for id, text in greedy(pipeline, photos, split).items()}
    results = gap(said, sets)
    report(results, options, _tell)
    return results


if __name__ == "__main__":
    main()
