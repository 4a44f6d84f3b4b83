"""Run the tables of a paper row by row: a row comes after those it starts from, learns from, or measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from sightline import __version__
from sightline.config import RENAMED
from sightline.data.concept_dictionary import NAMED
from sightline.devices import choose_device
from sightline.errors import ConfigError, SightlineError, plural
from sightline.files import MODEL, read_json, write_json
from sightline.text.vocabulary import SPECIALS
from sightline.training.checkpoint_finder import RUNS, Finder
from sightline.training.data import build_data
from sightline.training.data_config import DataConfig
from sightline.training.distributed import first_process, processes
from sightline.training.evaluation import measure
from sightline.training.launch import Callbacks, ReadData, data_root, launch, write_measurement
from sightline.training.new_model import outline
from sightline.training.recipe import SHIPPED, Recipe, Rows, build_row, read_rows, shipped_recipes
from sightline.training.recipe_captions import read_photos
from sightline.training.results import (
    NAMES,
    RECORD,
    commit,
    hardware,
    record_of,
    refuse_captions,
    supervision,
    write_record,
)
from sightline.training.stage import Stage

RESULTS = "results.json"
SHORT = {short: folder for folder, short in NAMES.items()}  # what a paper is also called, and its folder of recipes
State = Literal["trained", "measured", "finished before", "failed", "not run"]


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    table: str  # PAPER/TABLE
    name: str  # of the row
    recipe: Recipe  # with the changes that were asked for
    changes: tuple[str, ...] = ()  # those of them that it has a place for, as key=value
    seed: int = 0  # what was added to the seed of its recipe

    @property
    def address(self) -> str:
        return f"{self.table}#{self.name}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The addresses of the rows whose models it starts from, learns from, or measures."""
        return tuple(dict.fromkeys(_addresses(asdict(self.recipe), self.table)))

    def folder(self, out: Path) -> Path:
        """The folder of its run: OUT/PAPER/TABLE/ROW; with other seeds, seed-1 and so on below it."""
        return out / self.table / self.name / (f"seed-{self.seed}" if self.seed else "")

    def with_seed(self, seed: int) -> Row:
        """The row with `seed` added to its own, so that rows that differ in their seeds alone still do."""
        return replace(self, recipe=replace(self.recipe, seed=self.recipe.seed + seed - self.seed), seed=seed)


@dataclass(frozen=True)
class Outcome:
    """What became of a row."""

    row: Row  # the row
    state: State  # what was done
    why: str = ""  # it failed, or was not run
    results: dict[str, Any] = field(default_factory=dict)  # what its results.json holds


def tables_of(paper: str, folder: Path = SHIPPED) -> list[str]:
    """The tables of a paper, as PAPER/TABLE."""
    paper = SHORT.get(paper, paper)
    papers = sorted({path.parent.name for path in shipped_recipes(folder)})
    if paper not in papers:
        raise ConfigError(f"no recipes of {paper!r}", fix=f"choose one of {', '.join(papers)}")
    return [f"{paper}/{path.stem}" for path in shipped_recipes(folder) if path.parent.name == paper]


def choose(paper: str, table: str = "", rows: Sequence[str] = (), folder: Path = SHIPPED) -> list[str]:
    """Addresses of the rows that are asked for; a table is named 2, table-2 or fig-3."""
    paper = SHORT.get(paper, paper)
    tables = tables_of(paper, folder)
    if table:
        wanted = {f"{paper}/{table}", f"{paper}/table-{table}"}
        short = [name.partition("/")[2].removeprefix("table-") for name in tables]
        if not wanted & set(tables):
            raise ConfigError(f"{paper} has no recipe of table {table!r}", fix=f"choose one of {', '.join(short)}")
        tables = [name for name in tables if name in wanted]
    addresses = [f"{name}#{row}" for name in tables for row in read_rows(folder / f"{name}.yaml")]
    names = list(dict.fromkeys(address.partition("#")[2] for address in addresses))
    for row in rows:
        if row not in names:
            raise ConfigError(f"no row {row!r} in {', '.join(tables)}", fix=f"choose from {', '.join(names)}")
    return [address for address in addresses if not rows or address.partition("#")[2] in rows]


def plan(chosen: Sequence[str], changes: Sequence[str] = (), folder: Path = SHIPPED) -> list[Row]:
    """The chosen rows and all that they need, each after its needs.

    A change counts for the rows that have its key; ROW:KEY=VALUE for rows of that name alone.
    """
    ordered: dict[str, Row] = {}
    used: set[str] = set()
    rows_of = cache(read_rows)  # each file is read once

    def visit(address: str, path: tuple[str, ...]) -> None:
        """Add a row after what it needs; `path` leads from a chosen row to it."""
        if address in path:
            raise ConfigError(f"rows need each other in a circle: {' → '.join((*path, address))}")
        if address in ordered:
            return
        name = address.partition("#")[2]
        meant = {change: text for change in changes if (text := _meant_for(name, change))}
        row = _read_row(address, tuple(meant.values()), folder, rows_of)
        used.update(change for change, text in meant.items() if text in row.changes)
        for need in row.needs:
            visit(need, (*path, address))
        ordered[address] = row

    for address in chosen:
        visit(address, ())
    for change in changes:
        if change not in used:
            row_name, _, key = change.partition("=")[0].rpartition(":")
            names = [row.name for row in ordered.values()]
            if row_name and row_name not in names:
                raise ConfigError(f"{change!r} is for a row that is not run", fix=f"choose from {', '.join(names)}")
            new = [RENAMED[part] for part in key.split(".") if part in RENAMED]
            hint = f"it is called `{new[0]}` now; " if new else ""
            raise ConfigError(f"no row has the key of {change!r}", fix=f"{hint}a recipe.yaml of a run shows all keys")
    return list(ordered.values())


