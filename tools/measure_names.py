"""Whether captions use what the vision model knows outside COCO: photos of ImageNet's classes, and names changed.

    python tools/measure_names.py FOLDER [--model FILE] [--every 4] [--first 0] [--changed 60] [--out names.json]

FOLDER holds one photo of each of the 1,000 classes, whose names in order are in the order of the classes, such as
n01440764_tench.JPEG. Of every fourth one: whether the most likely class is the true one, whether the caption says the
class's everyday name, and whether it says that or what it is a kind of (`sightline.vision.concept_names`).

Then, of the first of these photos whose surest name is an animal or a vehicle: that name becomes *wallaby* or
*tractor* in what the captioner reads, and *follows* is the share whose most probable caption says the new name.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sightline
from sightline.decoding.decode import caption_words, decode
from sightline.decoding.strategies import Beam
from sightline.files import write_json
from sightline.photo import Photo
from sightline.pipeline import Pipeline
from sightline.text.lemmas import lemma
from sightline.training.objectives.name_variation import kinds_of
from sightline.vision.concept_names import imagenet_classes
from sightline.vision.concept_tokens import token_names
from sightline.vision.detector import Detector

BATCH = 8
OTHERS = {"animal": "wallaby", "vehicle": "tractor"}


def says(words: Sequence[str], name: str) -> bool:
    """True where a caption has the words of a name, in singular or plural."""
    text = " " + " ".join(lemma(word, "n") for word in words) + " "
    return f" {' '.join(lemma(word, 'n') for word in name.split())} " in text


def named(pipeline: Pipeline, photos: dict[int, Photo]) -> dict[str, float]:
    """Shares of photos, by class: the class is the most likely, the caption says its name, that or its kind."""
    vision = pipeline._vision
    if not isinstance(vision, Detector):
        raise SystemExit("the vision model of this file knows no classes of ImageNet")
    right = name = kind = sure = 0
    places = list(photos)
    for first in range(0, len(places), BATCH):
        group = places[first : first + BATCH]
        pixels = np.stack([photos[place].pixels for place in group])
        with torch.inference_mode():
            best = vision.classify(vision(torch.from_numpy(pixels).permute(0, 3, 1, 2))).argmax(1).tolist()
        captions = pipeline.caption([photos[place] for place in group])
        for place, told, caption in zip(group, best, captions, strict=True):
            chain = imagenet_classes()[place].chain
            right += told == place
            own = says(caption.words, chain[0])
            name += own
            kind += own or any(says(caption.words, above) for above in chain)
            sure += not caption.low_confidence
    count = len(places)
    shares = {"top-1": right, "says the name": name, "says it or its kind": kind, "not marked as unsure": sure}
    return {"photos": count, **{what: round(100 * value / count, 1) for what, value in shares.items()}}


@torch.inference_mode()
def follows(pipeline: Pipeline, photos: Sequence[Photo], most: int) -> dict[str, float]:
    """How often the captioner says a name that was put in the place of another of its kind."""
    names, vocabulary = token_names(), pipeline.bundle.captioner.vocabulary
    kind_of = kinds_of(names)
    tried = followed = 0
    for photo in photos:
        if tried == most:
            break
        scenes = pipeline.scenes([photo])
        if scenes.names is None:
            raise SystemExit("this model reads no names")
        first = int(scenes.names[0, 0])
        other = OTHERS.get(kind_of[first], "") if first >= 0 else ""
        if not other or names[first] == other:
            continue
        changed = scenes.names.clone()
        alike = [kind_of[one] == kind_of[first] for one in changed[0].tolist()]
        changed[0, torch.tensor(alike)] = -1
        changed[0, 0] = names.index(other)
        memory = pipeline.captioner.encode(replace(scenes, names=changed))
        words = caption_words(decode(pipeline.captioner, memory, Beam(3), None, vocabulary), vocabulary)[0][0]
        tried += 1
        followed += says(words, other)
    return {"changed": tried, "follows": round(100 * followed / max(1, tried), 1)}


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--changed", type=int, default=60)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    files = sorted(path for path in options.folder.iterdir() if path.suffix.lower() in (".jpeg", ".jpg"))
    if len(files) != len(imagenet_classes()):
        raise SystemExit(f"{options.folder}: {len(files)} photos for {len(imagenet_classes())} classes")
    pipeline = sightline.load(options.model, "cpu")
    photos = {place: pipeline.read(files[place]) for place in range(options.first, len(files), options.every)}
    found = {**named(pipeline, photos), **follows(pipeline, list(photos.values()), options.changed)}
    print(json.dumps(found))
    if options.out is not None:
        write_json(options.out, found, indent=2)
    return found


if __name__ == "__main__":
    main()
