"""`sightline reproduce`: the tables of a paper, trained and measured, beside the numbers it prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from sightline.cli.console import Arg, show
from sightline.errors import ConfigError, MissingExtraError, plural
from sightline.files import read_json, write_text
from sightline.training.checkpoint_finder import RUNS
from sightline.training.results_page import Line, Points, Table, curves_of, html, markdown

if TYPE_CHECKING:  # what brings PyTorch is imported once there is a row to run
    from sightline.training.launch import Callbacks
    from sightline.training.recipe import Recipe
    from sightline.training.reproduce import Check, Outcome, Row

LEGEND = 680  # pixels for the names of one chart's lines
LINES = 7  # of one chart: as many as there are distinct colours


def reproduce(
    paper: str,
    settings: Annotated[tuple[str, ...], Arg("[KEY=VALUE …]")] = (),
    *,
    table: str = "",
    rows: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (0,),
    out: Path = RUNS,
    device: str = "auto",
    dry: bool = False,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Train and measure the rows of a paper's tables, and show them beside what the paper prints.

        sightline reproduce vsrn --table 3                        one table
        sightline reproduce pos-scan --table 2 --rows none,GT     two rows of it, and the models they need
        sightline reproduce jran --table 1 --seeds 0 1 2          each row three times
        sightline reproduce cl --dry                              what would be run, in which order, and what is missing

    Rows that are finished are not run again; one that was stopped goes on. OUT/PAPER/results.html has all tables, and
    OUT/records one small file a row with all that is needed to judge its numbers.

    Args:
        paper: r2m, pos-scan, contrastive (or cl), vsrn or jran; `default` is the shipped model.
        settings: changes such as data.max_photos=100 seed=1; each counts for the rows that have its key, and
            line-6:seed=1 for that row alone.
        table: 1, 2, …, or fig-3; by default all of the paper.
        rows: names of rows; by default all.
        seeds: each is added to the seed of a row's recipe, and the row is run with it.
        out: rows are run in OUT/PAPER/TABLE/ROW, and with seeds above 0 in its folder seed-N.
        dry: only check the rows that would be run: build their models, look for their files, count their steps.
        json: print the results as one JSON object; with --dry what would be run.
        quiet: print nothing on the way.
    """
    for text in settings:
        if "=" not in text:
            raise ConfigError(f"{text!r} is not KEY=VALUE", fix="name rows with --rows a,b and tables with --table 2")
    if len(set(seeds)) < len(seeds) or min(seeds, default=-1) < 0:
        raise ConfigError(f"--seeds is {' '.join(map(str, seeds))}", fix="give each seed once, 0 or more")
    from sightline.training.distributed import first_process
    from sightline.training.launch import Callbacks, data_root
    from sightline.training.reproduce import SHORT, choose, plan, run
    from sightline.training.results import RECORDS, write_records
    from sightline.training.run_log import Reporter

    paper = SHORT.get(paper, paper)
    chosen = choose(paper, table, rows)
    planned = plan(chosen, settings)
    if dry:
        return _check(planned, seeds, json, quiet)
    with Reporter(quiet or not first_process()) as reporter:
        callbacks = Callbacks(reporter.say, reporter.report, reporter.progress)

        def begin(row: Row) -> Callbacks:
            reporter.say(f"{_title(row)}: {_plan_text(row.recipe)}")
            return callbacks

        outcomes = []
        for seed in seeds:
            outcomes += run(
                [row.with_seed(seed) for row in planned],
                out,
                device,
                base=data_root(),
                callbacks=begin,
                tell=lambda outcome: reporter.say(_line(outcome)),
            )
        if first_process():
            reporter.say(f"All tables: {write_pages(paper, out, outcomes)}")
            reporter.say(f"Records: {len(write_records(out, out / RECORDS))} in {out / RECORDS}")
    as_json = {}
    for outcome in outcomes:
        why = {"why": outcome.why} if outcome.why else {}
        as_json[_title(outcome.row)] = {"state": outcome.state, **why, **outcome.results}
    show(as_json, "", json=json and first_process(), quiet=True)
    return int(any(outcome.state in ("failed", "not run") for outcome in outcomes))


