"""Tables run row by row: order, changes, finished and failing rows, and the pages that show them."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from learning_samples import DATA, MODEL, write_dataset
from recipe_samples import write_data
from sightline.checkpoint.model_checkpoint import load
from sightline.cli import reproduce_command as command
from sightline.cli.commands import main
from sightline.draw.canvas import COLOURS
from sightline.errors import ConfigError
from sightline.training.checkpoint_finder import MODEL as WEIGHTS
from sightline.training.data_config import is_encoder, way_to_make
from sightline.training.evaluation import Evaluation, measure
from sightline.training.launch import Callbacks
from sightline.training.reproduce import Outcome, choose, finished_run, plan, run
from sightline.training.results_page import Line, Table, curves_of, html, markdown, notes

STAGE = {
    "objective": {"kind": "cross-entropy"},
    "batch": {"size": 4, "captions": 2},
    "optimiser": {"lr": 0.01},
    "epochs": 1,
}
MATCHER = {"kind": "vsepp", "region_width": 6, "word_size": 8, "size": 8}
MATCHING = {
    **STAGE,
    "objective": {"kind": "triplet"},
    "batch": {"of": "pairs", "size": 4},
    "select": {"metric": "rsum"},
}
EVALUATE = {"metrics": ["cider"], "strategy": {"kind": "greedy"}}


def write_tables(folder: Path) -> Path:
    """A paper of two tables: captioners, one of which measures two; and matchers."""
    base = {"model": MODEL, "data": DATA, "stages": {"xe": STAGE}, "evaluate": EVALUATE}
    rows = {
        "tuned": {"start": "row:first", "seed": 3, "paper": {"CIDEr": 20.0}},
        "first": {"paper": {"CIDEr": 10.0}},
        "beam": {"measure": ["row:first"], "evaluate": {"strategy": {"kind": "beam", "size": 2}}},
        "both": {"measure": ["row:first", "row:tuned"], "paper": {"CIDEr": 30.0}},
    }
    matchers = {
        "one": {},
        "two": {"seed": 1},
        "pair": {"measure": ["row:one", "row:two"], "paper": {"i2t R@1": 50.0}},
        "again": {"measure": ["recipe:paper/table-1#first"], "model": MODEL},
    }
    other = {"model": MATCHER, "data": DATA, "stages": {"matching": MATCHING}}
    (folder / "paper").mkdir(parents=True)
    for name, values in {
        "table-1": {"about": "Captions.\n\nSecond & last.", "base": base, "rows": rows},
        "table-2": {"about": "Matching.", "base": other, "rows": matchers},
    }.items():
        (folder / "paper" / f"{name}.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Recipes, data, and everything run once."""
    root = tmp_path_factory.mktemp("world")
    recipes, data, out = write_tables(root / "recipes"), write_dataset(root / "data"), root / "runs"
    told = []
    outcomes = run(plan(choose("paper", folder=recipes), folder=recipes), out, "cpu", base=data, tell=told.append)
    assert told == outcomes
    return recipes, data, out, {one.row.name: one for one in outcomes}


def addresses(rows):
    return [row.address for row in rows]


def test_rows_come_after_those_they_need(world):
    recipes = world[0]
    assert addresses(plan(["paper/table-2#again", "paper/table-1#both"], folder=recipes)) == [
        "paper/table-1#first",
        "paper/table-2#again",
        "paper/table-1#tuned",
        "paper/table-1#both",
    ]


def test_tables_and_rows_are_chosen_by_name(world):
    recipes = world[0]
    assert choose("paper", "2", ["one"], recipes) == choose("paper", "table-2", ["one"], recipes)
    assert choose("paper", "2", ["one", "pair"], recipes) == ["paper/table-2#one", "paper/table-2#pair"]
    assert len(choose("paper", folder=recipes)) == 8
    with pytest.raises(ConfigError, match=r"no recipes of 'papers'.*choose one of paper"):
        choose("papers", folder=recipes)
    with pytest.raises(ConfigError, match=r"no recipe of table '3'.*1, 2"):
        choose("paper", "3", folder=recipes)
    with pytest.raises(ConfigError, match=r"no row 'three'.*one, two, pair, again"):
        choose("paper", "2", ["three"], recipes)


