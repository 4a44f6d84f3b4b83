"""Captions to measure on: COCO's where SIGHTLINE_DATA points at them, else made up with a similar shape."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path

import numpy as np

ADJECTIVES = "small large red white black young old wooden green busy empty bright wet tall striped".split()
VERBS = "sitting standing lying parked riding holding looking playing walking eating hanging flying".split()
PLACES = "on a|in a|next to a|near the|under the|in front of a|behind a|at the|on top of a|with a".split("|")


def captions(images: int, per_image: int = 5) -> tuple[str, list[list[str]]]:
    """Where the captions come from, and `per_image` raw captions for each image."""
    path = Path(os.environ.get("SIGHTLINE_DATA", "")) / "coco" / "captions_train2014.json.gz"
    return (
        ("COCO captions", _coco(path, images, per_image))
        if path.exists()
        else ("made-up captions", _made_up(images, per_image))
    )


def plain(caption: str) -> str:
    """Lower case, without punctuation: close enough to a tokenizer's output to measure on."""
    return " ".join(re.findall(r"\w+", caption.lower()))


def _coco(path: Path, images: int, per_image: int) -> list[list[str]]:
    found: dict[int, list[str]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for annotation in json.load(file)["annotations"]:
            found.setdefault(annotation["image_id"], []).append(annotation["caption"])
    chosen = sorted(id for id, texts in found.items() if len(texts) >= per_image)[:images]
    return [found[id][:per_image] for id in chosen]


def _made_up(images: int, per_image: int) -> list[list[str]]:
    rng = np.random.default_rng(0)

    def caption(things: list[int]) -> str:
        first, second = rng.choice(things, 2)
        text = f"A {rng.choice(ADJECTIVES)} thing{first} {rng.choice(VERBS)} {rng.choice(PLACES)} thing{second}"
        if rng.random() < 0.6:
            text += f", {rng.choice(PLACES)} {rng.choice(ADJECTIVES)} thing{rng.zipf(1.4) % 8000}"
        return f"{text}."

    return [[caption(things) for _ in range(per_image)] for things in (rng.zipf(1.4, (images, 4)) % 8000).tolist()]