def _check(planned: Sequence[Row], seeds: Sequence[int], json: bool, quiet: bool) -> int:
    """Tell what would be run and what is in its way; 1 where something is."""
    from sightline.training.launch import data_root
    from sightline.training.reproduce import Checker

    checker = Checker(data_root())
    checks = [(row, checker(row.recipe, row.table.partition("/")[0])) for row in planned]
    as_json = {
        row.address: {
            "plan": _plan_text(row.recipe),
            "stages": check.stages,
            "wrong": check.wrong,
            "missing": list(map(str, check.missing)),
            "seeds": seeds,
        }
        for row, check in checks
    }
    show(as_json, lambda: _print_checks(checks, seeds), json=json, quiet=quiet)
    return 0 if all(check.good for _, check in checks) else 1


def _print_checks(checks: Sequence[tuple[Row, Check]], seeds: Sequence[int]) -> None:
    from sightline.training.data_config import way_to_make

    for row, check in checks:
        print(f"{row.address}  ({_plan_text(row.recipe)})")
        for name, length in check.stages.items():
            print(f"    {name}: {length}")
        for sentence in check.wrong:
            print(f"    wrong: {sentence}")
    if len(seeds) > 1:
        print(f"each with the seeds {', '.join(map(str, seeds))}")
    for path, rows in Counter(path for _, check in checks for path in check.missing).items():
        way = way_to_make(path)
        print(f"missing, for {plural(rows, 'row')}: {path}" + (f" (made on the way with {way})" if way else ""))


def write_pages(paper: str, out: Path, outcomes: Sequence[Outcome] = (), recipes: Path | None = None) -> Path:
    """Write OUT/PAPER/results.md and results.html, of all rows that were ever run there; by default shipped ones."""
    from sightline.training.recipe import SHIPPED
    from sightline.training.reproduce import tables_of

    recipes = recipes or SHIPPED
    why = {}
    for outcome in outcomes:
        if outcome.why:
            seed = f"seed {outcome.row.seed}: " if outcome.row.seed else ""
            why[outcome.row.address] = seed + outcome.why
    tables = [table for name in tables_of(paper, recipes) if (table := _table(name, out, why, recipes)) is not None]
    title = f"{paper}: what was measured, and what the paper prints"
    write_text(out / paper / "results.md", f"# {title}\n\n{markdown(tables)}")
    write_text(out / paper / "results.html", html(title, tables))
    return out / paper / "results.html"


def _table(name: str, out: Path, why: Mapping[str, str], recipes: Path) -> Table | None:
    """A table with the results there are; None if none of its rows was run."""
    from sightline.config import load_yaml
    from sightline.training.recipe import read_recipe, read_rows

    path = recipes / f"{name}.yaml"
    lines = []
    curves: dict[tuple[str, str], dict[str, Points]] = {}
    for row in read_rows(path):
        folder, recipe = out / name / row, read_recipe(path, row)
        results = _results(folder)
        measured = Line(
            row,
            recipe.paper,
            results.get("metrics", {}),
            split=results.get("split") or "",
            photos=results.get("photos", 0),
            changes=tuple(results.get("changes", ())),
            note=why.get(f"{name}#{row}", ""),
        )
        lines.append(measured)
        quantities = {f"val {stage.select.metric}" for stage in recipe.stage_list()} | {"loss"}
        for (stage, quantity), points in curves_of(folder).items():
            if quantity in quantities:
                curves.setdefault((stage, quantity), {})[row] = points
    if not any(line.results or line.note for line in lines):
        return None
    values = load_yaml(path)
    table = Table(name, str(values.get("about", "")), lines, _charts(curves))
    if "axis" in values:
        table = replace(table, charts={**_sweep(table, str(values["axis"])), **table.charts})
    return table


