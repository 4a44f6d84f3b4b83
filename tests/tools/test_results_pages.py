"""The pages of results are made of the records, and runs become records, ratios and curves."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from result_samples import record
from sightline.metrics.bootstrap import PerImage, compare
from sightline.metrics.meteor import Meteor
from sightline.training import recipe as recipe_module
from sightline.training.launch import PER_IMAGE
from sightline.training.recipe import SHIPPED, read_recipe, read_rows
from sightline.training.results import Metrics, RecipeRecord, ResultRecord, read_record, read_records, write_record

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def load(path: str):
    sys.path.insert(0, str(ROOT / Path(path).parent))
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[Path(path).stem] = module
    spec.loader.exec_module(module)
    return module


collecting, pages = load("tools/collect_results.py"), load("tools/results_pages.py")


def test_the_pages_are_what_the_command_writes(capsys):
    assert pages.main(["--check"]) == 0, capsys.readouterr().out


def test_committed_records_are_whole_and_small():
    read_records(DOCS / "results")
    files = [*(DOCS / "results").iterdir(), *(DOCS / "images" / "results").glob("*")]
    assert sum(path.stat().st_size for path in files) < 3 * 2**19  # 1.5 MiB


def test_the_commit_of_a_record_is_in_the_history_or_the_page_says_what_it_is():
    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("the history is not here")
    for commit in {one.commit for one in read_records(DOCS / "results")} - set(pages.NOWHERE):
        assert git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0, commit
    for said in pages.NOWHERE.values():
        (named,) = re.findall(r"`(\w+)`", said)
        assert git("merge-base", "--is-ancestor", named, "HEAD").returncode == 0, said


def test_an_accuracy_of_attention_has_its_oracle_beside_it():
    for line in (DOCS / "results.md").read_text().splitlines():
        if "| attention accuracy |" in line and line.startswith("| row |  |"):
            assert "| attention accuracy | attention accuracy micro | attention oracle |" in line


# Keys that recipes got after the oldest records were measured, the newest last; with these values they change nothing.
LATER = {
    "novel": False,
    "no_repeat_noun": False,
    "right_articles": False,
    "leave_out": 0.0,
    "rename": 0.0,
    "cross_entropy": 0.0,
    "min_score": 0.3,
}


def before(values, later):
    """The values of a recipe without keys that came later."""
    if isinstance(values, list):
        return [before(value, later) for value in values]
    if not isinstance(values, dict):
        return values
    return {key: before(value, later) for key, value in values.items() if key not in later or value != LATER[key]}


@pytest.mark.parametrize("one", read_records(DOCS / "results"), ids=lambda one: one.address)
def test_the_recipe_of_a_record_is_still_the_one_it_was_measured_by(one, monkeypatch):
    """Whoever runs the row with the changes beside it runs what the page shows."""
    table, _, row = one.address.partition("#")
    found, plain = [], recipe_module.fingerprint
    monkeypatch.setattr(recipe_module, "fingerprint", lambda text: found.append(json.loads(text)) or "")
    read_recipe(SHIPPED / f"{table}.yaml", row, pages.changes_of(one)).fingerprint()
    versions = [before(found[0], list(LATER)[known:]) for known in range(len(LATER) + 1)]
    marks = {plain(json.dumps(values, sort_keys=True)) for values in versions}
    assert one.recipe.fingerprint in marks


def test_pairs_name_rows_of_the_recipes():
    for pair in collecting.read_pairs(DOCS / "results"):
        for address in (pair.row, pair.base):
            table, _, row = address.partition("#")
            assert row in read_rows(SHIPPED / f"{table}.yaml"), f"{address} is no row: correct comparisons.yaml"


def scores(ids: int, seed: int) -> PerImage:
    one = PerImage(tuple(map(str, range(ids))))
    one.add("CIDEr", np.random.default_rng(seed).uniform(0.3 + 0.1 * seed, 1, ids))
    return one


def write_run(out: Path, one: ResultRecord, kept: PerImage) -> None:
    folder = out / "jran" / one.table / one.row / (f"seed-{one.seeds[0]}" if one.seeds[0] else "")
    write_record(folder / "record.json", one)
    kept.write(folder / PER_IMAGE)
    lines = [{"stage": "cross-entropy", "step": 10 * n, "val CIDEr": 5.0 * n} for n in range(4)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def docs(tmp_path) -> Path:
    """What was collected from runs of JRAN, with two seeds, and of its baseline."""
    folder = tmp_path / "docs" / "results"
    folder.mkdir(parents=True)
    for path in (DOCS / "results").iterdir():
        if path.suffix == ".md" or path.stem in ("comparisons", "speed"):
            (folder / path.name).write_bytes(path.read_bytes())
    base = record(
        "Baseline-XE",
        40.0,
        table="table-2",
        recipe=RecipeRecord("jran/table-2#Baseline-XE", "b"),
        published={"CIDEr": 122.2},
    )
    write_run(tmp_path / "runs", base, scores(50, 0))
    for seed in (0, 1):
        write_run(tmp_path / "runs", replace(record(cider=50.0 + 2 * seed), seeds=(seed,)), scores(50, 1 + seed))
    images = tmp_path / "docs" / "images"
    assert collecting.main([str(tmp_path / "runs"), "--out", str(folder), "--images", str(images)]) == 0
    return folder


def test_runs_become_records_ratios_and_curves(docs):
    held = {one.row: one for one in read_records(docs)}
    assert held["line-6-XE"].seeds == (0, 1)
    assert held["line-6-XE"].metrics.mean["CIDEr"] == 51.0
    (found,) = collecting.read_comparisons(docs)
    both = PerImage(scores(50, 1).ids)
    both.add("CIDEr", (scores(50, 1).shares["CIDEr"].hits + scores(50, 2).shares["CIDEr"].hits)[:, 0] / 2)
    wanted = compare(scores(50, 0), both, "CIDEr")
    assert found.ratio.score == pytest.approx(wanted.ratio.score, abs=1e-4)
    assert (found.ratio.low, found.ratio.high) == pytest.approx((wanted.ratio.low, wanted.ratio.high), abs=1e-4)
    assert found.photos == 50
    pictures = sorted(path.name for path in (docs.parent / "images").iterdir())
    assert pictures == [
        "jran-table-1-curves-cross-entropy-CIDEr-1.png",
        "jran-table-2-curves-cross-entropy-CIDEr-1.png",
    ]


def test_ratios_of_rows_that_were_not_run_again_stay_and_others_are_computed_again(docs, tmp_path):
    (before,) = collecting.read_comparisons(docs)
    other = tmp_path / "other"
    write_run(other, record("line-1-XE", recipe=RecipeRecord("jran/table-1#line-1-XE", "c")), scores(50, 3))
    arguments = [str(other), "--out", str(docs), "--images", str(tmp_path / "images")]
    collecting.main(arguments)
    assert collecting.read_comparisons(docs) == [before]
    write_run(other, record(recipe=RecipeRecord("jran/table-1#line-6-XE", "new")), scores(50, 4))
    collecting.main(arguments)
    (after,) = collecting.read_comparisons(docs)
    assert (before.recipes, after.recipes) == (("abc", "b"), ("new", "b"))


def test_a_row_is_compared_with_one_of_another_day(docs, tmp_path):
    write_run(tmp_path / "again", record(), scores(50, 5))  # the same recipe, perhaps other features or seeds
    arguments = [str(tmp_path / "again"), "--out", str(docs), "--images", str(tmp_path / "images")]
    collecting.main(arguments)
    (found,) = collecting.read_comparisons(docs)
    wanted = compare(scores(50, 0), scores(50, 5), "CIDEr")
    assert found.difference.low == pytest.approx(wanted.difference.low, abs=1e-3)
    (docs / "scores" / "jran-table-2-Baseline-XE.npz").unlink()
    collecting.main(arguments)
    assert collecting.read_comparisons(docs) == []


def test_curves_of_rows_of_another_day_stay_in_the_picture_of_their_table(docs, tmp_path, monkeypatch):
    images = docs.parent / "images"
    (picture,) = images.glob("jran-table-1-*.png")
    lines = []
    monkeypatch.setattr(collecting, "curves", lambda part, **_: lines.append(set(part)) or Image.new("RGB", (8, 8)))
    stale = picture.with_name(picture.name.replace("-1.png", "-2.png"))
    stale.write_bytes(b"of rows that had a second picture")
    write_run(tmp_path / "other", record("line-1-XE", recipe=RecipeRecord("jran/table-1#line-1-XE", "c")), PerImage())
    collecting.main([str(tmp_path / "other"), "--out", str(docs), "--images", str(images)])
    assert sorted(path.name for path in (docs / "curves").iterdir()) == [
        "jran-table-1-line-1-XE.json",
        "jran-table-1-line-6-XE.json",
        "jran-table-2-Baseline-XE.json",
    ]
    assert lines == [{"line-1-XE", "line-6-XE"}]
    assert not stale.exists()


def test_scores_of_photos_are_kept_where_a_row_is_compared_and_go_with_a_run_that_has_none(docs, tmp_path):
    kept = docs / "scores" / "jran-table-1-line-6-XE.npz"
    assert PerImage.read(kept).metrics == ("CIDEr",)
    write_run(tmp_path / "again", record(), PerImage())
    collecting.main([str(tmp_path / "again"), "--out", str(docs), "--images", str(tmp_path / "images")])
    assert not kept.exists()


@pytest.mark.parametrize("path", sorted((DOCS / "results" / "scores").glob("*.npz")), ids=lambda path: path.stem)
def test_scores_that_are_kept_are_those_of_the_record(path):
    metrics, scores = read_record(path.parents[1] / f"{path.stem}.json").metrics.mean, PerImage.read(path)
    for name in scores.metrics:
        assert scores.score(name) == pytest.approx(metrics[name], abs=0.01)


def test_meteor_is_computed_from_the_captions_of_a_run_that_lacks_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_DATA", str(tmp_path))
    (tmp_path / "captions.csv").write_text("file,caption\na.jpg,a dog runs on grass\nb.jpg,two cats sleep\n")
    run = tmp_path / "run"
    run.mkdir()
    (run / "captions.json").write_text('{"a.jpg": "a dog on the grass"}')
    measured = record()
    measured = replace(measured, data=replace(measured.data, captions=("captions.csv",)))
    meteor = Meteor()
    meteor.update({"a.jpg": "a dog on the grass"}, {"a.jpg": ["a dog runs on grass"]})
    found = collecting.with_meteor(measured, run).metrics.mean
    assert found["METEOR"] == pytest.approx(100 * meteor.compute().corpus["METEOR"], abs=1e-3)
    kept = replace(record(), metrics=Metrics({"METEOR": 1.0}))
    assert collecting.with_meteor(kept, run) == kept


def test_the_page_shows_ours_the_papers_ratios_and_what_was_not_run(docs):
    images = docs.parent / "images"
    (images / "jran-picture-1.png").write_bytes(b"")
    (images / "jran-picture-1.txt").write_text("a dog,\nand what each model says\n")
    text = pages.results_page(docs, images)
    assert "| line-6-XE | here | 51.00 ± 1.41 | other features | 2 | 5.0 |" in text
    assert "|  | paper | 128.40 |  |  |  |" in text
    assert "| table-1#line-6-XE | table-2#Baseline-XE | CIDEr | 1." in text
    assert " | 1.05 | +" in text  # 128.4 / 122.2
    assert "- Measured on: 4,407 photos of test (coco/karpathy_test.txt.gz)." in text
    assert "- Features: `features/coco-lite2` (`f00`), which learned from ImageNet." in text
    assert "![a dog, and what each model says](images/results/jran-picture-1.png)" in text
    assert "images/results/jran-table-1-curves-cross-entropy-CIDEr-1.png" in text
    held = record("AA", paper="cl", recipe=RecipeRecord("cl/table-4#AA", "a", ("stages.x.optimiser.rate=1",)))
    assert pages.changes_of(held) == ["stages.x.optimiser.lr=1"]  # an old name would be refused
    assert pages._chance(replace(held, metrics=Metrics({"self-retrieval pool": 500.0}))).startswith("R@1 0.20 ")
    own = text[text.index("## JRAN") :]
    assert "Pictures: 1 of 3; " in own
    assert "`line-6-XE`" not in own
    assert "`line-6`" in own[own.index("Not run: ") :]
    assert "table 3: all rows" in own


def test_the_page_of_models_names_the_best_row_of_a_kind_and_draws_it_against_time_and_size(docs):
    other = record("Sim-Trans-XE", 45.0, table="table-4", recipe=RecipeRecord("jran/table-4#Sim-Trans-XE", "s"))
    write_record(docs / other.file, other)
    text, plots = pages.which_page(docs)
    speeds = pages.read_speeds(json.loads((docs / "speed.json").read_text()))
    best = {"jran: line-6-XE": (speeds["jran"], 51.0), "sim-trans: Sim-Trans-XE": (speeds["sim-trans"], 45.0)}
    times, sizes = plots.values()
    assert list(plots) == ["which-model-captions-COCO.png", "which-model-captions-COCO-size.png"]
    assert times.points == {name: [(speed.ms, quality)] for name, (speed, quality) in best.items()}
    assert sizes.points == {name: [(speed.parameters / 1e6, quality)] for name, (speed, quality) in best.items()}
    jran = speeds["jran"]
    assert f"| jran | {jran.parameters / 1e6:.1f} M | {jran.ms:.1f} | 51.0 (line-6-XE) |" in text
    assert all(f"images/results/{name}" in text for name in plots)
    val = replace(record("line-1-XE"), split="val", recipe=RecipeRecord("jran/table-1#line-1-XE", "c"))
    write_record(docs / val.file, val)  # what models are chosen by is no measure
    assert pages.which_page(docs)[1] == plots
    lucky = record("line-2-XE", 60.0, recipe=RecipeRecord("jran/table-1#line-2-XE", "d"))
    write_record(docs / lucky.file, lucky)  # one run, where the best other row has two
    assert pages.which_page(docs)[1] == plots


def test_a_model_is_as_large_as_its_recipe_says_and_the_time_of_another_size_is_not_its():
    held = {"models": [{"kind": "vsepp", "does": "matching", "parameters": 1, "ms": 3.0}]}
    model = read_recipe(SHIPPED / "vsrn" / "table-3.yaml", "VSE++").model.build(pages.VOCABULARY)
    size = sum(part.numel() for part in model.parameters())
    (found,) = pages.read_speeds(held).values()
    assert found.parameters == size
    assert np.isnan(found.ms)
    held["models"][0]["parameters"] = size
    assert pages.read_speeds(held)["vsepp"].ms == 3.0
    assert "| vsepp | 7.4 M | not measured at this size |" in pages._sizes([found], {})


def test_several_seeds_are_a_mean_with_its_deviation():
    assert pages._value([1.0, 3.0]) == "2.00 ± 1.41"
    assert pages._value([1.0]) == "1.00"
    assert pages._value([1.0, None]) == "–"
    assert Metrics({"CIDEr": 1.0}).of_seeds() == ({"CIDEr": 1.0},)


@pytest.mark.parametrize("kind", ["vsepp", "r2m"])
def test_the_benchmark_counts_and_times_a_model(kind):
    found = load("benchmarks/model_speed.py").measure(kind, photos=1, repeat=1)
    assert found["does"] == ("matching" if kind == "vsepp" else "captions")
    assert found["parameters"] > 1e6
    assert found["ms"] > 0


def test_a_figure_is_drawn_over_its_axis_and_the_page_shows_it():
    plots = pages.sweeps(DOCS / "results")
    plot = plots["pos-scan-fig-3-detector-F1_loc.png"]
    assert plot.x == "λ1"
    assert [x for x, _ in plot.points["here"]] == [0, 0.05, 0.1, 0.2, 0.5, 1]
    records = {one.row: one.metrics.mean["F1_loc"] for one in read_records(DOCS / "results") if "fig-3" in one.table}
    assert [y for _, y in plot.points["here"]] == [records[row] for row in ("0", "0.05", "0.1", "0.2", "0.5", "1")]
    text = (DOCS / "results.md").read_text()
    for name in plots:
        assert (DOCS / "images" / "results" / name).is_file()
        assert f"(images/results/{name})" in text
