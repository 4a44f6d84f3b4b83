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
    """Finds `start`, `row:NAME` of the same table, `recipe:PAPER/TABLE#NAME`, or a path. Each call loads it anew."""

    # the folder of the run that asks. Rows of its table are its neighbours, other tables lie beside its table:
    # runs/PAPER/TABLE/ROW. A run in ROW/seed-1 finds the runs of other rows with that seed.
    out: Path
    recipe: str = "RECIPE"  # how a command names the recipe that asks
    start: str = ""  # what the recipe starts from
    device: torch.device | str = "cpu"  # where models are loaded

    def __call__(self, name: str) -> Checkpoint:
        if name == "start":
            if not self.start:
                what = "`start` is the model a recipe starts from, and this one starts from random weights"
                raise ConfigError(what, fix="set the recipe's `start`, or name another model")
            return self(self.start)
        seed = self.out.name if SEED.fullmatch(self.out.name) else ""  # runs with the recipe's own seed have no folder
        here = self.out.absolute().parent if seed else self.out.absolute()  # the folder of the row that asks
        kind, colon, rest = name.partition(":")
        if colon and kind == "row":
            return self._run(here.parent / rest / seed, self.recipe, rest)
        if colon and kind == "recipe":
            table, sharp, row = rest.partition("#")
            if not sharp or not table or not row:
                raise ConfigError(f"`{name}` names no row", fix="write recipe:PAPER/TABLE#ROW")
            beside = here.parents[min(2, len(here.parents) - 1)]
            folders = [folder / table / row / seed for folder in (beside, RUNS)]
            folder = next((folder for folder in folders if (folder / MODEL).is_file()), folders[-1])
            return self._run(folder, table, row)
        return self._load(model_file(name))

    def _run(self, folder: Path, recipe: str, row: str) -> Checkpoint:
        if not (folder / MODEL).is_file():
            begun = "is not finished" if (folder / RECIPE).is_file() else "has not been trained"
            fix = shlex.join(["sightline", "train", recipe, row, "--out", str(folder)])
            raise CheckpointError(f"the row {row} {begun}", where=folder, fix=fix)
        return self._load(folder / MODEL)

    def _load(self, path: Path) -> Checkpoint:
        from sightline.checkpoint.model_checkpoint import load

        return load(path, self.device)