def _meant_for(name: str, change: str) -> str:
    """A change as key=value where it is meant for the row `name`; "" where it is for another one."""
    key, equals, value = change.partition("=")
    row, colon, key = key.rpartition(":")
    return "" if colon and row != name else f"{key}{equals}{value}"


def _read_row(address: str, changes: Sequence[str], folder: Path, rows_of: Callable[[Path], Rows]) -> Row:
    """The row at an address, with the changes that it has a place for."""
    table, _, name = address.partition("#")
    path = folder / f"{table}.yaml"
    if not path.is_file():
        raise ConfigError(f"there is no recipe {table}", where=address, fix="correct the name")
    recipe = build_row(rows_of(path), name, path)
    fitting = tuple(change for change in changes if _has(recipe, change.partition("=")[0].split(".")))
    return Row(table, name, build_row(rows_of(path), name, path, fitting) if fitting else recipe, fitting)


def _has(node: Any, keys: Sequence[str]) -> bool:
    """True where a tree of dataclasses and mappings has a place for a value under `keys`."""
    if not keys:
        return True
    if is_dataclass(node):
        return any(item.name == keys[0] for item in fields(node)) and _has(getattr(node, keys[0]), keys[1:])
    if isinstance(node, Mapping):
        if keys[0] in node:
            return _has(node[keys[0]], keys[1:])
        return len(keys) == 1 and not any(is_dataclass(value) or value is None for value in node.values())  # stages
    return False


