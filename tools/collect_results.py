"""Collect what `sightline reproduce` measured into docs/results: a record a row, ratios between rows, curves.

    python tools/collect_results.py RUNS [RUNS …] [--out docs/results]
    python tools/results_pages.py

RUNS are folders that `sightline reproduce --out` filled. A row's seeds become one record. Ratios are those that
docs/results/comparisons.yaml names, by paired bootstrap over the photos that both rows were measured on; those of pairs
neither of whose rows is in RUNS stay as they are. What each photo adds to the compared metrics of a row is kept in
docs/results/scores, so that rows of another day can be compared with it, and its curve of training in
docs/results/curves. Pictures of the curves go to docs/images/results.

METEOR, whose data a machine may lack, is computed here from the captions of a run; their references are read below the
folder that SIGHTLINE_DATA names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sightline.cli.reproduce_command import legible
from sightline.config import build
from sightline.draw.charts import curves
from sightline.errors import SightlineError
from sightline.files import read_json, write_json
from sightline.metrics.bootstrap import PRECISION, RECALL, Interval, PerImage, compare, pool_seeds
from sightline.metrics.scorecard import scorecard
from sightline.training.launch import CAPTIONS, PER_IMAGE, data_root
from sightline.training.recipe_captions import read_captions
from sightline.training.results import DECIMALS, RECORD, Metrics, ResultRecord, collect, read_record, write_record
from sightline.training.results_page import Points, curves_of

DOCS = Path(__file__).parents[1] / "docs"
PAIRS, COMPARISONS = "comparisons.yaml", "comparisons.json"
SCORES = "scores"  # the folder of what photos add to compared metrics, a file a row
CURVES = "curves"  # the folder of what models were chosen by, a file a row
SHOWN = ("CIDEr", "rsum")  # what curves show: what models are chosen by on val


@dataclass(frozen=True)
class Pair:
    """Two rows to compare, PAPER/TABLE#ROW each."""

    row: str
    base: str
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Curve:
    """A quantity of a stage, by step."""

    stage: str
    quantity: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Compared:
    """A ratio that was computed, with the fingerprints of the recipes of both rows."""

    row: str
    base: str
    metric: str
    ratio: Interval
    difference: Interval
    photos: int
    recipes: tuple[str, str]


def read_pairs(folder: Path) -> list[Pair]:
    values = yaml.safe_load((folder / PAIRS).read_text(encoding="utf-8"))
    return [build(Pair, one, where=folder / PAIRS) for one in values]


def read_comparisons(folder: Path) -> list[Compared]:
    path = folder / COMPARISONS
    return [build(Compared, one, where=path) for one in read_json(path)] if path.is_file() else []


def with_meteor(record: ResultRecord, run: Path) -> ResultRecord:
    """The record of one run, with METEOR of the captions that it wrote."""
    if "METEOR" in record.metrics.mean or not (run / CAPTIONS).is_file():
        return record
    references = references_of(tuple(data_root() / path for path in record.data.captions))
    score = scorecard(read_json(run / CAPTIONS), references, ("meteor",)).scores.corpus["METEOR"]
    return replace(record, metrics=Metrics({**record.metrics.mean, "METEOR": round(100 * score, DECIMALS)}))


@cache
def references_of(files: tuple[Path, ...]) -> dict[str, list[str]]:
    """What people wrote of each photo."""
    return {photo.id: [one.text for one in photo.sentences] for file in files for photo in read_captions(file)}


def scores_of(runs: Sequence[Path]) -> dict[str, PerImage]:
    """Scores by photo of each row, its seeds together."""
    found: dict[str, list[PerImage]] = {}
    for path in sorted(path for folder in runs for path in folder.rglob(RECORD)):
        if (path.parent / PER_IMAGE).is_file():
            found.setdefault(read_record(path).address, []).append(PerImage.read(path.parent / PER_IMAGE))
    return {address: pool_seeds(seeds) for address, seeds in found.items()}


def scores_file(out: Path, record: ResultRecord) -> Path:
    return (out / SCORES / record.file).with_suffix(".npz")


def keep_scores(out: Path, record: ResultRecord, scores: PerImage | None, pairs: Sequence[Pair]) -> None:
    """Keep the scores of the metrics by which a row is compared; without any, those of an earlier run go."""
    metrics = {metric for pair in pairs if record.address in (pair.row, pair.base) for metric in pair.metrics}
    names = {metric + part for metric in metrics for part in ("", PRECISION, RECALL)}
    shares = {} if scores is None else {name: share for name, share in scores.shares.items() if name in names}
    if scores is None or not shares:
        scores_file(out, record).unlink(missing_ok=True)
        return
    scores_file(out, record).parent.mkdir(exist_ok=True)
    PerImage(scores.ids, shares).write(scores_file(out, record))


