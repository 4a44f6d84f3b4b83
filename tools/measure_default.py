"""Measure the default model as `sightline caption` runs it: captions, concepts, regions, matching, pointing.

    python tools/measure_default.py --data DATA --coco-images DATA/coco/images --out measured/ [--model FILE]
        [--limit N] [--skip flickr8k,spice] [--device cpu]

DATA holds `coco/` (captions_val2014.json.gz, karpathy_test.txt.gz) and `flickr8k/` (images, Flickr8k.token.txt,
Flickr_8k.testImages.txt, flickr30k_entities*). Captions are kept in `captions.jsonl`: an interrupted run goes on where
it was. What came out is in `results.json` and, as tables, in `results.md`.

Photos are the Karpathy-test photos of COCO that are in the folder, by id, and the official test photos of Flickr8k,
whose captions the model has never seen. Definitions are in the docstrings of measured_scores.py and measured_models.py.
"""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path
from typing import Any

import torch
from measured_models import grounded_photos, look, matching, pointing, regions
from measured_photos import CaptionLog, TestPhoto, coco, entities_file, flickr8k, photos_per_second
from measured_scores import caption_scores, concept_scores, confidence, peer_scores, pointed_captions
from measured_tables import markdown
from torch import nn

from sightline.checkpoint.bundle import Bundle, default_bundle, load_bundle
from sightline.data.entities import read_photos as read_entities
from sightline.devices import choose_device
from sightline.files import write_json, write_text
from sightline.pipeline import Pipeline
from sightline.vision.detector import Detector

SECTIONS = ("coco", "flickr8k", "peer", "spice", "confidence", "concepts", "regions", "matcher", "pointing")
SHOWN = 24  # captions in the table


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that is not skipped."""
    model = options.model or default_bundle()
    device = choose_device(options.device)
    if options.threads:
        torch.set_num_threads(options.threads)
    bundle = load_bundle(model, device)
    pipeline, kept = Pipeline(bundle, device), CaptionLog(options.out, model)
    results: dict[str, Any] = {"model": _model(model, bundle), "machine": _machine(device), "sets": {}}
    for name in ("coco", "flickr8k"):
        if name in options.skip:
            continue
        photos = coco(options.data, options.coco_images) if name == "coco" else flickr8k(options.data)
        photos = photos[: options.limit]
        said = kept.caption(pipeline, name, photos)
        results["sets"][name] = found = _said(photos, said, bundle, options.skip)
        _tell(name, found)
        found |= _seen(name, photos, said, bundle, device, options)
        if name == "coco":
            results["shown"] = [
                {"id": photo.id, "caption": said[photo.id]["caption"], "reference": photo.references[0]}
                for photo in photos[:SHOWN]
            ]
    return results


def _said(photos: list[TestPhoto], said: dict[str, Any], bundle: Bundle, skip: set[str]) -> dict[str, Any]:
    """What is told from the captions."""
    scores, signature = caption_scores(photos, said, "spice" not in skip)
    peer = None if "peer" in skip else peer_scores(photos, said)
    words = sum(len(said[photo.id]["words"]) for photo in photos)
    found: dict[str, Any] = {
        "photos": len(photos),
        "photos per second": photos_per_second(said),
        "words": words / len(photos),
        "captions": scores,
        "signature": signature,
        "pycocoevalcap": peer,
        "largest difference": None if peer is None else max(abs(scores[name] - value) for name, value in peer.items()),
    }
    if "confidence" not in skip and len(photos) > 1:
        found["confidence"] = confidence(photos, said)
    if "concepts" not in skip and isinstance(bundle.vision, Detector):
        found["concepts"] = concept_scores(photos, said, bundle.vision.config.names)
    return found


def _seen(
    name: str,
    photos: list[TestPhoto],
    said: dict[str, Any],
    bundle: Bundle,
    device: torch.device,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """What is told by looking at the photos again."""
    boxed = name == "flickr8k" and not {"regions", "pointing"} <= options.skip
    if not boxed and "matcher" in options.skip:
        return {}
    found: dict[str, Any] = {}
    looked = look(bundle, photos, device, f"{name}, looking", keep=boxed)
    if "matcher" not in options.skip and bundle.matcher is not None:
        found["matching"] = matching(bundle, looked, photos, device)
        print(f"{name}: {found['matching']}", flush=True)
    if boxed:
        annotated = read_entities(entities_file(options.data))
        if "regions" not in options.skip:
            found["regions"] = regions(looked.boxes, [annotated[photo.id] for photo in photos])
            print(f"{name}: {found['regions']}", flush=True)
        if "pointing" not in options.skip:
            grounded = grounded_photos(annotated, photos)
            found["pointing"] = pointing(bundle, looked, photos, grounded)
            found["boxes of captions"] = pointed_captions(photos, said, grounded)
    return found


def _model(path: Path, bundle: Bundle) -> dict[str, Any]:
    parts: dict[str, nn.Module] = {"vision": bundle.vision, "captioner": bundle.captioner.model}
    if bundle.matcher is not None:
        parts["matcher"] = bundle.matcher.model
    weights = {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}
    return {"file": path.name, "mib": path.stat().st_size / 2**20, "weights": weights, "card": bundle.card}


def _machine(device: torch.device) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    place = {"device": str(device), "cores": cores, "threads": torch.get_num_threads(), "torch": torch.__version__}
    return {**place, "python": platform.python_version()}


def _tell(name: str, found: dict[str, Any]) -> None:
    """Both scorers, to the last digit."""
    print(f"{name}: {found['photos']:,} photos, {found['photos per second']:.1f} a second", flush=True)
    peer = found["pycocoevalcap"] or {}
    for title, value in found["captions"].items():
        print(f"  {title:26}{value:22.15g}{f'{peer[title]:22.15g}' if title in peer else '':>22}", flush=True)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("SIGHTLINE_DATA")
    parser.add_argument("--data", type=Path, default=data and Path(data), required=not data)
    parser.add_argument("--coco-images", type=Path, help="by default DATA/coco/images")
    parser.add_argument("--model", type=Path, help="by default the one that comes with the package")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="only the first photos of each set")
    parser.add_argument("--skip", type=lambda text: set(filter(None, text.split(","))), default=set())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args(argv)
    if unknown := options.skip - set(SECTIONS):
        parser.error(f"--skip names {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    options.coco_images = options.coco_images or options.data / "coco" / "images"
    results = measure(options)
    write_json(options.out / "results.json", results, indent=1)
    write_text(options.out / "results.md", markdown(results))
    print(f"{options.out / 'results.md'} is written", flush=True)
    return results


if __name__ == "__main__":
    main()
