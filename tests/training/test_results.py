"""Records of what was measured: their fields, what is refused, seeds together, and that runs leave them."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from test_reproduce import write_tables

from learning_samples import write_dataset
from recipe_samples import write_data
from result_samples import record
from sightline.checkpoint.bundle import default_bundle, load_bundle
from sightline.cli import reproduce_command as command
from sightline.cli.commands import main
from sightline.errors import CheckpointError, ConfigError
from sightline.metrics.bootstrap import PerImage
from sightline.training.checkpoint_finder import Finder
from sightline.training.feature_cache import POOL
from sightline.training.launch import CAPTIONS, PER_IMAGE
from sightline.training.recipe import SHIPPED, read_recipe
from sightline.training.reproduce import Checker, choose, plan, run
from sightline.training.results import (
    DETECTOR,
    PAPERS,
    SHIPPED_VISION,
    DataRecord,
    ResultRecord,
    collect,
    commit,
    comparable,
    merge,
    read_record,
    read_records,
    record_of,
    supervision,
    write_record,
    write_records,
)
from sightline.vision.encoder import InferenceEncoder

FIELDS = (
    "paper table row recipe commit seeds data split features supervision stage metrics published comparable minutes "
    "hardware"
)


def test_a_record_has_these_fields_and_no_others(tmp_path):
    assert [item.name for item in fields(ResultRecord)] == FIELDS.split()
    path = tmp_path / record().file
    write_record(path, record())
    assert list(json.loads(path.read_text())) == FIELDS.split()
    assert read_record(path) == record()
    assert read_records(tmp_path) == [record()]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"commit": ""}, "no recipe or no commit"),
        ({"supervision": ""}, "nobody says what the features"),
        ({"seeds": [0, 1]}, "other seeds than metrics"),
        ({"comparable": "no"}, "choose one of yes, other split, other data, other features"),
        ({"minute": 3}, "did you mean `minutes`"),
        ({"minutes": "5"}, "give a number"),
    ],
)
def test_a_wrong_record_is_refused(tmp_path, change, told):
    path = tmp_path / "record.json"
    write_record(path, record())
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ConfigError, match=told):
        read_record(path)


def test_a_record_without_a_field_or_under_another_name_is_refused(tmp_path):
    write_record(tmp_path / "jran-table-1-other.json", record())
    with pytest.raises(ConfigError, match=r"must be called jran-table-1-line-6-XE\.json"):
        read_records(tmp_path)
    held = json.loads((tmp_path / "jran-table-1-other.json").read_text())
    del held["commit"]
    (tmp_path / "jran-table-1-other.json").write_text(json.dumps(held))
    with pytest.raises(ConfigError, match="`commit` is missing"):
        read_records(tmp_path)
    write_record(tmp_path / "jran-table-1-other.json", record(paper="another"))
    with pytest.raises(ConfigError, match=f"choose one of {', '.join(PAPERS)}"):
        read_records(tmp_path)


@pytest.mark.parametrize("learned", [DETECTOR, "COCO captions", "Flickr30k Entities"])
def test_features_of_r2m_must_not_have_learned_from_captions(learned):
    assert record(supervision=learned).supervision == learned
    with pytest.raises(ConfigError, match="R²M learns without a pair"):
        record(paper="r2m", supervision=learned)


def test_a_dry_run_refuses_r2m_on_features_that_learned_from_captions(tmp_path):
    recipe = read_recipe(SHIPPED / "r2m" / "table-1.yaml", "COCO-Flickr30k")
    good = replace(recipe, data=replace(recipe.data, features=recipe.data.features.with_name("coco-lite2")))
    bad = replace(recipe, data=replace(recipe.data, features=recipe.data.features.with_name("mine-detector")))
    check = Checker(write_data(tmp_path / "data"))
    assert check(good, "r2m").wrong == ()
    assert "learned from: ImageNet, COCO and Flickr8k training captions" in check(bad, "r2m").wrong[0]
    assert check(bad, "r2m").missing == (tmp_path / "data" / "features" / "mine-detector",)


def test_supervision_is_told_by_the_store_by_its_name_or_by_the_vision_model(tmp_path):
    recipe = read_recipe(SHIPPED / "vsrn" / "table-3.yaml", "VSE++")
    recipe = replace(recipe, data=replace(recipe.data, features=recipe.data.features.with_name("flickr8k-lite2")))
    assert supervision(recipe) == "ImageNet"
    assert {supervision(recipe, made) for made in SHIPPED_VISION} == {DETECTOR}
    extracting = replace(recipe.data, images=Path("photos"), encoder="detector")
    assert supervision(replace(recipe, data=extracting)) == DETECTOR  # before the first photo was looked at
    store = tmp_path / recipe.data.features
    store.mkdir(parents=True)
    (store / "supervision.txt").write_text("Visual Genome\n")
    assert supervision(recipe, base=tmp_path) == "Visual Genome"
    other = replace(recipe, data=replace(recipe.data, features=recipe.data.features.with_name("mine")))
    assert supervision(other) == ""


def test_the_shipped_vision_model_has_the_fingerprint_that_is_known_here():
    vision = load_bundle(default_bundle()).vision
    assert tuple(InferenceEncoder(vision, pool=pool).fingerprint() for pool in (1, POOL)) == SHIPPED_VISION


def test_seeds_become_one_record_with_their_mean():
    runs = [replace(record(cider=10.0 * n), seeds=(n,), minutes=float(n)) for n in (2, 0, 1)]
    merged = merge(runs)
    assert merged.seeds == (0, 1, 2)
    assert merged.metrics.mean["CIDEr"] == pytest.approx(10.0)
    assert [one["CIDEr"] for one in merged.metrics.per_seed] == [0.0, 10.0, 20.0]
    assert merged.minutes == 1.0
    assert merge([record()]) == record()
    with pytest.raises(ConfigError, match="differ in stage: cross-entropy; self-critical"):
        merge([record(), record(stage="self-critical", seeds=(1,))])
    with pytest.raises(ConfigError, match="a seed twice"):
        merge([record(), record()])


def test_what_is_comparable():
    coco, flickr8k = DataRecord(("coco/a.json",), 1), DataRecord(("flickr8k/Flickr8k.token.txt",), 1)
    assert comparable("jran", "table-1", coco) == "other features"
    assert comparable("jran", "table-1", flickr8k) == "other data"
    assert comparable("pos-scan", "table-1", flickr8k) == "other data"
    assert comparable("pos-scan", "table-4", coco) == "other features"
    assert comparable("cl", "table-4", coco) == "other split"
    assert comparable("r2m", "table-1", coco) == "other data"


def test_files_are_named_below_the_datas_root_and_compared_wherever_that_is():
    change = ["data.root=/big", "data.corpus=text.txt", "evaluate.metrics=[bleu]"]
    recipe = read_recipe(SHIPPED / "jran/table-1.yaml", "line-6", change)
    results = {"photos": 1, "split": "test", "fingerprint": "", "stage": "", "metrics": {}, "minutes": 1.0}
    results |= {"commit": "feed", "hardware": "CPU"}
    found = record_of(recipe, "jran/table-1#line-6", change, 0, results)
    assert found.data.captions[0].startswith("/big/coco/")
    assert found.data.corpus == "/big/text.txt"
    assert found.comparable == "other features"


def test_the_commit_is_what_the_environment_says_or_git_knows(monkeypatch):
    monkeypatch.setenv("SIGHTLINE_COMMIT", "feed")
    assert commit() == "feed"
    monkeypatch.delenv("SIGHTLINE_COMMIT")
    assert commit()


def test_runs_of_several_seeds_leave_records_scores_by_photo_and_captions(tmp_path, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_COMMIT", "feed")
    recipes, data, out = write_tables(tmp_path / "recipes"), write_dataset(tmp_path / "data"), tmp_path / "runs"
    (data / "features" / "supervision.txt").write_text("colours and things\n")
    rows = plan(choose("paper", folder=recipes), folder=recipes)
    for seed in (0, 2):
        outcomes = run([row.with_seed(seed) for row in rows], out, "cpu", base=data)
        assert {one.state for one in outcomes} == {"trained", "measured"}, [one.why for one in outcomes]
    assert (out / "paper" / "table-1" / "tuned" / "seed-2" / "model.safetensors").is_file()
    assert read_recipe(out / "paper" / "table-1" / "tuned" / "seed-2" / "recipe.yaml").seed == 5  # 3 of its own
    records = {one.row: one for one in collect(out)}
    assert set(records) == {"tuned", "first", "beam", "both", "one", "two", "pair", "again"}
    first = records["first"]
    assert first.seeds == (0, 2)
    assert first.recipe.fingerprint == next(row for row in rows if row.name == "first").recipe.fingerprint()
    assert (first.stage, first.commit, first.supervision) == ("xe", "feed", "colours and things")
    assert (first.split, first.data.photos, first.features.fingerprint) == ("test (test.txt)", 3, "tiny")
    assert records["beam"].stage == "xe"
    for row, metric in (("first", "CIDEr"), ("both", "CIDEr"), ("one", "i2t R@1"), ("pair", "t2i R@5")):
        for n, folder in enumerate(("", "seed-2")):
            table = "table-1" if metric == "CIDEr" else "table-2"
            kept = PerImage.read(out / "paper" / table / row / folder / PER_IMAGE)
            assert kept.score(metric) == pytest.approx(records[row].metrics.per_seed[n][metric], abs=1e-3)
    assert len(json.loads((out / "paper" / "table-1" / "both" / "seed-2" / CAPTIONS).read_text())) == 3
    assert len(write_records(out, tmp_path / "records")) == 8
    assert read_record(tmp_path / "records" / first.file) == first
    page = command.write_pages("paper", out, recipes=recipes).with_suffix(".md").read_text()
    assert f"| first | here | {first.metrics.mean['CIDEr']:.2f} |" in page


def test_a_result_that_must_not_be_a_record_stays_a_result(tmp_path):
    recipes, data, out = write_tables(tmp_path / "recipes"), write_dataset(tmp_path / "data"), tmp_path / "runs"
    rows = plan(["paper/table-1#first"], folder=recipes)
    assert run(rows, out, "cpu", base=data)[0].state == "trained"
    assert (out / "paper" / "table-1" / "first" / "results.json").is_file()
    assert collect(out) == []


def test_a_run_with_a_seed_finds_the_rows_of_that_seed(tmp_path):
    find = Finder(tmp_path / "vsrn" / "table-3" / "VSRN" / "seed-1", "vsrn/table-3")
    for name, folder in {
        "row:SCAN": "vsrn/table-3/SCAN/seed-1",
        "recipe:jran/table-1#x": "jran/table-1/x/seed-1",
    }.items():
        with pytest.raises(CheckpointError, match=folder):
            find(name)


def test_the_command_takes_seeds_and_the_short_name_of_contrastive_learning(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_DATA", str(tmp_path))
    assert main(["reproduce", "cl", "--table", "4", "--rows", "Base", "--seeds", "0", "1", "--dry"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("contrastive/table-4#Base")
    assert f"missing, for 1 row: {tmp_path}/coco/captions_train2014.json.gz" in printed
    assert "each with the seeds 0, 1" in printed
    assert main(["reproduce", "cl", "--seeds", "1", "1"]) == 2
    assert "give each seed once" in capsys.readouterr().err
