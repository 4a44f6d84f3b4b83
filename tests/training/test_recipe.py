"""Every shipped recipe: it loads, it is complete, and each of its rows trains, stops, goes on, and is measured."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from jrln_samples import BASELINE, SCHEMES, TABLE_1
from recipe_samples import STEPS, STORES, tiny, write_data
from sightline.config import load_yaml
from sightline.decoding.strategies import Beam
from sightline.models.jran import JRANConfig
from sightline.training.launch import Callbacks
from sightline.training.recipe import SHIPPED, read_recipe, read_rows, shipped_recipes
from sightline.training.recipe_captions import read_photos
from sightline.training.reproduce import Outcome, Row, choose, plan, run

PAPERS = {
    "r2m": ["fig-7", "table-1", "table-2", "table-3"],
    "pos-scan": ["fig-3", "fig-3-detector", "table-1", "table-2", "table-3", "table-4"],
    "contrastive": ["flickr8k", "table-1", "table-4", "table-5", "table-6"],
    "vsrn": ["table-1", "table-2", "table-3", "table-4", "table-5"],
    "jran": ["coco-30k", "fig-5", "flickr8k", "table-1", "table-2", "table-3", "table-4"],
}
ADDRESSES = [address for paper in PAPERS for address in choose(paper)]
ROWS = {row.address: row for row in plan(ADDRESSES)}
MATCHERS = {"scan", "pos-scan", "vsepp", "vsrn"}
REWARDED = {"self-critical", "adversarial"}  # their loss is no measure of success: a step's reward is random


def test_every_table_of_every_paper_has_its_recipe():
    found: dict[str, list[str]] = {}
    for path in shipped_recipes():
        found.setdefault(path.parent.name, []).append(path.stem)
    del found["default"]  # the shipped model's: tests/training/test_recipe_default.py
    assert {paper: sorted(tables) for paper, tables in found.items()} == PAPERS
    assert (SHIPPED / "EXCLUDED.md").is_file()


OF_PAPERS = [path for path in shipped_recipes() if path.parent.name in PAPERS]


@pytest.mark.parametrize("path", OF_PAPERS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recipe_says_what_it_shows_how_to_run_it_and_how_it_differs(path):
    about = load_yaml(path)["about"]
    number = path.stem.removeprefix("table-")
    assert f"sightline reproduce {path.parent.name} --table {number}" in about
    assert "Different from the paper" in about


def different(table: str) -> str:
    """What a recipe, and those it refers to, say under "Different from the paper"."""
    text = " ".join(load_yaml(SHIPPED / f"{table}.yaml")["about"].partition("Different from the paper")[2].split())
    others = re.findall(r"as in Tables? (\d)(?: and (\d))?", text)
    return text + "".join(
        different(f"{table.partition('/')[0]}/table-{number}")
        for number in dict.fromkeys(number for pair in others for number in pair if number)
        if not table.endswith(f"table-{number}")
    )


@pytest.mark.parametrize("path", OF_PAPERS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recipe_that_starts_at_word_frequencies_says_so(path):
    table = f"{path.parent.name}/{path.stem}"
    writers = [
        row
        for row in ROWS.values()
        if row.table == table
        and row.recipe.stages
        and not (row.recipe.start or row.recipe.measure)
        and row.recipe.output_bias == "frequencies"
        and (row.recipe.model.kind not in MATCHERS or getattr(row.recipe.model, "generation", False))
    ]
    assert not writers or "log word frequencies" in different(table) or "their log frequencies" in different(table)


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_row_is_strict_and_its_name_is_a_folder_and_a_word(address):
    row = ROWS[address]
    assert re.fullmatch(r"[A-Za-z0-9.+-]+", row.name)
    assert row.recipe.stage_list() or row.recipe.measure
    assert all(need in ROWS for need in row.needs)
    for need in row.needs:
        assert not ROWS[need].recipe.measure, f"{need} has no model of its own"
    for name in row.recipe.measure:  # what is measured is what the row says it is
        member = ROWS[name.partition(":")[2] if name.startswith("recipe:") else f"{row.table}#{name[4:]}"].recipe
        assert member.model.kind == row.recipe.model.kind
        assert member.data.captions == row.recipe.data.captions
        assert member.data.features == row.recipe.data.features


def test_printed_numbers_are_percentages_of_metrics_that_evaluation_gives():
    known = r"BLEU-[1-4]|METEOR|ROUGE-L|CIDEr|SPICE|(i2t|t2i) R@(1|5|10)|attention accuracy|F1_(all|loc)"
    for row in ROWS.values():
        for name, value in row.recipe.paper.items():
            assert re.fullmatch(known + r"|self-retrieval R@(1|5|50|500)", name), (row.address, name)
            assert 0.02 <= value <= 130


@pytest.mark.parametrize(
    ("address", "metric", "value"),
    [
        ("r2m/table-1#COCO-Flickr30k", "CIDEr", 29.0),
        ("r2m/table-2#COCO-Conceptual-no-memory-in-R", "CIDEr", 28.1),
        ("r2m/table-3#Flickr8k-COCO-rec-S", "BLEU-4", 10.5),
        ("pos-scan/table-1#POS-SCAN", "attention accuracy", 28.58),
        ("pos-scan/table-2#POS-SCAN+CIDEr+SCAN", "F1_loc", 18.44),
        ("pos-scan/table-4#XE+KL+CIDEr+SCAN", "CIDEr", 126.1),
        ("contrastive/table-4#Full", "CIDEr", 114.2),
        ("contrastive/table-1#AdaptiveAttention", "self-retrieval R@500", 78.46),
        ("contrastive/table-5#NT-AA", "METEOR", 24.9),
        ("vsrn/table-1#VSRN", "i2t R@1", 76.2),
        ("vsrn/table-4#4RRR+GSR-no-LG", "t2i R@1", 61.2),
        ("jran/table-1#line-4", "CIDEr", 127.9),
        ("jran/table-4#JRAN-Trans-BS4", "CIDEr", 129.6),
    ],
)
def test_numbers_are_the_printed_ones(address, metric, value):
    assert ROWS[address].recipe.paper[metric] == value


def test_rows_of_jran_are_the_ablations_of_its_model():
    widths = {"region_width": 2048, "grid_width": 2048}
    for number, config in TABLE_1.items():
        for name in (f"line-{number}", f"line-{number}-XE"):
            assert replace(ROWS[f"jran/table-1#{name}"].recipe.model, **widths) == config
    for scheme, name in {"none": "None", "concat": "Concat", "no-gate": "No-gate"}.items():
        assert replace(ROWS[f"jran/fig-5#{name}"].recipe.model, **widths) == SCHEMES[scheme]
    assert replace(ROWS["jran/table-2#Baseline"].recipe.model, **widths) == BASELINE
    on_flickr8k = {
        **{f"line-{number}": config for number, config in TABLE_1.items()},
        "None": SCHEMES["none"],
        "Concat": SCHEMES["concat"],
        "No-gate": SCHEMES["no-gate"],
        "Baseline": BASELINE,
        "Baseline-updown": replace(BASELINE, decoder="updown"),
        "JRAN-updown": JRANConfig(decoder="updown"),
    }
    for name, config in on_flickr8k.items():
        assert replace(ROWS[f"jran/flickr8k#{name}"].recipe.model, **widths) == config


def test_jran_reads_the_detectors_regions_and_its_grid():
    for address in choose("jran"):
        recipe = ROWS[address].recipe
        assert recipe.data.features.name.endswith("-detector"), address
        assert recipe.model.region_width == 512, address
        assert getattr(recipe.model, "grid_width", 1280) == 1280, address  # EfficientNet-Lite's last map


def test_pos_scan_reads_regions_of_a_detector_and_labels_those_that_learned_from_entities():
    for address in choose("pos-scan"):
        row = ROWS[address]
        made_by = {"pos-scan/table-4": "coco-detector"}.get(row.table, "flickr8k-coco-boxes")
        if row.address.endswith("-detector") or row.table.endswith("-detector"):
            made_by = "flickr8k-detector"
        assert row.recipe.data.features == Path("features", made_by), address
        assert row.recipe.model.region_width == 512
    for table in ("table-1", "table-2"):
        about = " ".join(load_yaml(SHIPPED / "pos-scan" / f"{table}.yaml")["about"].split())
        assert "regions and names supervised by Entities" in about


@pytest.mark.parametrize("table", PAPERS["pos-scan"])
def test_one_setting_changes_the_features_of_all_rows_and_their_teachers(table):
    rows = plan(choose("pos-scan", table), ["data.features=mine", "model.region_width=2048"])
    assert {row.recipe.data.features for row in rows} == {Path("mine")}
    assert {row.recipe.model.region_width for row in rows} == {2048}


def test_both_readings_of_true_boxes_are_rows():
    forms = {
        row.recipe.stages["cross-entropy"].objective.form
        for row in ROWS.values()
        if row.table == "pos-scan/table-1" and "GT" in row.name
    }
    assert forms == {"nll", "sum"}


def test_the_rows_of_pos_scans_figure_are_its_weights():
    path = SHIPPED / "pos-scan" / "fig-3.yaml"
    assert load_yaml(path)["axis"] == "λ1"
    for name in read_rows(path):
        row = ROWS[f"pos-scan/fig-3#{name}"].recipe
        trained = ROWS[row.measure[0].partition(":")[2]].recipe if row.measure else row
        objective = trained.stages["cross-entropy"].objective
        assert float(name) == (objective.weight if objective.kind == "distillation" else 0)


OF_CL = [row for row in ROWS.values() if row.table.startswith("contrastive/")]
TUNED = [row for row in OF_CL if row.recipe.start and not row.recipe.measure]


@pytest.mark.parametrize("row", TUNED, ids=lambda row: row.address)
def test_rows_of_contrastive_learning_move_weights_as_far_as_the_papers_run(row):
    (stage,) = row.recipe.stage_list()
    photos = 6000 if "flickr8k" in str(row.recipe.data.features) else 109_488  # of COCO's 113,287, those with features
    steps = stage.epochs * (photos // stage.batch.size)
    papers = 1e-6 * 20 * (109_488 // 20)
    assert stage.optimiser.lr * steps == pytest.approx(papers, rel=0.02)


@pytest.mark.parametrize("row", TUNED, ids=lambda row: row.address)
def test_contrastive_rows_are_no_worse_than_their_start_and_others_are_the_last_model(row):
    (stage,) = row.recipe.stage_list()
    spoiling = stage.objective.kind != "contrastive" or stage.objective.terms == "negative"
    assert stage.select.start == (not spoiling)
    assert stage.select.every == (0 if spoiling else 1)
    assert getattr(stage.objective, "target_dropout", False) == row.name.endswith("-dropout")


@pytest.mark.parametrize("row", OF_CL, ids=lambda row: row.address)
def test_rows_of_contrastive_learning_are_chosen_and_measured_alike(row):
    how = row.recipe.evaluate
    assert (how.strategy, how.rules.max_words) == (Beam(size=3), 18)
    assert how.self_retrieval == (row.table in ("contrastive/table-1", "contrastive/flickr8k"))
    assert row.recipe.data.rule == "adaptive-attention"
    if not row.recipe.measure:
        assert how.in_training().strategy == how.strategy


def test_measuring_rows_train_nothing():
    recipe = read_recipe(SHIPPED / "vsrn" / "table-1.yaml", "SCAN")
    assert recipe.measure == ("row:SCAN-t2i", "row:SCAN-i2t")
    assert recipe.stage_list() == []
    assert recipe.stages  # those of the base, which do not count


def test_what_does_not_decide_the_result_leaves_the_fingerprint_alone():
    recipe = ROWS["vsrn/table-3#VSE++"].recipe
    same = replace(recipe.data, images=Path("photos"), encoder="lite2", cache="disk", budget=1.0)
    assert replace(recipe, data=same, paper={}).fingerprint() == recipe.fingerprint()
    assert replace(recipe, seed=5).fingerprint() != recipe.fingerprint()
    assert replace(recipe, measure=("row:x",)).fingerprint() != recipe.fingerprint()


MADE = {f"features/{store}" for store in STORES}  # by whoever runs a recipe


@pytest.mark.data
def test_every_file_that_recipes_name_is_there(data_dir):
    named: set[Path] = set()
    for row in ROWS.values():
        given = row.recipe.data
        named |= {*given.caption_files, *given.concept_files, *given.splits.values()}
        named |= {path for path in (given.features, given.grounding, given.corpus) if path is not None}
    assert {path.as_posix() for path in named if not (data_dir / path).exists()} <= MADE


@pytest.mark.data
@pytest.mark.parametrize(
    ("address", "counts"),
    [
        ("vsrn/table-3#VSRN-1", {"train": 6000, "val": 1000, "test": 1000}),
        ("vsrn/table-1#VSRN-1", {"train": 113287, "val": 5000, "test": 5000}),
        ("contrastive/table-4#Base", {"train": 113287, "val": 5000}),
    ],
)
def test_splits_are_the_published_ones(address, counts, data_dir):
    photos = read_photos(ROWS[address].recipe.data, data_dir, [])
    assert {role: len(part) for role, part in photos.items()} == counts


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def needed(address: str) -> list[Row]:
    """The row and all that it needs, in order: what `plan` gives, without reading the files again."""
    wanted, found = [address], {address}
    while wanted:
        wanted = [need for one in wanted for need in ROWS[one].needs if need not in found]
        found.update(wanted)
    return [row for name, row in ROWS.items() if name in found]


class StopError(Exception):
    """A run that is killed."""


def stopping(row: Row) -> Callbacks:
    """Kill the row in the middle of its last stage."""
    last = row.recipe.stage_list()[-1].name

    def report(line: dict) -> None:
        if line["stage"] == last and line["step"] >= STEPS - 6:
            raise StopError

    return Callbacks(report=report)


def losses(folder: Path) -> dict[str, list[float]]:
    """Losses of each stage, one an epoch; no step is logged twice, and the last is there."""
    found: dict[str, list[float]] = {}
    steps: dict[str, list[int]] = {}
    for text in (folder / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        if "loss" in line:
            found.setdefault(line["stage"], []).append(line["loss"])
            steps.setdefault(line["stage"], []).append(line["step"])
    assert all(done == sorted(set(done)) and done[-1] == STEPS for done in steps.values()), steps
    return found


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_row_learns_stops_and_goes_on(address, data, runs):
    rows = [replace(row, recipe=tiny(row.recipe)) for row in needed(address)]
    before = run(rows[:-1], runs, "cpu", base=data)
    assert [outcome.why for outcome in before] == [""] * len(before)
    row, folder = rows[-1], rows[-1].folder(runs)
    if not row.recipe.measure and not (folder / "results.json").exists():
        (outcome,) = run([row], runs, "cpu", base=data, callbacks=stopping)
        assert outcome.why.startswith("StopError"), outcome
        assert not (folder / "model.safetensors").exists()
    (outcome,) = run([row], runs, "cpu", base=data)
    _check_results(outcome)
    for stage in row.recipe.stage_list():
        found = losses(folder)[stage.name]
        assert all(map(math.isfinite, found))
        if stage.objective.kind not in REWARDED:
            third = max(1, len(found) // 3)
            assert sum(found[-third:]) < sum(found[:third]), (stage.name, found)


def _check_results(outcome: Outcome) -> None:
    assert outcome.why == ""
    metrics, recipe = outcome.results["metrics"], outcome.row.recipe
    assert outcome.results["split"] == ("test" if recipe.data.test else "val")
    assert all(map(math.isfinite, metrics.values()))
    for name in recipe.paper:
        if not re.match("BLEU|METEOR|ROUGE|SPICE", name):  # CIDEr alone is computed here
            assert name in metrics
