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
from math import nan
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from collect_results import DOCS, Compared, read_comparisons

from sightline.config import load_yaml
from sightline.draw.charts import curves
from sightline.files import read_json, write_text
from sightline.training.recipe import SHIPPED, Recipe, read_recipe, read_rows, shipped_recipes
from sightline.training.results import NAMES, PAPERS, Features, ResultRecord, read_records
from sightline.training.results_page import Line, Table

TITLES = {"r2m": "R²M", "pos-scan": "POS-SCAN", "cl": "Contrastive learning", "vsrn": "VSRN", "jran": "JRAN"}
FOLDERS = {paper: folder for folder, paper in NAMES.items()}
SETS = {"coco": "COCO", "flickr8k": "Flickr8k"}  # folder of captions: its name
PICTURES = 3  # a paper
QUALITY = {"captions": "CIDEr", "matching": "rsum"}
CLAIMED = ("self-retrieval R@1",)  # what rows are for, although their papers print no number of it beside them
OTHERS = ("CIDEr", "BLEU-4", "METEOR", "i2t R@1", "t2i R@1", "attention accuracy", "F1_all", "F1_loc")

RESULTS = """# Results

What was measured with the recipes that come with Sightline, beside what the papers print. This page is written by
`python tools/results_pages.py` from the records in `docs/results`, one a row; a record tells recipe, changes, commit,
seeds, data, features and what these learned from, minutes and hardware. To measure a row yourself:

```bash
sightline reproduce jran --table 1 --rows line-6-XE --dry        # what it would do, and what is missing
sightline reproduce jran --table 1 --rows line-6-XE --seeds 0 1 2
python tools/collect_results.py runs && python tools/results_pages.py
```

`tools/rows/flickr8k.yaml` lists the rows of Flickr8k below with the changes they were run with, thirteen at a time on a
GPU; `python tools/run_rows.py tools/rows/flickr8k.yaml --slots 13` runs them so again.

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
Parameters with {vocabulary:,} words. Milliseconds are CPU time for a photo whose features are there: captions by beam
{beam}, {words} words long; matching is the photo's vectors alone. {regions} regions, random weights of the recipes'
sizes (a product takes as long whatever is multiplied); {hardware}, {date}. The vision model's time comes on top, the
same for all. Quality is of rows measured on test, whatever they were trained with; a range is that of all rows of a
kind.
"""


@dataclass(frozen=True)
class Speed:
    """How large a kind of model is, and how long it takes for a photo whose features are there."""

    kind: str
    does: str
    parameters: int
    ms: float


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
        curve = sorted(images.glob(f"{paper}-{path.stem}-curves-*.png"))
        yield from (f"![Curves: {one.stem}](images/results/{one.name})" for one in curve)
    if ratios:
        yield _ratios(ratios, {record.address: record for record in records})
    yield from _pictures(paper, images)
    if lacking:
        yield f"Not run: {'; '.join(lacking)}."


def _title(path: Path) -> str:
    """The first sentence of what a recipe says about itself."""
    about = " ".join(str(load_yaml(path).get("about", "")).split())
    return re.split(r"[.?] ", about)[0].rstrip(".?")


def _table(records: Sequence[ResultRecord]) -> Iterator[str]:
    """The rows of a table that were measured, and what numbers alone do not tell."""
    lines = [Line(record.row, record.published, record.metrics.mean) for record in records]
    table = Table("", "", lines)
    metrics = table.metrics if any(line.paper for line in lines) else [one for one in OTHERS if one in table.metrics]
    metrics = [*metrics, *(name for name in CLAIMED if all(name in line.results for line in lines))]
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
        "Changed in the recipe": lambda one: ", ".join(f"`{change}`" for change in one.recipe.changes),
        "Hardware": lambda one: one.hardware,
        "Commit": lambda one: f"`{one.commit}`",
    }
    notes = [f"- {what}: {value}." for what, how in told.items() for value in _grouped(records, how)]
    yield "\n".join(notes)


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


def which_page(folder: Path, recipes: Path = SHIPPED) -> tuple[str, dict[str, dict[str, list[tuple[float, float]]]]]:
    """docs/which-model.md, and the points of its plots: file to line to points."""
    held = read_json(folder / "speed.json")
    speeds = {one["kind"]: Speed(**one) for one in held["models"]}
    plots: dict[str, dict[str, list[tuple[float, float]]]] = {}
    best: dict[tuple[str, str], list[float]] = {}
    for record in read_records(folder):
        recipe = recipe_of(record, recipes)
        speed = None if recipe is None else speeds.get(recipe.model.kind)
        quality = None if speed is None else record.metrics.mean.get(QUALITY[speed.does])
        if recipe is None or speed is None or quality is None or not record.split.startswith("test"):
            continue
        name = _set_of(record, recipe)
        line = plots.setdefault(f"which-model-{speed.does}-{name.replace(' ', '-')}.png", {}).setdefault(
            f"{speed.kind}, {record.stage}", []
        )
        line += [(nan, nan)] * bool(line) + [(speed.ms, quality)]  # a point that is not finite keeps points apart
        best.setdefault((speed.kind, name), []).append(quality)
    parts = [WHICH.strip(), _fragment(folder / "which-model.md")]
    for does, what in (("captions", "Captions: CIDEr"), ("matching", "Matching: the sum of six recalls, rsum")):
        parts += [f"## {what}", _sizes([one for one in speeds.values() if one.does == does], best)]
        shown = [name for name in sorted(plots) if name.startswith(f"which-model-{does}-")]
        parts += [f"![{what}, against milliseconds a photo: {one}](images/results/{one})" for one in shown]
    parts.append(CONDITIONS.strip().format(**held))
    return "\n\n".join(parts) + "\n", plots


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


def _sizes(speeds: Iterable[Speed], best: Mapping[tuple[str, str], Sequence[float]]) -> str:
    names = sorted({*SETS.values(), *(name for _, name in best)})
    cells = [["model", "parameters", "ms a photo", *names], ["---", "--:", "--:", *["--:"] * len(names)]]
    for one in sorted(speeds, key=lambda speed: speed.ms):
        ranges = [_range(best.get((one.kind, name), ())) for name in names]
        cells.append([one.kind, f"{one.parameters / 1e6:.1f} M", f"{one.ms:.1f}", *ranges])
    return _markdown(cells)


def _range(values: Sequence[float]) -> str:
    if not values:
        return "not measured"
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


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
    for name, series in plots.items():
        images.mkdir(parents=True, exist_ok=True)
        picture = curves(series, title=f"{QUALITY[name.split('-')[2]]} against ms a photo", x="ms a photo", height=280)
        picture.quantize(128).save(images / name, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
