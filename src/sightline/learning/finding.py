"""Which checkpoint a name in a recipe stands for."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.errors import CheckpointError, ConfigError

if TYPE_CHECKING:  # the commands read the names below before PyTorch is needed
    import torch

    from sightline.checkpoint import Checkpoint

MODEL = "model.safetensors"  # in the folder of a run that is done
RUNS = Path("runs")


@dataclass(frozen=True)
class Finder:
    """Finds `start`, `row:NAME` of the same table, `recipe:PAPER/TABLE#NAME`, or a path. Each call loads it anew.

    Attributes:
        out: the folder of the run that asks. Rows of its table are its neighbours, other tables lie beside its table:
            runs/PAPER/TABLE/ROW.
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
                raise ConfigError(
                    "`start` is the model a recipe starts from, and this one starts from random weights",
                    fix="set the recipe's `start`, or name another model",
                )
            return self(self.start)
        kind, colon, rest = name.partition(":")
        if colon and kind == "row":
            return self._run(self.out.absolute().parent / rest, self.recipe, rest)
        if colon and kind == "recipe":
            return self._other(rest)
        return self._load(Path(name) / MODEL if Path(name).is_dir() else Path(name))

    def _other(self, rest: str) -> Checkpoint:
        table, sharp, row = rest.partition("#")
        if not sharp or not table or not row:
            raise ConfigError(f"`recipe:{rest}` names no row", fix="write recipe:PAPER/TABLE#ROW")
        beside = self.out.absolute().parents[min(2, len(self.out.absolute().parents) - 1)]
        folders = [folder / table / row for folder in (beside, RUNS)]
        found = next((folder for folder in folders if (folder / MODEL).is_file()), RUNS / table / row)
        return self._run(found, table, row)

    def _run(self, folder: Path, recipe: str, row: str) -> Checkpoint:
        if not (folder / MODEL).is_file():
            begun = "is not finished" if (folder / "recipe.yaml").is_file() else "has not been trained"
            raise CheckpointError(
                f"the row {row} {begun}",
                where=folder,
                fix=shlex.join(["sightline", "train", recipe, row, "--out", str(folder)]),
            )
        return self._load(folder / MODEL)

    def _load(self, path: Path) -> Checkpoint:
        from sightline.checkpoint import load

        return load(path, self.device)