def test_a_change_counts_for_the_rows_that_have_its_key(world):
    recipes = world[0]
    changes = ["stages.matching.epochs=7", "model.hidden_size=4", "data.splits.extra=more.txt", "seed=9"]
    rows = {row.name: row.recipe for row in plan(choose("paper", folder=recipes), changes, recipes)}
    assert rows["one"].stages["matching"].epochs == 7
    assert rows["first"].model.hidden_size == 4
    assert set(rows["first"].stages) == {"xe"}
    assert {recipe.seed for recipe in rows.values()} == {9}
    assert all("extra" in recipe.data.splits for recipe in rows.values())
    for change in ("model.heads=2", "stages.other.epochs=1", "data.rule.name=x"):
        with pytest.raises(ConfigError, match="no row has the key"):
            plan(choose("paper", folder=recipes), [change], recipes)


def test_a_change_may_be_for_one_row_alone(world):
    recipes = world[0]
    changes = ["seed=9", "one:seed=4", "first:model.hidden_size=4"]
    rows = {row.name: row for row in plan(choose("paper", folder=recipes), changes, recipes)}
    assert (rows["one"].recipe.seed, rows["two"].recipe.seed) == (4, 9)
    assert rows["first"].recipe.model.hidden_size == 4
    assert rows["first"].changes == ("seed=9", "model.hidden_size=4")  # as they stand in its record
    assert not any("hidden_size" in change for name, row in rows.items() if name != "first" for change in row.changes)
    with pytest.raises(ConfigError, match=r"'three:seed=4' is for a row that is not run.*first"):
        plan(choose("paper", folder=recipes), ["three:seed=4"], recipes)
    with pytest.raises(ConfigError, match=r"no row has the key of 'one:model\.heads=2'"):
        plan(choose("paper", folder=recipes), ["one:model.heads=2"], recipes)


def test_rows_in_a_circle_and_missing_tables_are_refused(tmp_path):
    recipes = write_tables(tmp_path)
    path = recipes / "paper" / "table-1.yaml"
    values = yaml.safe_load(path.read_text())
    values["rows"]["first"] = {"start": "row:tuned"}
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(
        ConfigError, match="in a circle: paper/table-1#tuned → paper/table-1#first → paper/table-1#tuned"
    ):
        plan(["paper/table-1#tuned"], folder=recipes)
    values["rows"]["first"] = {"start": "recipe:paper/table-9#x"}
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match="there is no recipe paper/table-9"):
        plan(["paper/table-1#first"], folder=recipes)
    with pytest.raises(ConfigError, match=r"no row 'nothing'.*tuned"):
        plan(["paper/table-1#nothing"], folder=recipes)


def test_each_row_has_a_folder_with_its_results(world):
    _, _, out, outcomes = world
    assert {name: one.state for name, one in outcomes.items()} == {
        "first": "trained",
        "tuned": "trained",
        "beam": "measured",
        "both": "measured",
        "one": "trained",
        "two": "trained",
        "pair": "measured",
        "again": "measured",
    }
    results = json.loads((out / "paper" / "table-1" / "first" / "results.json").read_text())
    card = load(out / "paper" / "table-1" / "first" / WEIGHTS).card
    assert results["metrics"] == card["metrics"]
    assert (results["split"], results["row"], results["paper"]) == ("test", "paper/table-1#first", {"CIDEr": 10.0})
    assert not (out / "paper" / "table-1" / "both" / WEIGHTS).exists()


def test_a_row_that_measures_one_model_the_same_way_gives_the_same_numbers(world):
    _, data, out, outcomes = world
    model = load(out / "paper" / "table-1" / "first" / WEIGHTS)
    row = outcomes["first"].row.recipe
    assert measure([model], row.data, row.evaluate, base=data).metrics == outcomes["first"].results["metrics"]


def test_several_matchers_score_by_the_mean_of_their_similarities(world):
    _, data, out, outcomes = world
    members = [load(out / "paper" / "table-2" / name / WEIGHTS) for name in ("one", "two")]
    config = outcomes["one"].row.recipe.data
    twice = measure([members[0], members[0]], config, Evaluation(), base=data).metrics
    assert twice == outcomes["one"].results["metrics"]
    assert outcomes["pair"].results["metrics"] == measure(members, config, Evaluation(), base=data).metrics


def test_models_that_do_not_belong_together_are_refused(world):
    _, data, out, outcomes = world
    config = outcomes["one"].row.recipe.data
    matcher = load(out / "paper" / "table-2" / "one" / WEIGHTS)
    captioner = load(out / "paper" / "table-1" / "first" / WEIGHTS)
    with pytest.raises(ConfigError, match="a captioner and a matcher"):
        measure([matcher, captioner], config, Evaluation(), base=data)
    with pytest.raises(ConfigError, match="different words"):
        measure([matcher, replace(matcher, text_rule="scan")], config, Evaluation(), base=data)
    with pytest.raises(ConfigError, match="trained on scenes other, and these are tiny"):
        measure([replace(matcher, fingerprint="other")], config, Evaluation(), base=data)


