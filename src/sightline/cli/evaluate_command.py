"""`sightline evaluate`: a trained model measured on photos with captions, the way recipes measure it."""

from __future__ import annotations

import json as json_module
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sightline.cli.arguments import Arg
from sightline.errors import ConfigError
from sightline.files import existing_path, model_file

if TYPE_CHECKING:  # what brings PyTorch is imported once there is a model to measure
    from sightline.checkpoint.model_checkpoint import Checkpoint
    from sightline.decoding.strategies import Strategy
    from sightline.training.evaluation import Evaluation, Measurement

ALL = "all"  # instead of the split's name, where the captions have no splits


def evaluate(
    checkpoints: Annotated[tuple[Path, ...], Arg("CHECKPOINT …")],
    *,
    captions: tuple[Path, ...],
    features: Path | None = None,
    images: Path | None = None,
    split: str = "test",
    photos: Path | None = None,
    concepts: Path | None = None,
    grounding: Path | None = None,
    beam: int | None = None,
    metrics: tuple[str, ...] = (),
    folds: int | None = None,
    self_retrieval: bool = False,
    allow_missing: bool = False,
    device: str = "auto",
    out: Path | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Measure a captioner or a matcher. What is not given is as in the recipe the model was trained by.

        sightline evaluate runs/…/model.safetensors --captions dataset_flickr8k.json --features features/
        sightline evaluate a/ b/ --captions …    several models together: the mean of their scores or probabilities

    Args:
        checkpoints: model.safetensors, or the folder of a run.
        captions: references, one file or several, in any format with captions.
        features: of the photos, in any format with features; the vision model must be the one of training.
        images: the folder of photos, for models that were trained with their own eyes (`vision: {kind: grid}`).
        split: of the captions. Captions without splits are all used, and it is said, or those of --photos.
        photos: a list of the split's photos, for captions without splits.
        concepts: r2m: what is in the photos, a file of named boxes.
        grounding: Flickr30k Entities; measures whether words point at the right boxes too.
        beam: its size; 1 is greedy.
        metrics: bleu meteor rouge cider spice; by default all that are installed.
        folds: matchers: the mean of so many folds of 1,000 photos; 0 ranks among all.
        self_retrieval: captioners: whether captions find their own photo again.
        allow_missing: leave photos without features out.
        out: write the captions to this file as COCO results, for `sightline score`.
        json: print the metrics as one JSON object.
        quiet: print nothing, unless JSON is asked for.
    """
    if not checkpoints:
        raise ConfigError("no checkpoint is given", fix="give model.safetensors, or the folder of a run")
    from rich.console import Console
    from rich.progress import track

    from sightline.checkpoint.model_checkpoint import load
    from sightline.data.coco import write_results
    from sightline.devices import choose_device
    from sightline.models.captioner import Captioner
    from sightline.training.data_config import DataConfig
    from sightline.training.evaluation import measure

    place = choose_device(device)
    members = [load(model_file(path), place) for path in checkpoints]
    if out is not None and not isinstance(members[0].model, Captioner):
        raise ConfigError("a matcher writes no captions", fix="leave --out away")
    how = recipe_evaluation(members[0])
    changes: dict[str, Any] = {"grounding": grounding is not None}
    changes |= {} if beam is None else {"strategy": _beam(how.strategy, beam)}
    changes |= {"metrics": metrics} if metrics else {}
    changes |= {} if folds is None else {"folds": folds}
    changes |= {"self_retrieval": True} if self_retrieval else {}
    data = DataConfig(
        captions=tuple(path.absolute() for path in captions),
        features=None if features is None else features.absolute(),
        images=None if images is None else images.absolute(),
        concepts=None if concepts is None else concepts.absolute(),
        grounding=None if grounding is None else grounding.absolute(),
        allow_missing=allow_missing,
        **_photos(captions, split, photos),
    )
    console = Console(stderr=True, quiet=quiet)
    measured = measure(
        members,
        data,
        replace(how, **changes),
        watch=lambda batches: track(batches, "writing captions", console=console, transient=True),  # type: ignore[arg-type,return-value]
    )
    if out is not None:
        write_results(out, {id: " ".join(caption.words) for id, caption in measured.captions.items()})
    if json:
        print(json_module.dumps({"split": data.test[0], "photos": measured.photos, "metrics": measured.metrics}))
    elif not quiet:
        _print(measured, data.test[0], out)


def recipe_evaluation(checkpoint: Checkpoint) -> Evaluation:
    """How the recipe that a checkpoint was trained by measures it; for others, the defaults."""
    from sightline.config import build, with_new_names
    from sightline.training.evaluation import Evaluation

    values = checkpoint.card.get("recipe", {}).get("evaluate")
    return Evaluation() if values is None else build(Evaluation, with_new_names(values), where="the checkpoint's card")


def _beam(strategy: Strategy, size: int) -> Strategy:
    """A beam of another size, with the length penalty of the recipe's."""
    from sightline.decoding.strategies import Beam, Greedy

    if size == 1:
        return Greedy()
    return replace(strategy, size=size) if isinstance(strategy, Beam) else Beam(size=size)


def _photos(captions: tuple[Path, ...], split: str, photos: Path | None) -> dict[str, Any]:
    """Which photos are measured on: those of the list or of the split; without either, all."""
    from sightline.data.inspect import identify

    if photos is not None:
        return {"test": (split,), "splits": {split: photos.absolute()}}
    for path in captions:
        found = identify(existing_path(path))
        if found.captions is None:
            raise ConfigError(f"{found.name} holds no captions", where=path, fix="give a file of captions")
        if found.captions(path).splits():
            return {"test": (split,)}
    return {"test": (ALL,), "shares": {ALL: 1.0}}


def _print(measured: Measurement, split: str, out: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=True, highlight=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column(split, justify="right")
    for name, value in measured.metrics.items():
        table.add_row(name, f"{value:.2f}")
    console.print(table)
    for sentence in measured.notes:
        console.print(sentence, style="dim", markup=False)
    if out is not None:
        console.print(f"captions: {out}", markup=False)
