"""The recipes of the shipped model: each row looks at real pixels, learns, stops, and goes on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from recipe_samples import STEPS, tiny, write_data
from sightline.checkpoint.model_checkpoint import load
from sightline.config import load_yaml
from sightline.training.launch import Callbacks
from sightline.training.new_model import Detect
from sightline.training.objectives.detect_and_caption import DetectAndCaptionConfig
from sightline.training.recipe import SHIPPED
from sightline.training.reproduce import Row, choose, plan, run
from sightline.vision.detector import Detector

ROWS = {row.address: row for row in plan(choose("default"))}
SIZE, RATE = 64, 2e-3


def small(row: Row) -> Row:
    """The row with tiny pictures, tiny models and few steps; what it freezes stays frozen."""
    recipe, vision = tiny(row.recipe), row.recipe.vision
    stages = {}
    for name, stage in recipe.stages.items():
        if stage is None:
            continue
        given = row.recipe.stages[name].optimiser.lrs
        objective = stage.objective
        if isinstance(objective, DetectAndCaptionConfig):
            objective = replace(objective, size=0, boxed=min(objective.boxed, 2), imagenet=0.0, imagenet_cells=0.0)
        optimiser = replace(stage.optimiser, lr=RATE, lrs={part: RATE if rate else 0.0 for part, rate in given.items()})
        stages[name] = replace(stage, objective=objective, optimiser=optimiser, precision="float32")
    model = recipe.model
    if isinstance(vision, Detect):  # others read the features of `write_data`
        weights = vision.weights if vision.weights.startswith("recipe:") else "random"
        model = replace(model, region_width=512, grid_width=1280)
        vision = replace(vision, variant="lite0", size=SIZE, boxes=4, weights=weights)
    start = "" if recipe.start.endswith(".safetensors") else recipe.start  # those are made of the shipped file
    return replace(row, recipe=replace(recipe, model=model, vision=vision, stages=stages, start=start))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_data(tmp_path_factory.mktemp("data"))
    random = np.random.default_rng(0)
    names = {
        "coco": [f"{i + 1:012d}.jpg" for i in range(8)],
        "flickr8k": [f"{1000 + i}_{i:010x}.jpg" for i in range(8)],
    }
    for folder, files in names.items():
        (root / folder / "images").mkdir()
        for i, name in enumerate(files):
            pixels = random.integers(0, 60, (SIZE, SIZE, 3), dtype=np.uint8)
            pixels[: SIZE // 2, : SIZE // 2, i % 3] = 130 + 30 * (i % 4)  # where the box is
            Image.fromarray(pixels).save(root / folder / "images" / name)
        (root / "photos" / folder).mkdir(parents=True)
        for name in files:
            (root / "photos" / folder / name).symlink_to(root / folder / "images" / name)
    boxes = [(root / file).read_bytes() for file in ("coco/pseudo_boxes.jsonl.gz", "flickr8k/boxes.jsonl.gz")]
    (root / "photos" / "boxes.jsonl.gz").write_bytes(b"".join(boxes))
    return root


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class StopError(Exception):
    """A run that is killed."""


def stopping(row: Row) -> Callbacks:
    def report(line: dict) -> None:
        if line["step"] >= STEPS - 6:
            raise StopError

    return Callbacks(report=report)


@pytest.mark.parametrize("address", list(ROWS))
def test_every_row_learns_stops_and_goes_on(address, data, runs):
    rows = [small(row) for row in plan([address])]
    before = run(rows[:-1], runs, "cpu", base=data)
    assert [outcome.why for outcome in before] == [""] * len(before)
    row = rows[-1]
    if not (row.folder(runs) / "results.json").exists():
        (outcome,) = run([row], runs, "cpu", base=data, callbacks=stopping)
        assert outcome.why.startswith("StopError"), outcome
    (outcome,) = run([row], runs, "cpu", base=data)
    assert outcome.why == ""
    assert all(map(math.isfinite, outcome.results["metrics"].values()))
    losses: dict[str, list[float]] = {}
    for text in (row.folder(runs) / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        if "loss" in line:
            losses.setdefault(line["stage"], []).append(line["loss"])
    for stage in row.recipe.stage_list():
        found = losses[stage.name]
        if stage.objective.kind != "self-critical":
            assert sum(found[-3:]) / 3 < found[0], (stage.name, found)


def test_the_matcher_sees_with_the_captioners_eyes(data, runs):
    rows = [small(ROWS[one]) for one in ("default/captioner#cross-entropy", "default/matcher#base")]
    run(rows, runs, "cpu", base=data)
    captioner, matcher = (load(row.folder(runs) / "model.safetensors").model for row in rows)
    assert isinstance(matcher.vision, Detector)
    assert matcher.vision.fingerprint() == captioner.vision.fingerprint()


@pytest.mark.parametrize("name", ["captioner", "matcher", "vision"])
def test_a_recipe_says_what_it_makes_and_how_to_run_it(name):
    about = load_yaml(SHIPPED / "default" / f"{name}.yaml")["about"]
    assert f"sightline reproduce default --table {name}" in about