def test_finished_rows_are_not_run_again_and_others_are(world):
    recipes, data, out, _ = world
    rows = plan(choose("paper", "1", folder=recipes), folder=recipes)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert {one.state for one in run(rows, out, "cpu", base=data)} == {"finished before"}
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == before
    (row,) = plan(["paper/table-1#first"], ["seed=5"], recipes)
    assert finished_run(row, out) is None
    (row,) = plan(["paper/table-1#first"], folder=recipes)
    assert finished_run(row, out / "elsewhere") is None


def test_a_folder_with_another_run_is_refused_and_the_rest_goes_on(world):
    recipes, data, out, _ = world
    rows = plan(["paper/table-1#both", "paper/table-2#one"], ["model.hidden_size=4"], recipes)
    outcomes = {one.row.name: one for one in run(rows, out, "cpu", base=data)}
    assert outcomes["first"].state == "failed"
    assert "another recipe (model.hidden_size is 8 there and 4 here)" in outcomes["first"].why
    assert outcomes["both"].state == "not run"
    assert outcomes["both"].why == "it needs paper/table-1#first and paper/table-1#tuned"
    assert outcomes["one"].state == "finished before"


def test_a_defect_in_one_row_does_not_stop_the_others(world, tmp_path):
    recipes, data, _, _ = world

    def callbacks(row):
        def report(line):
            raise RuntimeError("out of memory")

        return Callbacks(report=report) if row.name == "one" else Callbacks()

    outcomes = run(
        plan(choose("paper", "2", ["one", "two"], recipes), folder=recipes), tmp_path, base=data, callbacks=callbacks
    )
    assert [(one.state, one.why) for one in outcomes] == [("failed", "RuntimeError: out of memory"), ("trained", "")]


def test_pages_show_each_number_beside_the_papers(world):
    recipes, _, out, outcomes = world
    page = command.write_pages("paper", out, recipes=recipes)
    text, table = page.read_text(), (out / "paper" / "results.md").read_text()
    cider = outcomes["first"].results["metrics"]["CIDEr"]
    assert f"| first | here | {cider:.2f} |" in table
    assert "|  | paper | 10.00 |" in table
    assert f"<td>here</td><td>{cider:.2f}</td>" in text
    assert "Second &amp; last." in text
    assert text.count("<svg") == 4  # loss and val loss of two stages
    assert "loss, stage xe" in text
    assert not re.search(r"""(src|href)="(?!\#)|url\((?!\#)|https?://""", text)
    assert "Measured on 3 photos of test." in table


def test_a_paper_whose_rows_were_not_run_has_no_tables(world, tmp_path):
    page = command.write_pages("paper", tmp_path, recipes=world[0])
    assert "<table>" not in page.read_text()


def test_notes_tell_order_chance_what_was_measured_changed_and_failed():
    lines = [
        Line("a", {"CIDEr": 3.0}, {"CIDEr": 1.0, "self-retrieval pool": 200.0}, "val", 200, ("seed=1", "x.y=2")),
        Line("b", {"CIDEr": 2.0}, {"CIDEr": 4.0}, "val", 1200, note="it failed"),
        Line("c", {"CIDEr": 1.0}),
    ]
    assert notes(Table("t", "", lines)) == [
        "By CIDEr, here: b > a. In the paper: a > b.",
        "Chance, in a pool of 200: R@1 0.50, R@5 2.50, R@50 25.00, R@500 100.00.",
        "Measured on 200 photos of val (a).",
        "Measured on 1,200 photos of val (b).",
        "Not as in the recipe: seed=1, x.y=2.",
        "b: it failed",
    ]
    same = [Line("a", {"CIDEr": 3.0}, {"CIDEr": 5.0}), Line("b", {"CIDEr": 2.0}, {"CIDEr": 4.0})]
    assert notes(Table("t", "", same)) == ["By CIDEr the rows come in the paper's order: a > b."]


def test_rows_that_print_alike_are_equal():
    lines = [Line(name, {"CIDEr": 1.0}, {"CIDEr": value}) for name, value in {"a": 0.001, "b": 0.0, "c": 2.0}.items()]
    assert notes(Table("t", "", lines)) == ["By CIDEr, here: c > a = b. In the paper: a = b = c."]


