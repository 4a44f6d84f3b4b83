"""Recipes: one YAML per table of a paper, a `base` and named `rows` of changes to it; a row is a `Recipe`.

A figure has an `axis` too: what is drawn from left to right. Its rows are named by their place on it.
"""

import json
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from sightline.config import build, load_yaml, merge, override, with_new_names, with_old_names
from sightline.errors import ConfigError
from sightline.files import PathLike, fingerprint
from sightline.models.model_configs import ModelConfig
from sightline.training.data_config import DataConfig
from sightline.training.evaluation import Evaluation
from sightline.training.new_model import CachedFeatures, Vision
from sightline.training.stage import Stage

SHIPPED = Path(str(files("sightline.training"))) / "recipes"
Rows = dict[str, dict[str, Any]]  # of a recipe file, by name


@dataclass(frozen=True)
class Recipe:
    """One row of a table: a model, the data, and the stages of its training."""

    model: ModelConfig  # what is trained
    data: DataConfig  # on what
    stages: dict[str, Stage | None]  # by name, in order; a row can change one, or drop one with null
    # features that were made before (`cached`), or a backbone that sees the photos at every step (`grid`)
    vision: Vision = field(default_factory=CachedFeatures)
    # the model to start from: `row:NAME` of the same table, `recipe:PAPER/TABLE#NAME`, or a path. "" starts from random
    # weights.
    start: str = ""
    # where the bias of a captioner's output layer starts, if `start` is "": at the log `frequencies` of words in the
    # training captions (or the corpus), or at `zero`
    output_bias: Literal["frequencies", "zero"] = "frequencies"
    # instead of training: the trained models, named like `start`, that are measured here in another way or on another
    # split. Several are measured together, by the mean of their scores or probabilities.
    measure: tuple[str, ...] = ()
    evaluate: Evaluation = field(default_factory=Evaluation)  # how it is measured
    seed: int = 0  # of everything random
    paper: dict[str, float] = field(default_factory=dict)  # what the paper's table says of this row, by metric

    def stage_list(self) -> list[Stage]:
        """The stages that are there, each knowing its name; none where trained models are measured."""
        stages = {} if self.measure else self.stages
        return [replace(stage, name=name) for name, stage in stages.items() if stage is not None]

    def fingerprint(self) -> str:
        """A short name for all that decides the result.

        The paper's numbers do not, nor how features were extracted (a run knows the vision model's own fingerprint) or
        are kept.
        """
        kept = DataConfig()
        data = replace(self.data, images=kept.images, encoder=kept.encoder, cache=kept.cache, budget=kept.budget)
        values = asdict(replace(self, paper={}, data=data))
        if self.vision == CachedFeatures():
            del values["vision"]
        if self.output_bias == "frequencies":
            del values["output_bias"]
        return fingerprint(json.dumps(with_old_names(values), default=str, sort_keys=True))


def read_recipe(path: PathLike, row: str | None = None, overrides: Sequence[str] = ()) -> Recipe:
    """One row of a recipe file with `key=value` overrides; without a name, the only row there is."""
    rows = read_rows(path)
    if row is None and len(rows) > 1:
        raise ConfigError("the recipe has several rows", where=path, fix=f"name one of {', '.join(rows)}")
    return build_row(rows, next(iter(rows)) if row is None else row, path, overrides)


def build_row(rows: Rows, name: str, path: PathLike, overrides: Sequence[str] = ()) -> Recipe:
    """One of the rows of a recipe file that was read from `path`."""
    if name not in rows:
        raise ConfigError(f"no row {name!r}", where=path, fix=f"choose one of {', '.join(rows)}")
    return build(Recipe, override(rows[name], overrides), where=f"{path}, row {name}")


def read_run_recipe(path: PathLike) -> Recipe:
    """The recipe that a run left in its folder, also one of a version that had other names for its keys."""
    (values,) = read_rows(path).values()
    return build(Recipe, with_new_names(values), where=str(path))


def shipped_recipes(folder: Path = SHIPPED) -> Iterator[Path]:
    yield from sorted(folder.rglob("*.yaml"))


def read_rows(path: PathLike) -> Rows:
    """Every row of a recipe file, each its base with the row's changes; a file without rows has one, called `base`."""
    values = load_yaml(path)
    unknown = [key for key in values if key not in ("about", "axis", "base", "rows")]
    if unknown:
        raise ConfigError(f"unknown key `{unknown[0]}`", where=path, fix="a recipe has about, axis, base and rows")
    base, rows = values.get("base") or {}, values.get("rows") or {"base": {}}
    for name, part in (("rows", rows), ("base", base), *(rows.items() if isinstance(rows, dict) else ())):
        if not isinstance(part, dict):
            raise ConfigError(f"`{name}` is {reprlib.repr(part)}", where=path, fix="give a mapping of keys to values")
    return {str(name): merge(base, changes) for name, changes in rows.items()}
