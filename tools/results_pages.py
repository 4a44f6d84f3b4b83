"""Write docs/results.md and docs/which-model.md from the records in docs/results.

python tools/results_pages.py           writes both pages and the plots
python tools/results_pages.py --check   says whether the pages are up to date, and changes nothing

docs/results holds a record a row (tools/collect_results.py), ratios between rows (comparisons.json), the speed of
models (speed.json, by benchmarks/model_speed.py), and what people wrote: PAPER.md, speed.md, which-model.md. A picture
of a paper is docs/images/results/PAPER-picture-N.png (or .jpg), with what it shows in a .txt of the same name.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from collect_results import DOCS, Compared, read_comparisons

from model_speed import ROWS, VOCABULARY
from sightline.config import RENAMED, load_yaml
from sightline.draw.charts import curves
from sightline.files import read_json, write_text
from sightline.training.new_model import outline
from sightline.training.recipe import SHIPPED, Recipe, read_recipe, read_rows, shipped_recipes
from sightline.training.results import NAMES, PAPERS, Features, ResultRecord, read_records
from sightline.training.results_page import Line, Table

TITLES = {"r2m": "R²M", "pos-scan": "POS-SCAN", "cl": "Contrastive learning", "vsrn": "VSRN", "jran": "JRAN"}
FOLDERS = {paper: folder for folder, paper in NAMES.items()}
SETS = {"coco": "COCO", "flickr8k": "Flickr8k"}  # folder of captions: its name
PICTURES = 3  # a paper
DRAWING = "`python tools/result_pictures.py RUNS` draws them from trained rows, none of which was at hand."
SAME_SIZE = 0.1  # a model may have so much more or fewer parameters than the one that was timed
QUALITY = {"captions": "CIDEr", "matching": "rsum"}
# what rows are for, although their papers print no number of it beside them
CLAIMED = ("self-retrieval R@1", "attention accuracy", "attention accuracy micro", "attention oracle")
SWEPT = ("attention accuracy", "F1_all", "F1_loc", "CIDEr")  # what is drawn over the axis of a figure
OTHERS = (
    "CIDEr",
    "BLEU-4",
    "METEOR",
    "i2t R@1",
    "t2i R@1",
    "attention accuracy",
    "attention accuracy micro",
    "attention oracle",
    "forced words",
    "F1_all",
    "F1_loc",
)
NOWHERE = {  # commits of records that are in no history: what they are
    "37a6d0b4a4a94011b787579ed11de9daadc5f197": "a working copy that became `5c82311` and the commits before it",
}

RESULTS = """# Results

What was measured with the recipes that come with Sightline, beside what the papers print. This page is written by
`python tools/results_pages.py` from the records in `docs/results`, one a row; a record tells recipe, changes, commit,
seeds, data, features and what these learned from, minutes and hardware. To measure a row yourself:

```bash
sightline reproduce jran --table 1 --rows line-6-XE --dry        # what it would do, and what is missing
sightline reproduce jran --table 1 --rows line-6-XE --seeds 0 1 2
python tools/collect_results.py runs && python tools/results_pages.py
```

`tools/rows/flickr8k.yaml` lists the rows of Flickr8k below with the changes they were run with, a dozen or
more at a time on a GPU; `python tools/run_rows.py tools/rows/flickr8k.yaml --slots 15` runs them so again.

All numbers are percentages. Several seeds stand as mean ± standard deviation. A ratio is that of two rows measured on
the same photos; its 95 % interval comes from 1,000 resamples of these photos (paired bootstrap), so that it tells how
far the choice of photos matters, not the choice of seeds. *Comparable* tells whether the paper's number is of the same
task, and if not, the first reason: other data, another split of it, or other features. None of the papers' own features
are at hand. Models were chosen on dev or val; what is measured on test was measured once.
"""

WHICH = """# Which model should I use?