def test_an_accuracy_has_its_oracle_beside_it():
    found = {"attention accuracy": 20.0, "attention oracle": 60.0, "loss": 1.0}
    table = Table("t", "About | it.", [Line("a|b", {"attention accuracy": 17.0}, found)])
    assert table.metrics == ["attention accuracy", "attention oracle"]
    assert "| a\\|b | here | 20.00 | 60.00 |" in markdown([table])
    assert "|  | paper | 17.00 | – |" in markdown([table])
    assert Table("t", "", [Line("a", {}, found)]).metrics == list(found)
    assert "<script>" not in html("<script>", [Table("<script>", "<script>", [Line("<script>", {})])])


def test_curves_are_read_from_a_run_even_if_it_was_killed(tmp_path):
    lines = [
        {"stage": "xe", "epoch": 0, "step": 5, "loss": 2.0, "rate": 1.0},
        {"stage": "xe", "epoch": 0, "step": 5, "val CIDEr": 9.0},
        {"stage": "xe", "epoch": 1, "step": 10, "loss": 1.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"stage": "x')
    assert curves_of(tmp_path) == {("xe", "loss"): [(5.0, 2.0), (10.0, 1.0)], ("xe", "val CIDEr"): [(5.0, 9.0)]}
    assert curves_of(tmp_path / "nothing") == {}


def test_a_figure_is_drawn_against_its_axis(tmp_path):
    path = tmp_path / "recipes" / "paper" / "fig-3.yaml"
    rows = {"0": {"paper": {"CIDEr": 57.1}}, "0.5": {}, "0.1": {"paper": {"CIDEr": 58.0}}}
    base = {"model": MODEL, "data": DATA, "stages": {"xe": STAGE}}
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump({"axis": "λ1", "base": base, "rows": rows}, sort_keys=False, allow_unicode=True))
    for row, value in {"0": 40.0, "0.5": 43.0, "0.1": 45.0}.items():
        folder = tmp_path / "runs" / "paper" / "fig-3" / row
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps({"metrics": {"CIDEr": value}}))
    page = command.write_pages("paper", tmp_path / "runs", recipes=tmp_path / "recipes").read_text()
    chart = re.search(r"<figcaption>CIDEr against λ1</figcaption>(<svg.*?</svg>)", page, re.S)[1]
    assert ">λ1</text>" in chart
    lines = [
        re.search(rf'<path d="([^"]*)"[^>]*stroke: {"#{:02x}{:02x}{:02x}".format(*colour)}', chart, re.S)[1]
        for colour in COLOURS[:2]
    ]
    ours, theirs = (re.findall(r"[\d.]+ [\d.]+", path) for path in lines)
    ours, theirs = ([tuple(map(float, point.split())) for point in line] for line in (ours, theirs))
    (x0, _), (x1, _), (x5, _) = ours
    assert (x1 - x0) / (x5 - x0) == pytest.approx(0.1 / 0.5, abs=1e-2)  # λ grows to the right, whatever the rows' order
    assert [y for _, y in ours].index(min(y for _, y in ours)) == 1  # 45 at 0.1 is highest
    assert [x for x, _ in theirs] == [x0, x1]


