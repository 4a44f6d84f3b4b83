"""`sightline evaluate`: a model measured on photos with captions, the way its recipe measures it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from sightline.cli.console import Arg, plain_console, print_table, show
from sightline.errors import ConfigError, MissingRecordError, printable
from sightline.files import existing_path, model_file, refuse_to_replace

if TYPE_CHECKING:  # what brings PyTorch is imported once there is a model to measure
    import torch

    from sightline.batch import SceneBatch
    from sightline.caption import Caption
    from sightline.checkpoint.bundle import Bundle
    from sightline.checkpoint.model_checkpoint import Checkpoint
    from sightline.data.records import CaptionedPhoto
    from sightline.pipeline import Pipeline
    from sightline.training.data_config import DataConfig
    from sightline.training.evaluation import Measurement, WriteCaptions

ALL = "all"  # instead of the split's name, where the captions have no splits
TEST = "test"
T = TypeVar("T")


def evaluate(
    models: Annotated[tuple[Path, ...], Arg("[MODEL …]")] = (),
    *,
    captions: tuple[Path, ...] = (),
    features: Path | None = None,
    images: Path | None = None,
    split: str | None = None,
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

        sightline evaluate run/                                        on the photos that the run has held out
        sightline evaluate run/ --captions more.csv --images more/     on others
        sightline evaluate --captions captions.csv --images photos/    the model that comes with Sightline
        sightline evaluate a/ b/                 several models together: the mean of their scores or probabilities

    Args:
        models: folders of runs, or model files; by default the model that comes with Sightline, whose captions are then
            those of `sightline caption`.
        captions: references, one file or several, in any format with captions; by default those of the run.
        features: of the photos, in any format with features; the vision model must be the one of training.
        images: the folder of photos; by default that of the run, or where the captions are.
        split: of the captions, by default test. Captions without splits are all used, or those of --photos, but for
            photos that the run has learned from, and a note says so; --split all takes every photo.
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
    """
    from sightline.checkpoint.checkpoint_file import kind_of_file, read_description
    from sightline.data.coco import write_results
    from sightline.decoding.strategies import Beam, Greedy
    from sightline.devices import choose_device
    from sightline.models.captioner import Captioner
    from sightline.training.data_config import DataConfig
    from sightline.training.evaluation import Evaluation, measure
    from sightline.training.launch import data_root
    from sightline.vision.photo_reader import progress_bar

    inputs = [path for path in (*models, *captions, features, photos, concepts, grounding) if path is not None]
    if out is not None:
        refuse_to_replace(out, inputs)
    place, base = choose_device(device), data_root()
    files: list[Path | None] = [model_file(path) for path in models] or [None]
    paths = {"features": features, "images": images, "concepts": concepts, "grounding": grounding}
    changes: dict[str, Any] = {name: existing_path(path).absolute() for name, path in paths.items() if path is not None}
    changes |= {"allow_missing": True} if allow_missing else {}
    with tempfile.TemporaryDirectory() as folder:
        card: dict[str, Any] = {}
        if files[0] is not None and kind_of_file(files[0]) == "checkpoint":
            card = read_description(files[0], "checkpoint")["card"]
        run = _of_recipe(card, "data", DataConfig)
        data, notes = _choose_data(run, captions, split, photos, changes, base, Path(folder))
        from_photos = data.features is None and data.concepts is None
        members = [_member(path, from_photos, place) for path in files]
        first, pipeline = members[0]
        if out is not None and not isinstance(first.model, Captioner):
            raise ConfigError("a matcher writes no captions", fix="leave --out away")
        how = _of_recipe(first.card, "evaluate", Evaluation) or Evaluation()
        how = replace(how, grounding=data.grounding is not None and (grounding is not None or how.grounding))
        if beam is not None:  # of another size, with the length penalty of the recipe's
            like = how.strategy if isinstance(how.strategy, Beam) else Beam()
            how = replace(how, strategy=Greedy() if beam == 1 else replace(like, size=beam))
        how = replace(how, metrics=metrics) if metrics else how
        how = how if folds is None else replace(how, folds=folds)
        how = replace(how, self_retrieval=True) if self_retrieval else how
        bar = iter if quiet else progress_bar("writing captions")
        write = None if pipeline is None or len(members) > 1 else _captions_of(pipeline, beam)
        try:
            measured = measure([member for member, _ in members], data, how, base=base, progress=bar, write=write)  # type: ignore[arg-type]
        except MissingRecordError as error:
            if images is None and error.where == str(data.images):
                error.fix = f"name the folder of the photos with --images, or {error.fix}"
            raise
    measured = replace(measured, notes=(*measured.notes, *notes))
    name = " and ".join(data.test or data.val)
    if out is not None:
        write_results(out, {id: caption.text for id, caption in measured.captions.items()})
    as_json = {"split": name, "photos": measured.photos, "metrics": measured.metrics}
    show(as_json, lambda: _print(measured, name, out), json=json, quiet=quiet)


