"""A tiny copy of the data that shipped recipes name, file by file, and their rows with tiny models and few steps."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from caption_samples import write_tar
from sightline.data.boxes_jsonl import COCO_80
from sightline.decoding.rules import Rules
from sightline.scene import Scene
from sightline.training.objectives.adversarial import AdversarialConfig
from sightline.training.objectives.r2m_stages import R2MImageConfig
from sightline.training.objectives.self_critical import SelfCriticalConfig
from sightline.training.recipe import Recipe
from sightline.training.stage import Schedule, Stage
from sightline.vision.feature_store import FeatureStore

STEPS = 20
WIDTH = 8
THINGS = ("dog", "cat", "horse", "bus", "bird", "boat", "pizza", "chair")
PLACES = ("grass", "snow", "street", "sand", "field", "table", "beach", "rock")
STORES = tuple(f"{of}-{by}" for of in ("flickr8k", "coco") for by in ("lite2", "detector", "coco-boxes"))
SPLITS = {"train": range(4), "val": range(4, 6), "test": range(6, 8)}


def sentences(i: int) -> list[str]:
    thing, place = THINGS[i % 4], PLACES[i // 4]
    return [f"A {thing} stands on the {place} .", f"There is a small {thing} near the {place} ."]


def write_data(root: Path) -> Path:
    """Everything that shipped recipes read, of eight photos each."""
    for folder in ("flickr8k", "coco", "corpora", "features"):
        (root / folder).mkdir(parents=True)
    flickr = [f"{1000 + i}_{i:010x}.jpg" for i in range(8)]
    coco = [f"COCO_{'train' if i < 4 else 'val'}2014_{i + 1:012d}.jpg" for i in range(8)]
    _write_flickr8k(root / "flickr8k", flickr)
    _write_coco(root / "coco", coco)
    ids_of = {"flickr8k": flickr, "coco": [f"{i + 1:012d}.jpg" for i in range(8)]}
    for store in STORES:
        ids = ids_of[store.partition("-")[0]]
        with FeatureStore.writer(root / "features" / store, fingerprint=store, dtype="float32") as writer:
            for i, id in enumerate(ids):
                writer.add(replace(_scene(id, i), fingerprint=store))
    lines = [f"a small {thing} stands here on the {place} now ." for thing in THINGS[:5] for place in PLACES[:2]]
    for name in ("flickr30k_captions", "conceptual_captions_val"):
        _write(root / "corpora" / f"{name}.txt.gz", "\n".join(lines) + "\n")
    _write(root / "corpora" / "senticap.json.gz", json.dumps({"images": _senticap()}))
    return root


def _senticap() -> list[dict[str, Any]]:
    """Words of the other sentences, with an adjective that is marked together with its noun."""
    images = []
    for number, thing in enumerate(THINGS[:5]):
        told = []
        for sentiment, adjective in enumerate(("dirty", "lovely")):
            for place in PLACES[:2]:
                tokens = f"a small {adjective} {thing} stands on the {place}".split()
                marks = [float(word in (adjective, thing)) for word in tokens]
                told.append(
                    {"tokens": tokens, "word_sentiment": marks, "sentiment": sentiment, "raw": " ".join(tokens)}
                )
        images.append({"imgid": number, "filename": f"{number}.jpg", "split": "train", "sentences": told})
    return images


def _scene(id: str, i: int) -> Scene:
    """Features that tell the thing and the place; the first region is where the thing is."""
    features = np.zeros((4, WIDTH), np.float32)
    features[0, i % 4] = features[1, 4 + i // 4] = 2
    features[2:] = np.random.default_rng(i).normal(size=(2, WIDTH))
    boxes = np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1], [0, 0.5, 0.4, 1], [0.5, 0, 1, 0.5]], np.float32)
    return Scene(
        id,
        boxes=boxes,
        scores=np.array([0.9, 0.8, 0.7, 0.6], np.float32),
        regions=features,
        grid=features[::-1].copy(),
        grid_shape=(2, 2),
        vector=features.mean(0),
        size=(100, 100),
    )


def _write(path: Path, text: str) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text)


def _write_flickr8k(folder: Path, names: list[str]) -> None:
    lines = [f"{name}#{k}\t{text}" for i, name in enumerate(names) for k, text in enumerate(sentences(i))]
    (folder / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    for split, list_name in {"train": "train", "val": "dev", "test": "test"}.items():
        listed = "\n".join(names[i] for i in SPLITS[split])
        (folder / f"Flickr_8k.{list_name}Images.txt").write_text(listed + "\n")
    files = {}
    for i, name in enumerate(names):
        number, thing = name.split("_")[0], THINGS[i % 4]
        marked = [text.replace(thing, f"[/EN#{i + 1}/animals {thing}]", 1) for text in sentences(i)]
        files[f"Sentences/{number}.txt"] = "\n".join(marked) + "\n"
        files[f"Annotations/{number}.xml"] = (
            "<annotation><size><width>100</width><height>100</height><depth>3</depth></size>"
            f"<object><name>{i + 1}</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>50</xmax><ymax>50</ymax></bndbox>"
            "</object></annotation>"
        )
    write_tar(folder / "flickr30k_entities_8091.tar.gz", files)
    _write_boxes(folder / "boxes.jsonl.gz", list(names))


def _write_coco(folder: Path, names: list[str]) -> None:
    for half in ("train", "val"):
        rows = [i for i, name in enumerate(names) if half in name]
        values = {
            "images": [{"id": i + 1, "file_name": names[i]} for i in rows],
            "annotations": [
                {"id": 10 * i + k, "image_id": i + 1, "caption": text}
                for i in rows
                for k, text in enumerate(sentences(i))
            ],
        }
        _write(folder / f"captions_{half}2014.json.gz", json.dumps(values))
    for split, rows in SPLITS.items():
        _write(folder / f"karpathy_{split}.txt.gz", "".join(f"{names[i]}\n" for i in rows))
    _write_boxes(folder / "pseudo_boxes.jsonl.gz", [i + 1 for i in range(8)])


def _write_boxes(path: Path, ids: list[Any]) -> None:
    kinds = [COCO_80.index(THINGS[i % 4]) for i in range(8)]
    rows = [[id, [[kind, 0.9, 10, 10, 500, 500]]] for id, kind in zip(ids, kinds, strict=True)]
    _write(path, "".join(json.dumps(row) + "\n" for row in rows))


SIZES = {
    **dict.fromkeys(("region_width", "grid_width", "vector_width"), WIDTH),
    **dict.fromkeys(("word_size", "hidden_size", "attention_size", "size", "ffn_size"), 16),
    "layers": 1,
    "heads": 2,
    "dropout": 0.0,
}


def tiny(recipe: Recipe, stage: Callable[[Stage], Stage] = lambda stage: stage) -> Recipe:
    """The same row with tiny sizes, a high learning rate and few steps; `stage` may change more."""
    model = small(recipe.model)
    return replace(
        recipe,
        model=model,
        data=replace(recipe.data, min_count=1, min_words=4, held_out=0.2),
        stages={name: None if one is None else stage(_stage(one)) for name, one in recipe.stages.items()},
        evaluate=replace(
            recipe.evaluate,
            metrics=("cider",),
            rules=Rules(max_words=8),
            folds=min(1, recipe.evaluate.folds),
            fold_size=2,
        ),
    )


def small(config: Any) -> Any:
    """A model's config with tiny sizes, those of its parts too."""
    there = {item.name for item in fields(config)}
    parts = {"jrln": small(config.jrln)} if getattr(config, "jrln", None) is not None else {}
    return replace(config, **{name: size for name, size in SIZES.items() if name in there}, **parts)


def _stage(stage: Stage) -> Stage:
    objective = stage.objective
    if isinstance(objective, AdversarialConfig):
        objective = replace(objective, word_size=8, hidden_size=8, rollouts=1, max_words=6, warmup=5)
    if isinstance(objective, SelfCriticalConfig):
        objective = replace(objective, samples=2, max_words=8)
    if isinstance(objective, R2MImageConfig):
        objective = replace(objective, max_steps=8)
    half = 4 if stage.batch.of == "pairs" else 2  # of the photos or captions of training
    rate = 0.002 if isinstance(objective, R2MImageConfig) else 0.01  # what it says changes what it learns
    return replace(
        stage,
        objective=objective,
        batch=replace(stage.batch, size=half, captions=2),
        optimiser=replace(stage.optimiser, lr=rate, lrs=dict.fromkeys(stage.optimiser.lrs, rate)),
        schedule=Schedule(),
        steps=STEPS,
        select=replace(stage.select, every_steps=STEPS if stage.select.every else 0),
    )
