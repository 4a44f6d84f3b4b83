"""Records of what was measured: one a row, small enough to be committed, with all that is needed to judge it.

`sightline reproduce` leaves a record in the folder of each run and, with the seeds of a row together, in OUT/records. A
record says what the features learned from; for R²M that must not be captions.
"""

import os
import platform
import re
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch

from sightline import __version__
from sightline.config import build
from sightline.errors import ConfigError, plural
from sightline.files import read_json, write_json
from sightline.training.data_config import DETECTOR as ENCODER
from sightline.training.new_model import CachedFeatures
from sightline.training.recipe import Recipe

RECORD = "record.json"  # in the folder of a run
RECORDS = "records"  # the folder of the records of all rows
NAMES = {"contrastive": "cl"}  # folder of recipes to what records and people call the paper
PAPERS = ("r2m", "pos-scan", "cl", "vsrn", "jran")
Comparable = Literal["yes", "other split", "other data", "other features"]
DECIMALS = 4  # of metrics in a record: more than papers print, few enough for a diff


@dataclass(frozen=True)
class RecipeRecord:
    """The recipe of a row."""

    name: str  # PAPER/TABLE#ROW, as `sightline reproduce` finds it
    fingerprint: str  # of the recipe with its changes, at its own seed
    changes: tuple[str, ...] = ()  # what was changed in it, as given


@dataclass(frozen=True)
class DataRecord:
    """What was read: files of captions, of sentences without photos, and how many photos were measured."""

    captions: tuple[str, ...]
    photos: int
    corpus: str = ""


@dataclass(frozen=True)
class Features:
    """A feature store, and the fingerprint of the vision model that made it."""

    name: str
    fingerprint: str


@dataclass(frozen=True)
class Metrics:
    """Metrics by name: the mean over seeds and, of several seeds, each in their order."""

    mean: dict[str, float]
    per_seed: tuple[dict[str, float], ...] = ()

    def of_seeds(self) -> tuple[dict[str, float], ...]:
        return self.per_seed or (self.mean,)


@dataclass(frozen=True)
class ResultRecord:
    """A row that was measured."""

    paper: str  # r2m, pos-scan, cl, vsrn or jran
    table: str  # such as table-1
    row: str  # of the table
    recipe: RecipeRecord  # by which it was trained and measured
    commit: str  # of the source tree; its version where it is in no repository
    seeds: tuple[int, ...]  # what was added to the recipe's own seed, one a run
    data: DataRecord  # what was read
    split: str  # on which it was measured, with the list of its photos
    features: Features  # that it read
    supervision: str  # what these learned from
    stage: str  # the last stage of its training
    metrics: Metrics  # as percentages, the mean over seeds
    published: dict[str, float]  # what the paper prints
    # whether the paper's numbers are of the same task; if not, the first reason why: other data, another split of it,
    # or other features
    comparable: Comparable
    minutes: float  # of one run, training and measuring, on this hardware with whatever else ran there
    hardware: str  # and the version of torch

    def __post_init__(self) -> None:
        if not self.recipe.fingerprint or not self.commit:
            raise ConfigError(f"{self.address} has no recipe or no commit", fix="run it again")
        if not self.supervision:
            fix = f"write one line into supervision.txt in {self.features.name or 'the feature store'}"
            raise ConfigError(f"nobody says what the features of {self.address} learned from", fix=fix)
        refuse_captions(self.paper, self.supervision)
        if len(self.metrics.of_seeds()) != len(self.seeds):
            raise ConfigError(f"{self.address} has other seeds than metrics", fix="collect it again")

    @property
    def address(self) -> str:
        return self.recipe.name

    @property
    def file(self) -> str:
        """Its name in a folder of records."""
        return f"{self.paper}-{self.table}-{re.sub(r'[^A-Za-z0-9.+-]+', '_', self.row)}.json"


def read_record(path: Path) -> ResultRecord:
    """Read a record strictly: a field that is missing, unknown or of another type is refused."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise ConfigError("this is no record", where=path, fix="give one that `sightline reproduce` wrote")
    return build(ResultRecord, values, where=path)


def read_records(folder: Path) -> list[ResultRecord]:
    """All records of a folder of the papers, each under the name it must have."""
    records = []
    for path in sorted(folder.glob("*-*.json")):
        record = read_record(path)
        if record.paper not in PAPERS:
            raise ConfigError(f"`paper` is {record.paper!r}", where=path, fix=f"choose one of {', '.join(PAPERS)}")
        if record.file != path.name:
            raise ConfigError(f"this record must be called {record.file}", where=path, fix="rename it")
        records.append(record)
    return records


def write_record(path: Path, record: ResultRecord) -> None:
    """Write a record, readable in a diff; one seed's metrics are written once."""
    values = asdict(record)
    if not record.metrics.per_seed:
        del values["metrics"]["per_seed"]
    write_json(path, values, indent=1)