def kept_scores(out: Path, records: Mapping[str, ResultRecord]) -> dict[str, PerImage]:
    """The scores by photo that were kept of these rows."""
    files = {address: scores_file(out, record) for address, record in records.items()}
    return {address: PerImage.read(path) for address, path in files.items() if path.is_file()}


def compared(pair: Pair, scores: Mapping[str, PerImage], records: Mapping[str, ResultRecord]) -> list[Compared]:
    """The ratios of a pair, or a sentence on stderr why there are none."""
    found = []
    for metric in pair.metrics:
        try:
            one = compare(scores[pair.base], scores[pair.row], metric)
        except (KeyError, SightlineError) as error:
            print(f"{pair.row} / {pair.base}, {metric}: no ratio: {error}", file=sys.stderr)
            continue
        recipes = records[pair.row].recipe.fingerprint, records[pair.base].recipe.fingerprint
        ratio, difference = (_rounded(value) for value in (one.ratio, one.difference))
        found.append(Compared(pair.row, pair.base, metric, ratio, difference, len(scores[pair.row].ids), recipes))
    return found


def _rounded(value: Interval) -> Interval:
    return Interval(*(round(number, 4) for number in (value.score, value.low, value.high)))


def up_to_date(one: Compared, records: Mapping[str, ResultRecord]) -> bool:
    """Whether both rows still have the recipes whose models were compared."""
    held = tuple(records[name].recipe.fingerprint if name in records else "" for name in (one.row, one.base))
    return held == one.recipes


def keep_curves(runs: Sequence[Path], out: Path) -> set[str]:
    """Keep what each row's models were chosen by on val, step by step; gives the tables it was of, as PAPER-TABLE."""
    tables = set()
    for path in sorted(path for folder in runs for path in folder.rglob(RECORD)):
        record = read_record(path)
        if record.seeds != (0,):
            continue
        found = curves_of(path.parent)
        shown = {key: points for key, points in found.items() if key[1].removeprefix("val ") in SHOWN}
        kept = [Curve(*key, tuple(points)) for key, points in shown.items() if len(points) > 1]
        (out / CURVES / record.file).unlink(missing_ok=True)
        if kept:
            (out / CURVES).mkdir(parents=True, exist_ok=True)
            write_json(out / CURVES / record.file, [asdict(curve) for curve in kept])
            tables.add(f"{record.paper}-{record.table}")
    return tables


def draw_curves(tables: Collection[str], out: Path, images: Path) -> None:
    """Small pictures of these tables: the curves that were kept of all their rows."""
    series: dict[tuple[str, str, str], dict[str, Points]] = {}
    for path in sorted((out / CURVES).glob("*.json")):
        record = read_record(out / path.name)
        if (table := f"{record.paper}-{record.table}") in tables:
            for one in read_json(path):
                curve = build(Curve, one, where=path)
                series.setdefault((table, curve.stage, curve.quantity), {})[record.row] = list(curve.points)
    images.mkdir(parents=True, exist_ok=True)
    for (table, stage, quantity), lines in series.items():
        name = f"{table}-curves-{stage}-{quantity.removeprefix('val ')}"
        for old in images.glob(f"{name}-*.png"):
            old.unlink()
        for number, part in enumerate(legible(lines), 1):
            picture = curves(part, title=f"{quantity}, {stage}", x="step", width=640, height=240)
            picture.quantize(128).save(images / f"{name}-{number}.png", optimize=True)  # a fifth of the size


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=DOCS / "results")
    parser.add_argument("--images", type=Path, default=DOCS / "images" / "results")
    options = parser.parse_args(arguments)
    records: dict[str, ResultRecord] = {}
    for folder in options.runs:
        for record in collect(folder, with_meteor):
            if record.address in records:
                raise SystemExit(f"{record.address} is in two of the folders")
            records[record.address] = record
    pairs, scores = read_pairs(options.out), scores_of(options.runs)
    for record in records.values():
        write_record(options.out / record.file, record)
        keep_scores(options.out, record, scores.get(record.address), pairs)
    everything = {one.address: one for one in map(read_record, sorted(options.out.glob("*-*.json")))}
    scores |= kept_scores(options.out, {name: one for name, one in everything.items() if name not in records})
    new = [pair for pair in pairs if {pair.row, pair.base} & set(records)]
    here = [pair for pair in new if pair.row in scores and pair.base in scores]
    kept = [one for one in read_comparisons(options.out) if not {one.row, one.base} & set(records)]
    found = [one for one in kept if up_to_date(one, everything)]
    found += [one for pair in here for one in compared(pair, scores, everything)]
    order = [(pair.row, pair.base) for pair in pairs]
    listed = sorted(
        (one for one in found if (one.row, one.base) in order), key=lambda one: order.index((one.row, one.base))
    )
    values: list[dict[str, Any]] = [asdict(one) for one in listed]
    write_json(options.out / COMPARISONS, values, indent=1)
    draw_curves(keep_curves(options.runs, options.out), options.out, options.images)
    print(f"{len(records)} records and {len(values)} ratios in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
