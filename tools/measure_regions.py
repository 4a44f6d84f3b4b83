"""Tell how many of the boxes that people drew a vision model finds, in photos it was trained on and in others.

    python tools/measure_regions.py --data DATA [--photos 1000] [--model FILE] [--out regions.json] [--json]

DATA holds `flickr8k/` (images/, Flickr_8k.*Images.txt, Flickr8k.token.txt, flickr30k_entities*). FILE is a bundle, or a
checkpoint with a detector, such as that of `sightline reproduce default --table vision`. Photos are the first of each
official split. A box is found if one of the model's best 10, 36 or 100 overlaps it with an IoU above one half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from measured_models import Boxes, boxes_of, groups, regions, widened
from measured_options import parser, report
from measured_photos import TestPhoto, entities_file, flickr8k

from sightline.data.entities import read_photos as read_entities
from sightline.errors import ConfigError
from sightline.jobs.extract_job import vision_of
from sightline.vision.detector import Detector
from sightline.vision.fold_batch_norm import fold

SPLITS = ("train", "dev", "test")


@torch.inference_mode()
def found(vision: Detector, photos: Sequence[TestPhoto], title: str) -> list[Boxes]:
    """The boxes of photos, on the device of the model."""
    device, boxes = next(vision.parameters()).device, list[Boxes]()
    for group in groups(photos, vision.size, title):
        boxes += boxes_of(vision, vision(torch.from_numpy(np.stack(group)).permute(0, 3, 1, 2).to(device)))
    return boxes


def _tell(results: dict[str, Any]) -> None:
    for split, own in results.items():
        print(f"{split:5}", *(f"{name} {value:.1f} %" for name, value in own.items() if name.endswith(" boxes")))


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = parser(__doc__, 1000, "of each split").parse_args(argv)
    vision = vision_of(options.model).eval()
    if not isinstance(vision, Detector):
        raise ConfigError("this vision model draws no boxes", fix="give one of the kind detector")
    wide, drawn = widened(vision), read_entities(entities_file(options.data))
    eyes = fold(wide).to(options.device)
    assert isinstance(eyes, Detector)
    results = {}
    for split in SPLITS:
        photos = [photo for photo in flickr8k(options.data, split)[: options.photos] if photo.id in drawn]
        results[split] = regions(found(eyes, photos, split), [drawn[photo.id] for photo in photos])
    report(results, options, _tell)
    return results


if __name__ == "__main__":
    main()