def record_of(
    recipe: Recipe, address: str, changes: Sequence[str], seed: int, results: Mapping[str, Any], base: Path = Path()
) -> ResultRecord:
    """The record of one run of a recipe, `seed` added to its own.

    `results` holds metrics, split, photos, fingerprint (of the scenes), stage, minutes, commit and hardware.
    """
    table, _, row = address.partition("#")
    folder, _, table = table.partition("/")
    paper, data = NAMES.get(folder, folder), recipe.data
    read = DataRecord(
        tuple((data.root / path).as_posix() for path in data.caption_files),
        results["photos"],
        (data.root / data.corpus).as_posix() if data.corpus is not None else "",
    )
    name = data.features.as_posix() if data.features is not None and recipe.vision == CachedFeatures() else "photos"
    return ResultRecord(
        paper,
        table,
        row,
        RecipeRecord(address, replace(recipe, seed=recipe.seed - seed).fingerprint(), tuple(changes)),
        results["commit"],
        (seed,),
        read,
        split_name(recipe, results["split"]),
        Features(name, results["fingerprint"]),
        supervision(recipe, results["fingerprint"], base),
        results["stage"],
        Metrics(_rounded(results["metrics"])),
        dict(recipe.paper),
        comparable(paper, table, read),
        round(results["minutes"], 2),
        results["hardware"],
    )


def split_name(recipe: Recipe, split: str) -> str:
    """The split, and the list of its photos where the recipe names one."""
    data = recipe.data
    lists = [data.splits[name].as_posix() for name in getattr(data, split or "test") if name in data.splits]
    return f"{split} ({', '.join(lists)})" if lists else split


# On which photos the papers' tables are; Flickr30k's are not at hand (recipes/EXCLUDED.md).
_ON_FLICKR30K = {("pos-scan", name) for name in ("table-1", "table-2", "table-3", "fig-3")} | {("vsrn", "table-3")}


def comparable(paper: str, table: str, data: DataRecord) -> Comparable:
    """Whether a paper's numbers are of the same task. None of the papers' own features are at hand, so never `yes`.

    Whoever measures with a paper's own features on its own split writes `yes` by hand.
    """
    on_coco = all("coco" in Path(path).parts for path in data.captions)
    if paper == "r2m" or not on_coco or (paper, table) in _ON_FLICKR30K:
        return "other data"  # R²M: other sentences
    return "other split" if paper == "cl" else "other features"  # CL: its own 2,000 val photos, and test2014


def merge(runs: Sequence[ResultRecord]) -> ResultRecord:
    """The runs of a row with several seeds as one record."""
    runs = sorted(runs, key=lambda run: run.seeds)
    first = runs[0]
    for other in runs[1:]:
        for item in fields(ResultRecord):
            values = getattr(first, item.name), getattr(other, item.name)
            if values[0] != values[1] and item.name not in ("commit", "seeds", "metrics", "minutes", "hardware"):
                what = f"seeds {first.seeds[0]} and {other.seeds[0]} of {first.address} differ in {item.name}: "
                what += f"{values[0]}; {values[1]}"
                raise ConfigError(what, fix="run both with the same changes, or keep one of them")
    seeds = tuple(seed for run in runs for seed in run.seeds)
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"{first.address} has a seed twice", fix="keep one of them")
    per_seed = tuple(run.metrics.mean for run in runs)
    names = [name for name in per_seed[0] if all(name in metrics for metrics in per_seed)]
    mean = _rounded({name: statistics.fmean(metrics[name] for metrics in per_seed) for name in names})
    return replace(
        first,
        commit=" and ".join(dict.fromkeys(run.commit for run in runs)),
        seeds=seeds,
        metrics=Metrics(mean, per_seed if len(per_seed) > 1 else ()),
        minutes=round(statistics.fmean(run.minutes for run in runs), 2),
        hardware=" and ".join(dict.fromkeys(run.hardware for run in runs)),
    )