def test_without_matplotlib_the_page_says_what_draws_its_curves(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    (chart,) = command._charts({("xe", "loss"): {"row": [(0.0, 1.0), (1.0, 2.0)]}}).values()
    assert "pip install &#x27;sightline[draw]&#x27;" in chart


def test_charts_have_as_many_lines_as_their_legend_has_room_for():
    points = [(0.0, 1.0), (1.0, 2.0)]
    charts = command._charts({("xe", "loss"): {f"row-{i}-with-a-rather-long-name": points for i in range(5)}})
    assert list(charts) == [f"loss, stage xe ({i} of 3)" for i in (1, 2, 3)]
    assert list(command._charts({("xe", "loss"): {"a": points}})) == ["loss, stage xe"]


SMALL = ["model.region_width=8", "model.size=8", "model.word_size=8", "data.min_count=1", "stages.matching.steps=2"]


def test_the_command_runs_shipped_rows_tells_and_writes(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_DATA", str(write_data(tmp_path / "data")))
    out = tmp_path / "runs"
    arguments = ["reproduce", "vsrn", "--table", "3", "--rows", "SCAN,VSE++", "--out", str(out), "--device", "cpu"]
    assert main([*arguments, "--dry"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "vsrn/table-3#VSE++  (trains vsepp: matching)",
        "    matching: 30 epochs of 1 step",
        "vsrn/table-3#SCAN-t2i  (trains scan: matching)",
        "    matching: 30 epochs of 1 step",
        "vsrn/table-3#SCAN-i2t  (trains scan: matching)",
        "    matching: 30 epochs of 1 step",
        "vsrn/table-3#SCAN  (measures row:SCAN-t2i and row:SCAN-i2t)",
    ]
    assert main([*arguments, "--dry", "--json"]) == 0
    dry = json.loads(capsys.readouterr().out)
    assert list(dry) == [f"vsrn/table-3#{row}" for row in ("VSE++", "SCAN-t2i", "SCAN-i2t", "SCAN")]
    assert dry["vsrn/table-3#VSE++"] == {
        "plan": "trains vsepp: matching",
        "stages": {"matching": "30 epochs of 1 step"},
        "wrong": [],
        "missing": [],
        "seeds": [0],
    }
    assert main([*arguments, "--dry", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert main([*arguments, "--json", *SMALL]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert {address: row["state"] for address, row in found.items()} == {
        "vsrn/table-3#VSE++": "trained",
        "vsrn/table-3#SCAN-t2i": "trained",
        "vsrn/table-3#SCAN-i2t": "trained",
        "vsrn/table-3#SCAN": "measured",
    }
    assert "vsrn/table-3#SCAN: measured" in printed.err
    assert re.search(r"i2t R@1 \d+\.\d\d \(67\.40\).*the paper's in brackets", printed.err)
    assert "67.40" in (out / "vsrn" / "results.html").read_text()
    assert main([*arguments, "--quiet", *SMALL, "seed=4"]) == 1
    assert capsys.readouterr().err == ""
    assert "VSE++: " in (text := (out / "vsrn" / "results.md").read_text())
    assert "another recipe (seed is 0 there and 4 here)" in text
    assert "Not as in the recipe: model.region_width=8, model.size=8" in text


def test_the_command_refuses_what_is_no_change(capsys):
    assert main(["reproduce", "vsrn", "SCAN"]) == 2
    assert "not KEY=VALUE" in capsys.readouterr().err
    assert main(["reproduce", "nothing"]) == 2
    assert "contrastive, default, jran, pos-scan, r2m, vsrn" in capsys.readouterr().err


def test_missing_features_and_old_keys_are_told_with_what_to_do(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_DATA", str(root := write_data(tmp_path / "data")))
    shutil.rmtree(root / "features" / "flickr8k-detector")
    arguments = ["reproduce", "vsrn", "--table", "3", "--rows", "VSE++", "--out", str(tmp_path / "runs")]
    way = "data.images=FOLDER data.encoder=detector"
    assert main([*arguments, "--dry"]) == 1
    assert f"features/flickr8k-detector (made on the way with {way})" in capsys.readouterr().out
    assert main([*arguments, "--dry", "--json"]) == 1
    (told,) = json.loads(capsys.readouterr().out).values()
    assert [Path(path).name for path in told["missing"]] == ["flickr8k-detector"]
    assert main([*arguments, "--device", "cpu"]) == 1
    assert f"add {way}, and it is made on the way" in capsys.readouterr().err
    assert main([*arguments, "stages.matching.optimiser.rate=1e-3", "--dry"]) == 2
    assert "it is called `lr` now" in capsys.readouterr().err


@pytest.mark.parametrize("paper", ["r2m", "pos-scan", "contrastive", "vsrn", "jran"])
def test_what_makes_the_features_of_a_recipe_is_known(paper):
    stores = {row.recipe.data.features for row in plan(choose(paper))}
    for store in stores:
        way = way_to_make(store)
        assert way, store
        encoder = way.rpartition("=")[2]
        if encoder.startswith("recipe:"):
            assert plan([encoder.removeprefix("recipe:")])
        else:
            assert is_encoder(encoder)


def test_cl_is_another_name_of_contrastive(capsys):
    assert choose("cl", "4", ["Full"]) == ["contrastive/table-4#Full"]
    main(["reproduce", "cl", "--table", "4", "--rows", "Full", "--dry"])
    assert "contrastive/table-4#Full" in capsys.readouterr().out


def test_a_row_without_published_numbers_shows_its_own():
    (row,) = plan(choose("r2m", "3", ["Flickr8k-COCO-imagenet-XE"]))
    outcome = Outcome(row, "trained", results={"metrics": {"split": "test", "CIDEr": 14.938}, "seconds": 5.0})
    assert command._line(outcome).endswith("-XE: trained, 5 s: CIDEr 14.94")