def _addresses(value: Any, table: str) -> Iterator[str]:
    """All `row:` and `recipe:` names in plain values, as addresses."""
    if isinstance(value, str):
        kind, colon, rest = value.partition(":")
        if colon and kind == "row":
            yield f"{table}#{rest}"
        elif colon and kind == "recipe":
            yield rest
    elif isinstance(value, (Mapping, list, tuple)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _addresses(part, table)


def run(
    rows: Sequence[Row],
    out: Path = RUNS,
    device: str = "auto",
    *,
    base: Path | None = None,
    callbacks: Callable[[Row], Callbacks] = lambda row: Callbacks(),
    tell: Callable[[Outcome], None] = lambda outcome: None,
    read: ReadData = build_data,
) -> list[Outcome]:
    """Run rows, as `plan` orders them, each in OUT/PAPER/TABLE/ROW; `tell` is called with each outcome.

    One that is finished is not run again; where one fails, those that need it are left out. `read` gives the data that
    is trained on.
    """
    outcomes: dict[str, Outcome] = {}
    for row in rows:
        lost = [need for need in row.needs if need in outcomes and outcomes[need].state in ("failed", "not run")]
        if lost:
            outcome = Outcome(row, "not run", f"it needs {' and '.join(lost)}")
        else:
            outcome = _run(row, out, device, base or data_root(), callbacks(row), read)
        outcomes[row.address] = outcome
        tell(outcome)
    return list(outcomes.values())


def _run(row: Row, out: Path, device: str, base: Path, callbacks: Callbacks, read: ReadData) -> Outcome:
    folder = row.folder(out)
    if (before := finished_run(row, out)) is not None:
        return Outcome(row, "finished before", results=before)
    since = time.perf_counter()
    try:
        if row.recipe.measure:
            measured = _measure(row, folder, device, base, callbacks)
        else:
            measured = _train(row, folder, device, base, callbacks, read)
    except SightlineError as error:
        return Outcome(row, "failed", str(error))
    except Exception as error:  # out of memory, a defect: the other rows are none the worse
        return Outcome(row, "failed", f"{type(error).__name__}: {error}")
    results = {
        "row": row.address,
        "recipe": row.recipe.fingerprint(),
        "changes": list(row.changes),
        **measured,
        "paper": row.recipe.paper,
        "seconds": round(time.perf_counter() - since, 1),
        "sightline": __version__,
        "commit": commit(),
        "seed": row.recipe.seed,
    }
    if first_process():
        write_json(folder / RESULTS, results, indent=2)
        try:
            values = {**results, "minutes": results["seconds"] / 60}
            write_record(folder / RECORD, record_of(row.recipe, row.address, row.changes, row.seed, values, base))
        except ConfigError as error:  # what must not be a record, such as R²M from captions, stays a result
            callbacks.say(f"{row.address} leaves no record: {error}")
    return Outcome(row, "measured" if row.recipe.measure else "trained", results=results)


def finished_run(row: Row, out: Path) -> dict[str, Any] | None:
    """The results of a row that was run to its end with the same recipe."""
    folder = row.folder(out)
    if not (folder / RESULTS).is_file() or not (row.recipe.measure or (folder / MODEL).is_file()):
        return None
    results = read_json(folder / RESULTS)
    return results if isinstance(results, dict) and results.get("recipe") == row.recipe.fingerprint() else None


def _train(row: Row, folder: Path, device: str, base: Path, callbacks: Callbacks, read: ReadData) -> dict[str, Any]:
    trained = launch(row.recipe, folder, device, name=row.table, base=base, callbacks=callbacks, read=read)
    card, split = trained.card, trained.card["measured on"]
    photos = 0 if split is None else card["data"]["counts"][split]["photos"]
    return {
        "split": split,
        "photos": photos,
        "metrics": card["metrics"],
        "fingerprint": trained.fingerprint,
        "stage": row.recipe.stage_list()[-1].name,
        "hardware": hardware(choose_device(device)),
    }


def _measure(row: Row, folder: Path, device: str, base: Path, callbacks: Callbacks) -> dict[str, Any]:
    recipe = row.recipe
    with processes(device) as place:
        find = Finder(folder, row.table, device=place)
        members = [find(name) for name in recipe.measure]
        measured = measure(members, recipe.data, recipe.evaluate, base=base)
    for sentence in measured.notes:
        callbacks.say(sentence)
    if first_process():
        write_measurement(folder, measured)
    stages = members[0].card.get("recipe", {}).get("stages", {})
    return {
        "split": measured.split,
        "photos": measured.photos,
        "metrics": measured.metrics,
        "fingerprint": measured.fingerprint,
        "stage": next((name for name, stage in reversed(stages.items()) if stage is not None), ""),
        "hardware": hardware(place),
    }


@dataclass(frozen=True)
class Check:
    """What would happen if a row were run."""

    stages: dict[str, str] = field(default_factory=dict)  # name to how long it takes, in words
    missing: tuple[Path, ...] = ()  # files and folders that are not there
    wrong: tuple[str, ...] = ()  # what would fail, or leave no record

    @property
    def good(self) -> bool:
        return not self.missing and not self.wrong


class Checker:
    """Checks rows; captions that several rows share are read once. `base` is what the data's root is relative to."""

    def __init__(self, base: Path) -> None:
        self.base, self._counts = base, dict[str, tuple[int, int]]()

    def __call__(self, recipe: Recipe, paper: str) -> Check:
        """Build the model of a row, look for its files, count its steps."""
        paths = dict.fromkeys(recipe.data.path(path, self.base) for path in files_of(recipe))
        missing = tuple(path for path in paths if not path.exists())
        counted = not any(recipe.data.path(path, self.base) in missing for path in captions_of(recipe.data))
        try:
            refuse_captions(paper, supervision(recipe, base=self.base))
            outline(recipe.model, len(SPECIALS))
            stages = {stage.name: self.length(stage, recipe.data, counted) for stage in recipe.stage_list()}
        except SightlineError as error:
            return Check({}, missing, (str(error),))
        return Check(stages, missing)

    def length(self, stage: Stage, data: DataConfig, counted: bool = True) -> str:
        """How long a stage takes. Steps of an epoch are counted before photos without features are left out."""
        if stage.steps:
            return plural(stage.steps, "step")
        epochs = plural(stage.epochs, "epoch")
        if stage.batch.pool != "train" or not counted:
            return epochs
        photos, sentences = self._count(data)
        batches = max(1, (sentences if stage.batch.of == "pairs" else photos) // stage.batch.size)
        return f"{epochs} of {plural(max(1, batches // stage.accumulate), 'step')}"

    def _count(self, data: DataConfig) -> tuple[int, int]:
        key = str((data.root, data.captions, data.splits, data.shares, data.images, data.train, data.max_photos))
        if key not in self._counts:
            photos = read_photos(data, self.base, []).get("train", ())[: data.max_photos or None]
            self._counts[key] = len(photos), sum(len(photo.sentences) for photo in photos)
        return self._counts[key]


def captions_of(data: DataConfig) -> Iterator[Path]:
    """The files that tell how many photos and captions there are."""
    yield from data.caption_files
    yield from data.splits.values()


def files_of(recipe: Recipe) -> Iterator[Path]:
    """Every file and folder that a row reads; features that will be made from photos are not needed before."""
    data = recipe.data
    yield from captions_of(data)
    features = None if data.encoder else data.features
    read = (data.images, data.boxes, features, *data.concept_files, data.corpus, data.grounding)
    boxed = () if data.boxed is None else (data.boxed.images, data.boxed.boxes, data.boxed.photos)
    yield from (path for path in (*read, *boxed) if path is not None)
    if data.dictionary not in NAMED:
        yield Path(data.dictionary)
    for name in (recipe.start, *recipe.measure):
        if name and not name.startswith(("row:", "recipe:")):
            yield Path.cwd() / name
