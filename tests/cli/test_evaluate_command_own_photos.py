"""A run on one's own photos is a model like any other: every command takes its folder, and measures what it held out.

The photos are windows of the examples, so that vision has something to see; the detector is the one that is shipped.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

import sightline
from sightline.checkpoint.bundle import default_bundle
from sightline.cli.commands import main

EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = {
    "astronaut": ("a woman in a space suit smiles", "an astronaut in front of a flag"),
    "cat": ("a cat with green eyes", "a cat looks at something"),
    "coffee": ("a cup of coffee on a table", "a spoon beside a cup"),
    "photographer": ("a man with a camera", "a man takes a photo"),
    "rocket": ("a rocket stands at night", "a rocket before a dark sky"),
}
LONG = ("stages.cross-entropy.epochs=25", "stages.cross-entropy.select.every=0")  # to know the photos
WINDOWS = ((0, 0, 1, 1), (0, 0, 0.8, 0.8), (0.2, 0.2, 1, 1))


def write_photos(folder: Path, windows=WINDOWS) -> list[tuple[str, str]]:
    folder.mkdir()
    rows = []
    for name, sentences in SAID.items():
        with Image.open(EXAMPLES / f"{name}.jpg") as photo:
            photo = photo.convert("RGB")
        width, height = photo.size
        for i, (left, top, right, bottom) in enumerate(windows):
            box = (int(left * width), int(top * height), int(right * width), int(bottom * height))
            photo.crop(box).save(folder / f"{name}-{i}.jpg")
            rows += [(f"{name}-{i}.jpg", sentence) for sentence in sentences]
    return rows


def write_table(path: Path, rows) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("image", "caption"), *rows])
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """`photos/`, `captions.csv`, and runs on them: `run/` of updown, `jran/`, which also reads a grid."""
    root = tmp_path_factory.mktemp("home")
    write_table(root / "captions.csv", write_photos(root / "photos"))
    for kind, out in (("updown", "run"), ("jran", "jran")):
        own = ["--images", root / "photos", "--captions", root / "captions.csv", "--out", root / out]
        assert main(["train", kind, *map(str, own), "--quiet", *LONG]) == 0
    return root


def run(capsys, *arguments) -> tuple[int, str, str]:
    code = main([*map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def measured(home: Path, capsys, *arguments) -> dict:
    code, out, err = run(capsys, "evaluate", *arguments, "--json", "--device", "cpu")
    assert code == 0, err
    return json.loads(out)


def test_training_on_photos_needs_no_other_package(home, monkeypatch):
    recipe = (home / "run" / "recipe.yaml").read_text()
    assert "encoder: detector" in recipe
    assert "by the detector that comes with Sightline" in recipe


@pytest.mark.parametrize("kind", ["run", "jran"])
def test_a_run_says_of_photos_what_it_has_learned_about_them(home, capsys, kind):
    code, out, err = run(capsys, "caption", home / "photos", "--model", home / kind, "--json", "--device", "cpu")
    assert code == 0, err
    captions = {Path(one["path"]).name: one["caption"] for one in json.loads(out)}
    assert len(captions) == 15
    words = {name: {*" ".join(sentences).split()} for name, sentences in SAID.items()}
    right = 0
    for photo in _learned(home):
        name = photo.split("-")[0]
        elsewhere = set().union(*(words[other] for other in words if other != name))
        right += bool(set(captions[photo].split()) & (words[name] - elsewhere))
    assert right > 0.7 * len(_learned(home)), captions  # by chance, a fifth


@pytest.mark.parametrize("kind", ["run", "jran"])
def test_a_run_is_measured_on_the_photos_it_held_out(home, capsys, kind):
    found = measured(home, capsys, home / kind)
    left = json.loads((home / kind / "metrics.json").read_text())
    assert found["split"] == left.pop("split") == "test"
    assert found["metrics"] == pytest.approx(left)
    assert found["photos"] == json.loads((home / kind / "data.json").read_text())["counts"]["test"]["photos"] < 5


def test_the_csv_that_train_took_means_the_same(home, capsys, monkeypatch):
    monkeypatch.chdir(home)
    assert measured(home, capsys, "run", "--captions", "captions.csv") == measured(home, capsys, "run")
    everything = measured(home, capsys, "run", "--split", "all")
    assert (everything["split"], everything["photos"]) == ("all", 15)
    again = measured(home, capsys, "run", "--split", "all", "--captions", "captions.csv")
    assert everything["metrics"] == pytest.approx(again["metrics"], rel=1e-3)  # that one looks at the photos again
    val = measured(home, capsys, "run", "--split", "val")
    assert val["split"] == "val"
    assert val["metrics"] != measured(home, capsys, "run")["metrics"]


@pytest.mark.parametrize("kind", ["run", "jran"])
def test_features_that_are_gone_are_seen_again(home, capsys, tmp_path, kind):
    """Photos are looked at as the run's features were made, the pooled grid included."""
    shutil.copytree(home / kind, tmp_path / "run")
    before = measured(home, capsys, tmp_path / "run")["metrics"]["loss"]
    (home / kind / "features").rename(tmp_path / "features")
    try:
        again = measured(home, capsys, tmp_path / "run")["metrics"]["loss"]
    finally:
        (tmp_path / "features").rename(home / kind / "features")
    assert again == pytest.approx(before, abs=1e-3)