This page is written by `python tools/results_pages.py`, from the records of [Results](results.md) and from
`docs/results/speed.json`, which `python benchmarks/model_speed.py` measures.
"""

CONDITIONS = """
Parameters of the recipes, with {vocabulary:,} words. Milliseconds are CPU time for a photo whose features are there:
captions by beam {beam}, {words} words long; matching is the photo's vectors alone. {regions} regions, random weights
of the recipes' sizes within a tenth (a product takes as long whatever is multiplied); {hardware}, {date}. The vision
model's time comes on top, the same for all. Quality is of rows measured on test: the best row of a kind, with its name.
Rows differ in features, epochs and seeds ([Results](results.md)), and a kind with more rows had more chances: a few
points decide nothing.
"""


@dataclass(frozen=True)
class Speed:
    """How large a kind of model is, and how long it takes for a photo whose features are there."""

    kind: str
    does: str
    parameters: int
    ms: float  # nan where a model of another size was timed


def read_speeds(held: Mapping[str, Any]) -> dict[str, Speed]:
    """Kinds of models at the sizes that their recipes have today; a time is that of the size it was measured at."""
    speeds = {}
    for one in held["models"]:
        table, _, row = ROWS[one["kind"]].partition("#")
        model = outline(read_recipe(SHIPPED / f"{table}.yaml", row).model, VOCABULARY)
        parameters = sum(part.numel() for part in model.parameters())
        near = abs(parameters - one["parameters"]) < SAME_SIZE * parameters
        speeds[one["kind"]] = Speed(one["kind"], one["does"], parameters, one["ms"] if near else nan)
    return speeds


@dataclass(frozen=True)
class Plot:
    """Points of models, by what the legend calls them."""

    title: str
    x: str
    points: dict[str, list[tuple[float, float]]]


def results_page(folder: Path, images: Path, recipes: Path = SHIPPED) -> str:
    """docs/results.md."""
    records, ratios = read_records(folder), read_comparisons(folder)
    parts = [RESULTS.strip()]
    for paper in PAPERS:
        own = [record for record in records if record.paper == paper]
        mine = [one for one in ratios if one.row.partition("/")[0] == FOLDERS.get(paper, paper)]
        parts += [f"## {TITLES[paper]}", _fragment(folder / f"{paper}.md")]
        parts += list(_paper(paper, own, mine, images, recipes))
    return "\n\n".join([*parts, _fragment(folder / "speed.md")]) + "\n"


def _paper(
    paper: str, records: Sequence[ResultRecord], ratios: Sequence[Compared], images: Path, recipes: Path
) -> Iterator[str]:
    lacking = []
    for path in shipped_recipes(recipes):
        if path.parent.name != FOLDERS.get(paper, paper):
            continue
        rows = {row: read_recipe(path, row).paper for row in read_rows(path)}
        found = {record.row: record for record in records if record.table == path.stem}
        if found:
            yield f"### {_title(path)}"
            groups: dict[tuple[str, Features], list[ResultRecord]] = {}  # what may be compared
            for row in (*rows, *(set(found) - set(rows))):
                if row in found:
                    groups.setdefault((found[row].split, found[row].features), []).append(found[row])
            for group in sorted(groups.values(), key=lambda group: -len(group[0].seeds)):
                yield from _table(group)
        missing = [row for row in rows if row not in found]
        if missing:
            every = "all rows" if not found else ", ".join(f"`{row}`" for row in missing)
            lacking.append(f"{path.stem.replace('-', ' ')}: {every}")
        yield from (f"![{plot.title}](images/results/{name})" for name, plot in _sweep(paper, path, found.values()))
        curve = sorted(images.glob(f"{paper}-{path.stem}-curves-*.png"))
        yield from (f"![Curves: {one.stem}](images/results/{one.name})" for one in curve)
    if ratios:
        yield _ratios(ratios, {record.address: record for record in records})
    pictures = list(_pictures(paper, images))
    yield from pictures
    if len(pictures) < PICTURES:
        yield f"Pictures: {len(pictures)} of {PICTURES}; {DRAWING}"
    if lacking:
        yield f"Not run: {'; '.join(lacking)}."


def _sweep(paper: str, path: Path, records: Iterable[ResultRecord]) -> Iterator[tuple[str, Plot]]:
    """A plot for each metric of a figure whose rows are places on an axis."""
    axis = load_yaml(path).get("axis")
    for metric in SWEPT if axis else ():
        values = [(float(one.row), one.metrics.mean[metric]) for one in records if metric in one.metrics.mean]
        if len(values) > 1:  # one point is no line
            name = f"{paper}-{path.stem}-{metric.replace(' ', '-')}.png"
            yield name, Plot(f"{metric} against {axis}", str(axis), {"here": sorted(values)})


def sweeps(folder: Path, recipes: Path = SHIPPED) -> dict[str, Plot]:
    """The plots of all figures, by file name."""
    records, plots = read_records(folder), dict[str, Plot]()
    for path in shipped_recipes(recipes):
        paper = NAMES.get(path.parent.name, path.parent.name)
        own = [one for one in records if (one.paper, one.table) == (paper, path.stem)]
        plots |= dict(_sweep(paper, path, own))
    return plots


def _title(path: Path) -> str:
    """The first sentence of what a recipe says about itself."""
    about = " ".join(str(load_yaml(path).get("about", "")).split())
    return re.split(r"[.?] ", about)[0].rstrip(".?")


def _table(records: Sequence[ResultRecord]) -> Iterator[str]:
    """The rows of a table that were measured, and what numbers alone do not tell."""
    lines = [Line(record.row, record.published, record.metrics.mean) for record in records]
    table = Table("", "", lines)
    metrics = table.metrics if any(line.paper for line in lines) else [one for one in OTHERS if one in table.metrics]
    claimed = [name for name in CLAIMED if all(name in line.results for line in lines)]
    metrics = list(dict.fromkeys([*metrics, *claimed]))
    head = ["row", "", *metrics, "comparable", "seeds", "minutes"]
    cells = [head, ["---", "---", *["--:"] * len(metrics), "---", "--:", "--:"]]
    for record in records:
        here = [_value([one.get(name) for one in record.metrics.of_seeds()]) for name in metrics]
        cells.append([record.row, "here", *here, record.comparable, str(len(record.seeds)), f"{record.minutes:.1f}"])
        if record.published:
            paper = ["–" if name not in record.published else f"{record.published[name]:.2f}" for name in metrics]
            cells.append(["", "paper", *paper, "", "", ""])
    yield _markdown(cells)
    told = {
        "Measured on": lambda one: f"{one.data.photos:,} photos of {one.split}",
        "Trained on sentences of": lambda one: one.data.corpus,
        "Features": lambda one: (
            f"`{one.features.name}` (`{one.features.fingerprint}`), which learned from {one.supervision}"
        ),
        "Changed in the recipe": lambda one: ", ".join(f"`{change}`" for change in changes_of(one)),
        "Hardware": lambda one: one.hardware,
        "Chance of self-retrieval": _chance,
        "Commit": lambda one: f"`{one.commit}`" + (f", {NOWHERE[one.commit]}" if one.commit in NOWHERE else ""),
    }
    notes = [f"- {what}: {value}." for what, how in told.items() for value in _grouped(records, how)]
    yield "\n".join(notes)


def _chance(record: ResultRecord) -> str:
    pool = record.metrics.mean.get("self-retrieval pool")
    return f"R@1 {100 / pool:.2f} in a pool of {pool:,.0f} photos" if pool else ""


def changes_of(record: ResultRecord) -> list[str]:
    """What was changed in the recipe of a row, under the names that keys have today: it can be given again."""
    changes = []
    for change in record.recipe.changes:
        key, equals, value = change.partition("=")
        changes.append(".".join(RENAMED.get(part, part) for part in key.split(".")) + equals + value)
    return changes


def _grouped(records: Sequence[ResultRecord], how: Any) -> Iterator[str]:
    """What is said of rows, with their names where not all are alike."""
    rows: dict[str, list[str]] = {}
    for record in records:
        rows.setdefault(how(record), []).append(record.row)
    for value, names in rows.items():
        if value:
            yield value + ("" if len(rows) == 1 else f" ({', '.join(names)})")


def _ratios(ratios: Sequence[Compared], records: Mapping[str, ResultRecord]) -> str:
    head = ["row", "against", "metric", "ratio", "95 %", "the paper's ratio", "difference", "95 %"]
    cells = [head, ["---", "---", "---", "--:", "---", "--:", "--:", "---"]]
    for one in ratios:
        paper = _paper_ratio(one, records)
        name, base = (address.partition("/")[2] for address in (one.row, one.base))
        cells.append(
            [
                name,
                base,
                one.metric,
                f"{one.ratio.score:.2f}",
                f"{one.ratio.low:.2f} to {one.ratio.high:.2f}",
                "–" if paper is None else f"{paper:.2f}",
                f"{one.difference.score:+.1f}",
                f"{one.difference.low:+.1f} to {one.difference.high:+.1f}",
            ]
        )
    return _markdown(cells)


def _paper_ratio(one: Compared, records: Mapping[str, ResultRecord]) -> float | None:
    printed = [records[name].published.get(one.metric) if name in records else None for name in (one.row, one.base)]
    return printed[0] / printed[1] if printed[0] is not None and printed[1] else None


def _pictures(paper: str, images: Path) -> Iterator[str]:
    """The first three pictures of a paper, each with what it shows."""
    found = sorted(path for path in images.glob(f"{paper}-picture-*") if path.suffix in (".png", ".jpg"))
    for path in found[:PICTURES]:
        note = path.with_suffix(".txt")
        shows = " ".join(note.read_text(encoding="utf-8").split()) if note.is_file() else path.stem
        yield f"![{shows}](images/results/{path.name})\n\n*{shows}*"


def which_page(folder: Path, recipes: Path = SHIPPED) -> tuple[str, dict[str, Plot]]:
    """docs/which-model.md, and its plots by file name."""
    held = read_json(folder / "speed.json")
    speeds = read_speeds(held)
    measured: dict[tuple[str, str], list[tuple[int, float, str]]] = {}  # kind and set of photos: seeds, quality, name
    for record in read_records(folder):
        recipe = recipe_of(record, recipes)
        speed = None if recipe is None else speeds.get(recipe.model.kind)
        quality = None if speed is None else record.metrics.mean.get(QUALITY[speed.does])
        if recipe is None or speed is None or quality is None or not record.split.startswith("test"):
            continue
        if len(recipe.measure) > 1:  # the mean of several models has their time and size together
            continue
        place = speed.kind, _set_of(record, recipe)
        measured.setdefault(place, []).append((len(record.seeds), quality, record.row))
    rows = {place: _surest(found) for place, found in measured.items()}
    parts, plots = [WHICH.strip(), _fragment(folder / "which-model.md")], dict[str, Plot]()
    for does, what in (("captions", "Captions: CIDEr"), ("matching", "Matching: the sum of six recalls, rsum")):
        own = [one for one in speeds.values() if one.does == does]
        made = dict(_plots(does, own, rows))
        plots |= made
        parts += [f"## {what}", _sizes(own, rows)]
        parts += [f"![{what}, against {plot.x}: {name}](images/results/{name})" for name, plot in made.items()]
    parts.append(CONDITIONS.strip().format(**held))
    return "\n\n".join(parts) + "\n", plots


def _surest(measured: Sequence[tuple[int, float, str]]) -> list[tuple[float, str]]:
    """Quality and name of the rows with the most seeds: the best of many single runs is partly the luckiest."""
    most = max(seeds for seeds, _, _ in measured)
    return [(quality, name) for seeds, quality, name in measured if seeds == most]


def _plots(
    does: str, speeds: Sequence[Speed], rows: Mapping[tuple[str, str], Sequence[tuple[float, str]]]
) -> Iterator[tuple[str, Plot]]:
    """For each set of photos the best row of each kind, against time and against size."""
    kinds = {one.kind: one for one in speeds}
    for place in sorted({place for kind, place in rows if kind in kinds}):
        best = {kind: max(rows[kind, place]) for kind in kinds if (kind, place) in rows}
        name = f"which-model-{does}-{place.replace(' ', '-')}"
        for end, x in (("", "ms a photo"), ("-size", "million parameters")):
            points = {}
            for kind, (quality, row) in best.items():
                at = kinds[kind].parameters / 1e6 if end else kinds[kind].ms
                if isfinite(at):
                    points[f"{kind}: {row}"] = [(at, quality)]
            if len(points) > 1:  # one point compares nothing
                yield f"{name}{end}.png", Plot(f"{QUALITY[does]} on {place}, against {x}", x, points)


def recipe_of(record: ResultRecord, recipes: Path) -> Recipe | None:
    """The recipe of a record, without its changes; None where its row is no longer there."""
    table, _, row = record.address.partition("#")
    path = recipes / f"{table}.yaml"
    return read_recipe(path, row) if path.is_file() and row in read_rows(path) else None


def _set_of(record: ResultRecord, recipe: Recipe) -> str:
    """The photos, by the name of their set; recalls in folds are easier than among all."""
    name = SETS.get(record.data.captions[0].partition("/")[0], "other data")
    folds = recipe.evaluate.folds and "rsum" in record.metrics.mean
    return f"{name} in folds of {recipe.evaluate.fold_size:,}" if folds else name


def _sizes(speeds: Iterable[Speed], rows: Mapping[tuple[str, str], Sequence[tuple[float, str]]]) -> str:
    speeds = list(speeds)
    kinds = {one.kind for one in speeds}
    names = sorted({name for kind, name in rows if kind in kinds})
    cells = [["model", "parameters", "ms a photo", *names], ["---", "--:", "--:", *["---"] * len(names)]]
    for one in sorted(speeds, key=lambda speed: (speed.ms != speed.ms, speed.ms)):
        ms = f"{one.ms:.1f}" if isfinite(one.ms) else "not measured at this size"
        best = [_best(rows.get((one.kind, name), ())) for name in names]
        cells.append([one.kind, f"{one.parameters / 1e6:.1f} M", ms, *best])
    return _markdown(cells)


def _best(rows: Sequence[tuple[float, str]]) -> str:
    """The best row, and of how many: a kind with more rows had more chances."""
    if not rows:
        return "not measured"
    quality, name = max(rows)
    return f"{quality:.1f} ({name}{f', best of {len(rows)} rows' if len(rows) > 1 else ''})"


def _value(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return "–"
    mean = f"{statistics.fmean(known):.2f}"
    return mean if len(known) == 1 else f"{mean} ± {statistics.stdev(known):.2f}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in rows)


def _fragment(path: Path) -> str:
    """What people wrote; it is part of the page."""
    return path.read_text(encoding="utf-8").strip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    images = DOCS / "images" / "results"
    which, plots = which_page(DOCS / "results")
    pages = {DOCS / "results.md": results_page(DOCS / "results", images), DOCS / "which-model.md": which}
    old = [path for path, text in pages.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if check:
        for path in old:
            print(f"{path} is not what `python tools/results_pages.py` writes")
        return int(bool(old))
    for path, text in pages.items():
        write_text(path, text)
    images.mkdir(parents=True, exist_ok=True)
    for name, plot in {**plots, **sweeps(DOCS / "results")}.items():
        curves(plot.points, plot.title, plot.x, height=280).quantize(128).save(images / name, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
