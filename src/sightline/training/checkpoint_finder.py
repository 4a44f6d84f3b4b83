"""Load the checkpoint that a name in a recipe stands for."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.errors import CheckpointError, ConfigError
from sightline.files import MODEL, RECIPE, model_file

if TYPE_CHECKING:  # the commands read the names below before PyTorch is needed
    import torch

    from sightline.checkpoint.model_checkpoint import Checkpoint

RUNS = Path("runs")
SEED = re.compile(r"seed-\d+")  # folders of a row's runs with other seeds than its own


@dataclass(frozen=True)
class Finder:
    """Finds `start`, `row:NAME` of the same table, `recipe:PAPER/TABLE#NAME`, or a path. Each call loads it anew.

    Attributes:
        out: the folder of the run that asks. Rows of its table are its neighbours, other tables lie beside its table:
            runs/PAPER/TABLE/ROW. A run in ROW/seed-1 finds the runs of other rows with that seed.
        recipe: how a command names the recipe that asks.
        start: what the recipe starts from.
        device: where models are loaded.
    """

    out: Path
    recipe: str = "RECIPE"
    start: str = ""
    device: torch.device | str = "cpu"

    def __call__(self, name: str) -> Checkpoint:
        """The checkpoint, or an error that tells which command makes it."""
        if name == "start":
            if not self.start:
                what = "`start` is the model a recipe starts from, and this one starts from random weights"
                raise ConfigError(what, fix="set the recipe's `start`, or name another model")
            return self(self.start)
        kind, colon, rest = name.partition(":")
        if colon and kind == "row":
            return self._run(self._row.parent / rest / self._seed, self.recipe, rest)
        if colon and kind == "recipe":
            return self._other(rest)
        return self._load(model_file(name))

    def _other(self, rest: str) -> Checkpoint:
        table, sharp, row = rest.partition("#")
        if not sharp or not table or not row:
            raise ConfigError(f"`recipe:{rest}` names no row", fix="write recipe:PAPER/TABLE#ROW")
        beside = self._row.parents[min(2, len(self._row.parents) - 1)]
        folders = [folder / table / row / self._seed for folder in (beside, RUNS)]
        folder = next((folder for folder in folders if (folder / MODEL).is_file()), folders[-1])
        return self._run(folder, table, row)

    @property
    def _seed(self) -> str:
        """The folder of the seed below those of rows; "" for the runs that lie in the rows' own folders."""
        return self.out.name if SEED.fullmatch(self.out.name) else ""

    @property
    def _row(self) -> Path:
        return self.out.absolute().parent if self._seed else self.out.absolute()

    def _run(self, folder: Path, recipe: str, row: str) -> Checkpoint:
        if not (folder / MODEL).is_file():
            begun = "is not finished" if (folder / RECIPE).is_file() else "has not been trained"
            fix = shlex.join(["sightline", "train", recipe, row, "--out", str(folder)])
            raise CheckpointError(f"the row {row} {begun}", where=folder, fix=fix)
        return self._load(folder / MODEL)

    def _load(self, path: Path) -> Checkpoint:
        from sightline.checkpoint.model_checkpoint import load

        return load(path, self.device)
