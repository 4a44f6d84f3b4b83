"""Tell how much of ImageNet a vision model still knows: its agreement with the backbone as downloaded.

    python tools/measure_forgetting.py --data DATA [--coco-images DATA/coco/images] [--photos 1000] [--model FILE]
        [--second lite0] [--out forgetting.json] [--json]

FILE is a bundle or a checkpoint with a detector that keeps the classes of ImageNet (`vision.imagenet`). With --second,
a second backbone is measured instead that stays as downloaded, computed as a bundle computes it (folded, 8 bits where
the CPU is fast at it). DATA holds `flickr8k/` and `coco/`; photos are the first of both test sets, squashed. Those are
counted where EfficientNet-Lite2 as downloaded is surer than one half. Told are the shares of them with the same class,
with the same name, and with a hedged name that the other's does not contradict: the same one, one that it is a kind of,
or a kind of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measured_models import groups
from measured_options import parser, report
from measured_photos import TestPhoto, coco, flickr8k
from torch import Tensor

from sightline.errors import ConfigError
from sightline.jobs.extract_job import vision_of
from sightline.vision.concept_names import imagenet_classes
from sightline.vision.concept_tokens import hedged_probabilities, imagenet_forest
from sightline.vision.detector import Detector
from sightline.vision.efficientnet_lite import SCALES
from sightline.vision.fold_batch_norm import fold, fold_int8
from sightline.vision.grid_encoder import ImageNetClassifier

SURE = 0.5  # how sure the downloaded backbone must be of its class
Reads = Callable[[Tensor], Tensor]  # pixels to logits


def agreement(downloaded: Tensor, measured: Tensor, sure: float = SURE) -> dict[str, float]:
    """Percentages of the photos where the downloaded backbone is sure; both are (n, 1000) logits."""
    kept = downloaded.softmax(-1).amax(-1) > sure
    ours, theirs = measured[kept], downloaded[kept]
    count = len(ours)
    if not count:
        return {"photos": 0}
    classes, pairs = imagenet_classes(), list(zip(ours.argmax(-1).tolist(), theirs.argmax(-1).tolist(), strict=True))
    names = [(classes[a].name, classes[b].name) for a, b in pairs]
    hedges = list(zip(hedged_names(ours), hedged_names(theirs), strict=True))
    return {
        "photos": count,
        "class": 100 * sum(a == b for a, b in pairs) / count,
        "name": 100 * sum(a == b for a, b in names) / count,
        "hedged": 100 * sum(_related(a, b) for a, b in hedges) / count,
    }


def hedged_names(logits: Tensor) -> list[str]:
    """The likeliest name that is told of each photo; "" where none is likely enough."""
    probabilities, places = hedged_probabilities(logits).max(1)
    chains = imagenet_forest().chains
    return [chains[place][0] if probabilities[row] > 0 else "" for row, place in enumerate(places.tolist())]


def _related(one: str, other: str) -> bool:
    """Whether two names are the same, or one is a kind of the other; no name agrees with no name alone."""
    return one == other or any(one in chain and other in chain for chain in (one.chain for one in imagenet_classes()))


@torch.inference_mode()
def logits(reads: Reads, size: int, photos: Sequence[TestPhoto], device: torch.device, title: str) -> Tensor:
    """(n, 1000) of photos."""
    rows = [
        reads(torch.from_numpy(np.stack(group)).permute(0, 3, 1, 2).to(device)).float().cpu()
        for group in groups(photos, size, title)
    ]
    return torch.cat(rows)


def reader(model: Path | None, second: str | None, device: torch.device) -> tuple[Reads, int]:
    """What reads classes from pixels, and the size of the pixels."""
    if second is not None:
        alone = ImageNetClassifier.from_package(second)  # type: ignore[arg-type]
        return fold_int8(alone).to(device), alone.size
    vision = vision_of(model).eval()
    if not isinstance(vision, Detector) or not vision.config.imagenet:
        raise ConfigError(
            "this vision model does not keep the classes of ImageNet",
            fix="train one with vision.kind=detector and vision.imagenet=true, or measure --second lite0",
        )
    eyes = fold_int8(vision).to(device)
    return lambda pixels: eyes.classify(eyes(pixels)), vision.size


def _tell(results: dict[str, Any]) -> None:
    for name, found in results.items():
        shares = (f"{what} {found[what]:.1f} %" for what in ("class", "name", "hedged") if what in found)
        print(f"{name:9}", f"{found['photos']} of {found['of']} photos", *shares)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    asked = parser(__doc__, 1000, "of each set")
    asked.add_argument("--coco-images", type=Path, help="by default DATA/coco/images")
    asked.add_argument("--second", choices=sorted(SCALES), help="a second backbone that stays as downloaded")
    options = asked.parse_args(argv)
    device = torch.device(options.device)
    reads, size = reader(options.model, options.second, device)
    teacher = ImageNetClassifier.from_package()
    known, own = fold(teacher).to(device), teacher.size
    images = options.coco_images or options.data / "coco" / "images"
    sets = {"COCO": coco(options.data, images), "Flickr8k": flickr8k(options.data)}
    results = {}
    for name, photos in sets.items():
        some = photos[: options.photos]
        downloaded = logits(known, own, some, device, f"{name}, downloaded")
        results[name] = {"of": len(some), **agreement(downloaded, logits(reads, size, some, device, name))}
    report(results, options, _tell)
    return results


if __name__ == "__main__":
    main()
