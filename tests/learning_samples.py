"""A tiny dataset on disk, as people have them: captions, lists of splits, features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from sightline.scene import Concept, Scene
from sightline.training.data_config import DataConfig
from sightline.training.recipe_captions import read_photos
from sightline.training.training_photos import BOXED, NO_BOXES, boxes_of_pools, files_of_pools
from sightline.vision.feature_store import FeatureStore

COLOURS = ("red", "green", "blue", "black")
THINGS = ("dog", "cat", "bus", "horse")


def names(count: int) -> list[str]:
    return [f"{1000 + i}_{i:010x}.jpg" for i in range(count)]


def sentences(i: int) -> list[str]:
    colour, thing = COLOURS[i % 4], THINGS[i // 4 % 4]
    return [f"A {colour} {thing} stands there .", f"There is a {colour} {thing} ."]


def scene(id: str, i: int, width: int = 6) -> Scene:
    """Two regions whose numbers tell the colour and the thing."""
    regions = np.zeros((2, width), np.float32)
    regions[0, i % 4] = regions[1, i // 4 % 4] = 3
    return Scene(
        id,
        boxes=np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]], np.float32),
        scores=np.array([0.9, 0.8], np.float32),
        regions=regions,
        vector=regions.mean(0),
        concepts=(Concept(THINGS[i // 4 % 4], 0.9), Concept("person", 0.1)),
        size=(100, 200),
        fingerprint="tiny",
    )


def write_store(path: Path, ids: list[str], numbers: list[int] | None = None) -> Path:
    with FeatureStore.writer(path, fingerprint="tiny", dtype="float32") as writer:
        for i, id in zip(numbers or range(len(ids)), ids, strict=True):
            writer.add(scene(id, i))
    return path


def write_dataset(root: Path, count: int = 20) -> Path:
    """Flickr8k's files: captions, three lists of photos (the last photo is in none), features of all listed photos."""
    root.mkdir(parents=True, exist_ok=True)
    files = names(count)
    lines = [f"{file}#{k}\t{text}" for i, file in enumerate(files) for k, text in enumerate(sentences(i))]
    (root / "captions.token").write_text("\n".join(lines) + "\n")
    listed = files[:-1]
    splits = {"train": listed[:-6], "val": listed[-6:-3], "test": listed[-3:]}
    for split, members in splits.items():
        (root / f"{split}.txt").write_text("\n".join(members) + "\n")
    write_store(root / "features", listed)
    return root


DATA = {
    "captions": "captions.token",
    "splits": {"train": "train.txt", "val": "val.txt", "test": "test.txt"},
    "features": "features",
    "rule": "neuraltalk2",
    "min_count": 1,
}
MODEL = {"kind": "updown", "region_width": 6, "word_size": 8, "hidden_size": 8, "attention_size": 8, "dropout": 0.0}


def write_recipe(path: Path, **changes: object) -> Path:
    """A recipe of two rows, `base` and `short`."""
    stage = {
        "objective": {"kind": "cross-entropy"},
        "batch": {"size": 4, "captions": 2},
        "optimiser": {"lr": 0.01},
        "epochs": 2,
    }
    base = {
        "model": MODEL,
        "data": DATA,
        "stages": {"xe": stage},
        "evaluate": {"metrics": ["cider"], "strategy": {"kind": "greedy"}},
        **changes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"base": base, "rows": {"long": {}, "short": {"stages": {"xe": {"epochs": 1}}}}}))
    return path


class TrainingPhoto(NamedTuple):
    """A photo that is trained on: its pool, id, file, and how many boxes are known of it."""

    pool: str
    id: str
    file: Path
    boxes: int


def training_photos(config: DataConfig, base: Path = Path()) -> list[TrainingPhoto]:
    """Every photo that a model that sees is trained on by this recipe; no picture is opened."""
    config = replace(config, root=base / config.root)
    files = files_of_pools(config, read_photos(config, Path(), []), [])
    drawn = boxes_of_pools(config, files, [])
    listed = []
    for pool in ("train", BOXED):
        if pool in files:
            own = drawn.get(pool) or [NO_BOXES] * len(files[pool])
            for (photo, path), boxes in zip(files[pool], own, strict=True):
                listed.append(TrainingPhoto(pool, photo.id, path, len(boxes.boxes)))
    return listed
