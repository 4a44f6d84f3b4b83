"""The first look with eight drawn photos: every row is trained for an epoch, stopped, and gone on with."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from recipe_samples import SIZES, write_data
from sightline.errors import ConfigError
from sightline.files import read_json
from sightline.learning.recipe import SHIPPED, read_recipe
from sightline.vision.efficientnet_lite import EfficientNetLite
from sightline.vision.grid_encoder import WIDTH
from test_grid_encoder import packaged

torch.set_num_threads(1)
TOOL = Path(__file__).parents[1] / "tools" / "first_look.py"
ABSENT = "tyro rich h5py lmdb pycocoevalcap pyarrow tensorboard".split()


def load_tool():
    spec = importlib.util.spec_from_file_location("first_look", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["first_look"] = module
    spec.loader.exec_module(module)
    return module


first_look = load_tool()


def tiny(row):
    """The row with a tiny model and one epoch a stage."""
    table, _, name = row.recipe.partition("#")
    recipe = read_recipe(SHIPPED / f"{table}.yaml", name, row.changes)
    sizes = {**SIZES, **dict.fromkeys(("region_width", "grid_width", "vector_width"), WIDTH)}
    there = {item.name for item in fields(recipe.model)}
    changes = [f"model.{key}={value}" for key, value in sizes.items() if key in there]
    if getattr(recipe.model, "jrln", None) is not None:
        names = {item.name for item in fields(recipe.model.jrln)}
        changes += [f"model.jrln.{key}={value}" for key, value in sizes.items() if key in names]
    for stage in recipe.ordered():
        key = f"stages.{stage.name}"
        changes += [f"{key}.{'steps=2' if stage.steps else 'epochs=1'}", f"{key}.batch.size=2"]
        changes += [f"{key}.batch.captions=2", *([f"{key}.select.every=1"] if stage.select.every else [])]
    changes += ["data.min_count=1", "data.min_words=4", "data.held_out=0.2", "evaluate.rules.max_words=8"]
    return replace(row, changes=(*row.changes, *changes))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Recipes' data of eight photos, drawn, and their features by an encoder with random weights."""
    root = write_data(tmp_path_factory.mktemp("data") / "data")
    images = root / "flickr8k" / "images"
    images.mkdir()
    listed = (root / "flickr8k" / "Flickr8k.token.txt").read_text().splitlines()
    for number, name in enumerate(dict.fromkeys(line.split("#")[0] for line in listed)):
        pixels = np.random.default_rng(number).integers(0, 255, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(images / name)
    torch.manual_seed(0)
    torch.save(packaged(EfficientNetLite("lite2")), root / "weights.pth")
    arguments = ["--images", images, "--features", root / "store", "--weights", root / "weights.pth"]
    assert first_look.main(["extract", *map(str, arguments), "--device", "cpu"]) == 0
    return root


@pytest.fixture(scope="module")
def looked(data, tmp_path_factory):
    where = first_look.Look(data, data / "store", tmp_path_factory.mktemp("out"), "cpu", 10.0, lambda line: None)
    first_look.look([tiny(row) for row in first_look.ROWS], where)
    return where


def test_every_row_is_trained_and_measured_on_dev(looked):
    results = {result["row"]: result for result in read_json(looked.out / "results.json")["rows"]}
    assert {name: result["state"] for name, result in results.items()} == {row.name: "done" for row in first_look.ROWS}
    for row in first_look.ROWS:
        wanted = set(row.columns) - ({"METEOR"} if importlib.util.find_spec("pycocoevalcap") is None else set())
        assert wanted <= set(results[row.name]["metrics"]), row.name
        assert results[row.name]["minutes"] > 0
        assert read_json(looked.out / "runs" / row.name / "metrics.json")["split"] == "val"


def test_the_table_says_what_decides_its_numbers(looked):
    text = (looked.out / "table.md").read_text()
    for wanted in (
        "measured on dev",
        "one (0)",
        "EfficientNet-lite2 as trained on ImageNet, 224 px",
        "CPU, 1 threads",
        torch.__version__,
        "concepts from Entities, not unpaired",
        "adam 1e-06",
        "the paper's rate of 1e-6",
        "contrastive/table-4#Full",
        "train 4, val 2",
    ):
        assert wanted in text, wanted
    for row in first_look.ROWS:
        assert f"| {row.name} |" in text


def test_rows_that_are_done_are_not_run_again(looked):
    before = {path: path.stat().st_mtime_ns for path in looked.out.glob("runs/*/model.safetensors")}
    first_look.look([tiny(row) for row in first_look.ROWS], looked)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_out_of_time_it_stops_and_goes_on_the_next_time(data, tmp_path):
    row = next(tiny(row) for row in first_look.ROWS if row.name == "Up-Down")
    where = first_look.Look(data, data / "store", tmp_path, "cpu", 0.0, lambda line: None)
    (stopped,) = first_look.look([row], where)
    assert stopped["state"].startswith("stopped: out of time")
    (done,) = first_look.look([row], replace(where, minutes=10.0))
    assert done["state"] == "done"


def test_a_row_waits_for_the_one_it_starts_from_and_a_failure_is_told(data, tmp_path):
    rows = {row.name: tiny(row) for row in first_look.ROWS}
    where = first_look.Look(data, tmp_path / "no-store", tmp_path, "cpu", 10.0, lambda line: None)
    with pytest.raises(ConfigError):
        read_recipe(SHIPPED / "contrastive" / "table-4.yaml", "Fuller")
    broken = replace(rows["AA"], changes=(*rows["AA"].changes, "data.captions=nowhere.txt"))
    where = replace(where, features=data / "store")
    found = {one["row"]: one["state"] for one in first_look.look([broken, rows["AA+CL"]], where)}
    assert found["AA"].startswith("failed: ")
    assert "nowhere.txt" in found["AA"]
    assert found["AA+CL"] == "not run: AA is not done"
    assert "not run: AA is not done" in (tmp_path / "table.md").read_text()


def test_it_runs_where_only_torch_numpy_safetensors_yaml_and_pillow_are_installed(data, tmp_path):
    row = tiny(next(row for row in first_look.ROWS if row.name == "Up-Down"))
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({ABSENT!r})); sys.path.insert(0, {str(TOOL.parent)!r})\n"
        f"from pathlib import Path; import first_look as f\n"
        f"row = f.Row({row.name!r}, {row.pair!r}, {row.recipe!r}, {row.changes!r}, {row.columns!r})\n"
        f"look = f.Look(Path({str(data)!r}), Path({str(data / 'store')!r}), Path({str(tmp_path)!r}), 'cpu')\n"
        f"print(f.look([row], look)[0]['state'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["done"], done.stdout + done.stderr
    assert "METEOR: not measured" in (tmp_path / "table.md").read_text()