def collect(
    out: Path, change: Callable[[ResultRecord, Path], ResultRecord] = lambda record, folder: record
) -> list[ResultRecord]:
    """The records of all rows that were run in `out`, seeds together, by address.

    `change` may add to the record of a run what its folder tells.
    """
    rows: dict[str, list[ResultRecord]] = {}
    for path in sorted(out.rglob(RECORD)):
        record = change(read_record(path), path.parent)
        rows.setdefault(record.address, []).append(record)
    return [merge(runs) for _, runs in sorted(rows.items())]


def write_records(out: Path, folder: Path) -> list[ResultRecord]:
    """Write the records of all rows that were run in `out`; two rows never share a file."""
    records = collect(out)
    files = {record.file: record for record in records}
    if len(files) < len(records):
        raise ConfigError("two rows have records of the same name", fix="rename one of the rows")
    for name, record in files.items():
        write_record(folder / name, record)
    return records


def commit() -> str:
    """The commit of the source tree: what SIGHTLINE_COMMIT says, what git says, else the version."""
    if given := os.environ.get("SIGHTLINE_COMMIT"):
        return given
    package = Path(__file__).resolve().parents[1]

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", package, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) / "src" / "sightline" != package:
            return f"version {__version__}"  # installed somewhere in another project's repository
        changed = " with changes" if git("status", "--porcelain", "--", str(package)) else ""
        return git("rev-parse", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return f"version {__version__}"


def hardware(device: torch.device | str = "cpu") -> str:
    """The processor or GPU of a run, and the version of torch."""
    kind = torch.device(device)
    if kind.type == "cuda" and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name(kind)}, torch {torch.__version__}"
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", info.read_text(), re.MULTILINE) if info.is_file() else []
    chip = names[0] if names else platform.processor() or platform.machine()
    return f"{chip}, {plural(torch.get_num_threads(), 'thread')}, torch {torch.__version__}"


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(float(value), DECIMALS) for name, value in values.items()}


CARD = "supervision.txt"  # in a feature store: one line, what its vision model learned from
# fingerprints of scenes that the vision model that comes with Sightline makes (docs/model.md), and those with the grid
# averaged 2 · 2, as `data.encoder=detector` does
SHIPPED_VISION = ("1a9e93f62956d302", "137135cd471f0e43")
DETECTOR = (
    "ImageNet, COCO and Flickr8k training captions, machine boxes in their photos, Flickr30k Entities boxes and names "
    "of Flickr8k training photos"
)
STORES = {  # the end of a store's name to what its vision model learned from
    "-detector": DETECTOR,
    "-coco-boxes": "ImageNet, machine boxes in COCO training photos",
    "-lite2": "ImageNet",
}
CONCEPTS = dict.fromkeys(  # files of concepts that recipes name
    ("coco/pseudo_boxes.jsonl.gz", "flickr8k/boxes.jsonl.gz"),
    "boxes of COCO's classes by a detector trained on COCO's boxes",
)


def supervision(recipe: Recipe, fingerprint: str = "", base: Path = Path()) -> str:
    """What the features, and the concepts if they come from a file, learned from; "" where that is unknown.

    `fingerprint` is that of its scenes, `base` what the data's root is relative to.
    """
    data = recipe.data
    if recipe.vision != CachedFeatures():
        return "ImageNet, then trained with the row's own photos and captions"
    if data.features is None:
        return ""
    card = data.path(data.features, base) / CARD
    listed = next((source for end, source in STORES.items() if data.features.name.endswith(end)), "")
    features = card.read_text(encoding="utf-8").strip() if card.is_file() else listed
    if fingerprint in SHIPPED_VISION or data.encoder == ENCODER:
        features = DETECTOR  # whatever the store is called
    if not data.concept_files or not features:
        return features
    concepts = [_learned_concepts(path) for path in data.concept_files]
    return f"{features}; concepts: {', '.join(concepts)}" if all(concepts) else ""


def _learned_concepts(path: Path) -> str:
    """What a source of concepts learned from; "" where that is unknown."""
    store = next((f"names of classes by {source}" for end, source in STORES.items() if path.name.endswith(end)), "")
    return CONCEPTS.get(path.as_posix(), store)


def refuse_captions(paper: str, learned_from: str) -> None:
    """Refuse features of R²M, which learns without pairs, that learned from captions or from phrases of them."""
    if paper == "r2m" and any(word in learned_from.lower() for word in ("caption", "entities")):
        what = f"R²M learns without a pair of photo and caption, and its features learned from: {learned_from}"
        fix = "use features of a backbone that never learned from captions, such as features/coco-lite2"
        raise ConfigError(what, fix=fix)