def _member(path: Path | None, from_photos: bool, device: torch.device) -> tuple[Checkpoint, Pipeline | None]:
    """A model to measure, and the pipeline of one that is a bundle; `from_photos`: photos are given, no features."""
    from sightline.checkpoint.checkpoint_file import kind_of_file
    from sightline.checkpoint.model_checkpoint import load
    from sightline.models.captioner import Captioner
    from sightline.models.end_to_end import EndToEnd
    from sightline.pipeline import Pipeline, load_model

    if path is not None and kind_of_file(path) == "checkpoint":
        checkpoint = load(path, device)
        if isinstance(checkpoint.model, Captioner) and not isinstance(checkpoint.model, EndToEnd) and from_photos:
            checkpoint = replace(_end_to_end_checkpoint(load_model(path, device)), card=checkpoint.card)
        return checkpoint, None
    if not from_photos:
        raise ConfigError("this model looks at photos itself", where=path, fix="give --images instead of --features")
    bundle = load_model(path, device)
    return _end_to_end_checkpoint(bundle), Pipeline(bundle, device)


def _end_to_end_checkpoint(bundle: Bundle) -> Checkpoint:
    """A bundle as the checkpoint of a captioner with its own vision model."""
    from sightline.checkpoint.model_checkpoint import Checkpoint
    from sightline.models.end_to_end import end_to_end

    reader = bundle.captioner
    model = end_to_end(reader.model, bundle.vision).eval()
    return Checkpoint(model, reader.vocabulary, reader.text_rule, {}, bundle.vision.fingerprint(), bundle.card)


def _captions_of(pipeline: Pipeline, beam: int | None) -> WriteCaptions:
    """Captions as `sightline caption` writes them."""
    from sightline.photo import Photo

    def captions(scenes: SceneBatch) -> Sequence[Caption]:
        batch = scenes.part("pixels").permute(0, 2, 3, 1).cpu().numpy()
        size = batch.shape[2], batch.shape[1]
        photos = [Photo(id, id, pixels, size) for id, pixels in zip(scenes.ids, batch, strict=True)]
        return pipeline.caption_photos(photos) if beam is None else pipeline.caption_photos(photos, beam)

    return captions


def _of_recipe(card: dict[str, Any], part: str, kind: type[T]) -> T | None:
    """A part of the recipe that a checkpoint was trained by; None where its card does not tell."""
    from sightline.config import build, with_new_names

    values = card.get("recipe", {}).get(part)
    return None if values is None else build(kind, with_new_names(values), where="the checkpoint's card")


