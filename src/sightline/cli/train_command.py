"""`sightline train`: a recipe, or your own photos, to a trained model."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sightline.cli.console import Arg, show
from sightline.errors import ConfigError
from sightline.files import MODEL, RECIPE
from sightline.training.checkpoint_finder import RUNS

if TYPE_CHECKING:  # what brings PyTorch is imported once there is something to train
    from sightline.training.auto_recipe import OwnData
    from sightline.training.recipe import Recipe
    from sightline.training.run_log import Reporter

# What a kind of model may be trained on, for the error about one without data; "" is all others.
_DATA = {"": "--images photos/ --captions captions.csv", "r2m": "--corpus my.txt"}


def train(
    recipe: str,
    settings: Annotated[tuple[str, ...], Arg("[ROW] [KEY=VALUE …]")] = (),
    *,
    out: Path | None = None,
    device: str = "auto",
    seed: int | None = None,
    allow_missing: bool = False,
    images: Path | None = None,
    captions: Path | None = None,
    corpus: Path | None = None,
    features: Path | None = None,
    concepts: Path | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Train a model: a row of a recipe, or a kind of model on your own photos or text.

    A shipped recipe, or a file; your photos with captions; your photos without captions; your text alone:

        sightline train jran/table-1 line-1-XE stages.cross-entropy.epochs=10
        sightline train updown --images photos/ --captions captions.csv
        sightline train r2m --images photos/ --corpus text.txt --concepts boxes.jsonl
        sightline train r2m --corpus my.txt

    A run that was stopped goes on when the same command is given again. For several processes, `torchrun -m sightline`.

    Args:
        recipe: a file, the name of a shipped recipe, or with your own data a kind of model such as updown.
        settings: the row of the recipe (if it has several), then changes such as data.max_photos=100 seed=1.
        out: the folder of the run; by default runs/RECIPE/ROW.
        seed: of everything random.
        allow_missing: leave photos without features out.
        images: own data: the folder of photos.
        captions: own data: their captions, in any format; a captions.csv inside the folder is found without it.
        corpus: own data, r2m: sentences, one a line. Alone, it makes a style for `sightline caption --model`.
        features: own data: features of the photos; without them they are extracted.
        concepts: own data, r2m: what is in the photos, a file of named boxes.
        json: print the metrics as one JSON object.
    """
    from sightline.training.auto_recipe import OwnData
    from sightline.training.distributed import first_process
    from sightline.training.launch import Callbacks, data_root, launch
    from sightline.training.run_log import Reporter, curves

    own = OwnData(images, captions, corpus, features, concepts)
    changes = [text for text in settings if "=" in text]
    changes += [] if seed is None else [f"seed={seed}"]
    changes += ["data.allow_missing=true"] if allow_missing else []
    rows = [text for text in settings if "=" not in text]
    if len(rows) > 1:
        raise ConfigError(f"{rows[1]!r} is neither a row nor KEY=VALUE", fix="give one row, and changes as key=value")
    with Reporter(quiet or not first_process()) as reporter:
        if own.is_given():
            chosen, folder, name, about = _recipe_of_own_data(recipe, rows, changes, own, out, reporter)
        else:
            chosen, folder, name = _named_recipe(recipe, rows, changes, out)
            about = ""
        draw = curves(folder) if first_process() else None

        def report(line: dict[str, Any]) -> None:
            reporter.report(line)
            if draw is not None:
                draw(line)

        callbacks = Callbacks(reporter.say, report, reporter.progress)
        trained = launch(chosen, folder, device, name=name, about=about, base=data_root(), callbacks=callbacks)
        if first_process():
            metrics, split = trained.card.get("metrics") or {}, trained.card.get("measured on")
            numbers = ", ".join(f"{name} {value:.2f}" for name, value in metrics.items())
            end = f": {numbers} on {split}" if metrics else " is trained; there is nothing to measure it on."
            as_json = {"model": str(folder / MODEL), "split": split, "metrics": metrics}
            show(as_json, lambda: reporter.say(f"{folder / MODEL}{end}"), json=json, quiet=False)
            if own.is_given():
                model, photos = shlex.quote(str(folder)), shlex.quote(str(images or "photo.jpg"))
                reporter.say(f"Captions by it: `sightline caption --model {model} {photos}`.")


def _named_recipe(
    given: str, rows: Sequence[str], changes: Sequence[str], out: Path | None
) -> tuple[Recipe, Path, str]:
    """A row of a recipe file, or of a shipped recipe; the folder of its run, and the name of the recipe."""
    from sightline.training.recipe import SHIPPED, read_recipe, read_rows

    path = find_recipe(given)
    row = rows[0] if rows else None
    recipe = read_recipe(path, row, changes)
    if path.is_relative_to(SHIPPED):
        folder = path.relative_to(SHIPPED).with_suffix("")
        name = folder.as_posix()
    else:
        folder, name = Path(path.stem), str(path)
    if out is None and path.name == RECIPE and row is None:
        return recipe, path.parent, name  # the recipe that a run left in its folder
    return recipe, out or RUNS / folder / (row or next(iter(read_rows(path)))), name


def find_recipe(name: str) -> Path:
    """A recipe file, or the shipped one called so."""
    from sightline.training.auto_recipe import KINDS
    from sightline.training.recipe import SHIPPED, shipped_recipes

    if Path(name).is_file():
        return Path(name)
    if (SHIPPED / f"{name}.yaml").is_file():
        return SHIPPED / f"{name}.yaml"
    if name in KINDS:
        fix = f"sightline train {name} {_DATA.get(name, _DATA[''])}, or name a recipe"
        raise ConfigError(f"{name} is a kind of model, and no data is given", fix=fix)
    names = [path.relative_to(SHIPPED).with_suffix("").as_posix() for path in shipped_recipes()]
    near = difflib.get_close_matches(name, [*names, *KINDS], n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    fix = f"{hint}give a file, or one of {', '.join(names) or '(none is shipped)'}"
    raise ConfigError(f"no recipe {name!r}", fix=fix)


def _recipe_of_own_data(
    kind: str, rows: Sequence[str], changes: Sequence[str], own: OwnData, out: Path | None, reporter: Reporter
) -> tuple[Recipe, Path, str, str]:
    """The recipe that suits your own data, the folder of its run, its name, and what was decided."""
    from sightline.training.auto_recipe import KINDS, auto_recipe

    if kind not in KINDS:
        fix = f"with --images and the like, give one of {', '.join(KINDS)}"
        raise ConfigError(f"{kind!r} is no kind of model", fix=fix)
    if rows:
        raise ConfigError(f"{rows[0]!r} is not KEY=VALUE", fix="own data has no rows")
    source = own.images or own.captions or own.corpus or own.features
    assert source is not None
    folder = out or RUNS / f"{kind}-{source.absolute().name.split('.')[0]}"
    chosen, notes = auto_recipe(kind, own, folder, changes)
    for sentence in notes:
        reporter.say(sentence)
    return chosen, folder, str(folder / RECIPE), "\n".join(notes)