def test_of_another_table_photos_are_left_out_that_the_run_has_learned_from(home, capsys, tmp_path):
    rows = list(csv.reader((home / "captions.csv").open()))[1:]
    table = write_table(tmp_path / "other.csv", rows)
    held_out = measured(home, capsys, home / "run")
    assert measured(home, capsys, home / "run", "--captions", table)["photos"] == held_out["photos"]
    code, out, _ = run(capsys, "evaluate", home / "run", "--captions", table, "--device", "cpu")
    assert code == 0
    assert f"{15 - held_out['photos']} more are left out: the run has learned from them." in out
    everything = measured(home, capsys, home / "run", "--captions", table, "--split", "all")
    assert (everything["split"], everything["photos"]) == ("all", 15)
    learned = write_table(tmp_path / "learned.csv", [row for row in rows if row[0] in _learned(home)])
    code, _, err = run(capsys, "evaluate", home / "run", "--captions", learned)
    assert code == 2
    assert "the run has learned from all" in err


def test_a_file_that_is_read_is_not_written_over(home, capsys, tmp_path):
    table = Path(shutil.copy(home / "captions.csv", tmp_path))
    for same in (table, tmp_path / "elsewhere" / ".." / "captions.csv"):
        code, _, err = run(capsys, "evaluate", home / "run", "--captions", table, "--out", same)
        assert code == 2
        assert "this file is read, and would be replaced" in err
    assert table.read_bytes() == (home / "captions.csv").read_bytes()


def test_captions_of_photos_that_are_elsewhere_ask_for_their_folder(home, capsys):
    code, _, err = run(capsys, "evaluate", home / "run", "--captions", EXAMPLES)
    assert code == 2
    assert "To fix: name the folder of the photos with --images, or check" in err


def _learned(home: Path) -> set[str]:
    """The photos of train and val, by the recipe's own reader."""
    from sightline.training.recipe import read_run_recipe
    from sightline.training.recipe_captions import read_photos

    photos = read_photos(read_run_recipe(home / "run" / "recipe.yaml").data, Path(), [])
    return {photo.file for role in ("train", "val") for photo in photos[role]}


def test_photos_of_another_folder_are_all_new(home, capsys, tmp_path):
    """Even where they are called the same."""
    table = write_table(tmp_path / "new.csv", write_photos(tmp_path / "new", WINDOWS[:2]))
    found = measured(home, capsys, home / "run", "--captions", table, "--images", tmp_path / "new")
    assert (found["split"], found["photos"]) == ("all", 10)


def test_the_shipped_model_is_measured_by_what_it_says(home, capsys, tmp_path):
    """Without a name, or as a file; its captions are those of `sightline caption`."""
    data = ["--captions", home / "captions.csv", "--images", home / "photos", "--metrics", "bleu"]
    found = measured(home, capsys, *data, "--out", tmp_path / "said.json")
    assert found == measured(home, capsys, default_bundle(), *data)
    said = {one["image_id"]: one["caption"] for one in json.loads((tmp_path / "said.json").read_text())}
    pipeline = sightline.load(device="cpu")
    for photo in sorted((home / "photos").iterdir())[:3]:
        assert said[photo.name] == pipeline.caption(photo).text
    code, _, err = run(capsys, "evaluate")
    assert code == 2
    assert "--captions captions.csv" in err
    code, _, err = run(capsys, "evaluate", *data, "--features", home / "run" / "features")
    assert code == 2
    assert "looks at photos itself" in err


def test_likelihood_takes_a_run_and_the_shipped_model(home, capsys):
    photo = home / "photos" / "cat-0.jpg"
    caption = sightline.load(device="cpu").caption(photo)
    code, out, err = run(capsys, "likelihood", photo, caption.text, "--json")
    assert code == 0, err
    assert json.loads(out)["log_prob"] == pytest.approx(caption.log_prob, abs=0.5)  # that one computes in 8 bits
    by_file = run(capsys, "likelihood", photo, caption.text, "--json", "--model", default_bundle())
    assert by_file == (0, out, "")
    for eyes in ([], ["--model", default_bundle()]):  # in a store there are no names for it to copy
        code, _, err = run(capsys, "likelihood", photo, "a cat", "--features", home / "run" / "features", *eyes)
        assert code == 2
        assert "this model looks at photos itself. To fix: leave --features out" in err
    for kind in ("run", "jran"):
        features = ["--features", home / kind / "features"]
        seen, read = (
            json.loads(run(capsys, "likelihood", photo, "a cat", "--json", "--model", home / kind, *given)[1])
            for given in ([], features)
        )
        assert seen["log_prob"] == pytest.approx(read["log_prob"], abs=1e-3)


def test_models_tells_what_a_run_holds(home, capsys):
    code, out, _ = run(capsys, "models", home / "run")
    assert code == 0
    assert "updown" in out


@pytest.mark.parametrize(
    "command",
    [
        "models {run}",
        "evaluate {run}",
        "evaluate {run} --captions {home}/captions.csv",
        "likelihood {home}/photos/cat-0.jpg cat --model {run}",
        "caption {home}/photos --model {run}",
        "extract {home}/photos --out {run}/x --model {run}",
    ],
)
def test_an_unfinished_run_says_so(home, capsys, tmp_path, command):
    unfinished = tmp_path / "begun"
    unfinished.mkdir()
    shutil.copy(home / "run" / "recipe.yaml", unfinished)
    code, _, err = run(capsys, *command.format(run=unfinished, home=home).split())
    assert code == 2
    assert err.count("\n") == 1
    assert f"{unfinished}: this run is not finished." in err
    assert f"sightline train {unfinished}/recipe.yaml" in err


def test_a_folder_without_a_run_says_so(home, capsys):
    code, _, err = run(capsys, "models", home / "photos")
    assert code == 2
    assert "this folder holds no model" in err