def _choose_data(
    run: DataConfig | None,
    captions: tuple[Path, ...],
    split: str | None,
    photos: Path | None,
    changes: dict[str, Any],
    base: Path,  # of paths of recipes
    folder: Path,  # for captions of photos that are new to the model
) -> tuple[DataConfig, list[str]]:
    """What is measured on, and sentences about that: what the first model was trained on (`run`), or what is given."""
    from sightline.data.caption_table import write_jsonl
    from sightline.data.convert import any_captions
    from sightline.data.records import CaptionSet
    from sightline.training.data_config import DataConfig

    which = "say by which: --captions captions.csv --images photos/"
    paths = tuple(existing_path(path).absolute() for path in captions)
    is_own = run is not None and (not paths or (split != ALL and paths == _paths(run, base)))
    if run is not None and is_own and photos is None:
        if not _paths(run, base):
            what = "the run has learned without captions of photos, and has none to measure by"
            raise ConfigError(what, fix=which)
        if run.features is not None and not run.path(run.features, base).exists():
            changes = {"features": None, "encoder": "", **changes}
        if split == ALL:
            changes = {"splits": {}, "shares": {ALL: 1.0}, **changes}
        return replace(run, **changes, test=run.test if split is None else (split,)), []
    if not paths:
        raise ConfigError("there are no captions to measure by", fix=which)
    if "features" not in changes and "concepts" not in changes:
        images = paths[0] if paths[0].is_dir() else paths[0].parent
        if run is not None and run.images is not None and run.path(run.images, base).is_dir():
            images = run.path(run.images, base)
        changes = {"images": images, **changes}
    test = split or TEST
    lists = {} if photos is None else {test: existing_path(photos).absolute()}
    if lists or (split != ALL and any(any_captions(path).splits() for path in paths)):
        return DataConfig(captions=paths, test=(test,), splits=lists, **changes), []
    everything = DataConfig(captions=paths, test=(ALL,), shares={ALL: 1.0}, **changes)
    new, learned = ([], 0) if run is None or split == ALL else _new_photos(run, everything, base)
    if not learned:
        return everything, []
    if not new:
        what = f"the run has learned from all {learned:,} photos"
        fix = "`sightline evaluate` without --captions takes those it has held out; --split all measures on these"
        raise ConfigError(what, where=paths[0], fix=fix)
    write_jsonl(folder / "captions.jsonl", CaptionSet(tuple(new)))
    note = f"{learned:,} more are left out: the run has learned from them."
    return replace(everything, captions=folder / "captions.jsonl"), [note]


def _paths(data: DataConfig, base: Path) -> tuple[Path, ...]:
    return tuple(data.path(path, base).absolute() for path in data.caption_files)


def _new_photos(run: DataConfig, everything: DataConfig, base: Path) -> tuple[list[CaptionedPhoto], int]:
    """The photos that a run has not learned from, neither its weights nor its choices; and how many others there are.

    Photos are the same where their files are; by their names where one of the two has features alone.
    """
    from sightline.training.recipe_captions import read_photos

    files = _paths(run, base) if run.images is None else (run.path(run.images, base), *_paths(run, base))
    if not files or not all(path.exists() for path in files):
        return [], 0  # it has learned from text alone, or its photos are gone
    by_file = run.images is not None and everything.images is not None

    def name(data: DataConfig, photo: CaptionedPhoto) -> str:
        file = photo.file or photo.id
        return str(data.path(data.images / file, base).resolve()) if by_file and data.images else Path(file).name

    roles = read_photos(run, base, [])
    learned = {name(run, photo) for role in ("train", "val") for photo in roles.get(role, ())}
    photos = read_photos(replace(everything, train=(), val=()), base, [])[TEST]
    new = [photo for photo in photos if name(everything, photo) not in learned]
    return new, len(photos) - len(new)


def _print(measured: Measurement, split: str, out: Path | None) -> None:
    print_table(("", split), [(name, f"{value:.2f}") for name, value in measured.metrics.items()])
    console = plain_console()
    for sentence in measured.notes:
        console.print(printable(sentence), style="dim")
    if out is not None:
        console.print(printable(f"captions: {out}"))