def _sweep(table: Table, axis: str) -> dict[str, str]:
    """A chart a metric of a figure, over the numbers that its rows are named by: what was measured, and the paper's."""
    charts = {}
    for metric in table.metrics:
        here = sorted((float(line.name), line.results[metric]) for line in table.lines if metric in line.results)
        paper = sorted((float(line.name), line.paper[metric]) for line in table.lines if metric in line.paper)
        if len(here) > 1:  # one point is no line
            series = {"here": here, **({"paper": paper} if len(paper) > 1 else {})}
            charts[f"{metric} against {axis}"] = _chart(series, f"{metric} against {axis}", axis)
    return charts


def _results(folder: Path) -> dict[str, Any]:
    """The results of a row, its metrics as means over all seeds; empty before it was run."""
    from sightline.training.reproduce import RESULTS

    runs = [read_json(path) for path in sorted([*folder.glob(RESULTS), *folder.glob(f"seed-*/{RESULTS}")])]
    if not runs:
        return {}
    names = [name for name in runs[0]["metrics"] if all(name in run["metrics"] for run in runs)]
    return {**runs[0], "metrics": {name: fmean(run["metrics"][name] for run in runs) for name in names}}


def _charts(curves: Mapping[tuple[str, str], Mapping[str, Points]]) -> dict[str, str]:
    """A chart a stage and quantity, or several where there are too many rows for one."""
    charts = {}
    for (stage, quantity), series in curves.items():
        parts = list(legible(series))
        for number, part in enumerate(parts, 1):
            name = f"{quantity}, stage {stage}" + (f" ({number} of {len(parts)})" if len(parts) > 1 else "")
            charts[name] = _chart(part, name, "step")
    return charts


def _chart(series: Mapping[str, Points], title: str, x: str) -> str:
    """Inline SVG, or the sentence that says what draws it: a page is written even where charts cannot be."""
    from sightline.draw.charts import curves_svg

    try:
        return curves_svg(series, title, x)
    except MissingExtraError as missing:
        return f"<p>{escape(str(missing))}</p>"


def legible(series: Mapping[str, Points]) -> Iterator[dict[str, Points]]:
    """As many lines at a time as have room for their names."""
    part: dict[str, Points] = {}
    for name, points in series.items():
        width = sum(8 * len(label) + 42 for label in (*part, name))  # 8 pixels a letter, and the line before it
        if part and (width > LEGEND or len(part) == LINES):
            yield part
            part = {}
        part[name] = points
    if part:
        yield part


def _title(row: Row) -> str:
    return row.address + (f", seed {row.seed}" if row.seed else "")


def _plan_text(recipe: Recipe) -> str:
    if recipe.measure:
        return f"measures {' and '.join(recipe.measure)}"
    start = f" from {recipe.start}" if recipe.start else ""
    return f"trains {recipe.model.kind}{start}: {', then '.join(stage.name for stage in recipe.stage_list())}"


def _line(outcome: Outcome) -> str:
    from sightline.training.run_log import duration

    if outcome.why:
        return f"{_title(outcome.row)}: {outcome.state}. {outcome.why}"
    metrics, paper = outcome.results.get("metrics", {}), outcome.row.recipe.paper
    ours = {name: f"{name} {value:.2f}" for name, value in metrics.items() if isinstance(value, float)}
    pairs = [f"{ours[name]} ({paper[name]:.2f})" for name in paper if name in ours]
    numbers = f"{', '.join(pairs)}, the paper's in brackets" if pairs else ", ".join(ours.values())
    numbers = f": {numbers}" if numbers else ""
    seconds = f", {duration(outcome.results.get('seconds', 0))}" if outcome.state != "finished before" else ""
    return f"{_title(outcome.row)}: {outcome.state}{seconds}{numbers}"
