"""From a recipe to a trained model: data, vocabulary, a seeded model, the loop, the measurement, the card."""

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import yaml

from sightline import __version__
from sightline.checkpoint.model_checkpoint import Checkpoint, load, save
from sightline.errors import CheckpointError, ConfigError, LearningError
from sightline.files import MODEL, RECIPE, read_json, write_json, write_text
from sightline.metrics.bootstrap import PerImage
from sightline.models.end_to_end import EndToEnd
from sightline.text.grammar import indefinite_article
from sightline.training.checkpoint_finder import Finder
from sightline.training.data import Data, build_data
from sightline.training.distributed import first_process, processes
from sightline.training.evaluation import Measurement, evaluate
from sightline.training.feature_cache import Progress, cache_features, extract
from sightline.training.loop import Run, train
from sightline.training.new_model import build_model, preprocessing, start_output_bias, tell_names, with_vision
from sightline.training.objective import Context, refuse_other_vision
from sightline.training.objectives.r2m_stages import R2MTextConfig, text_loss
from sightline.training.recipe import Recipe, read_run_recipe
from sightline.training.stage import Stage
from sightline.training.tensor_tables import Pool

DATA = "data.json"
PER_IMAGE = "per_image.npz"  # what each photo adds to the metrics, for comparisons on the same photos
CAPTIONS = "captions.json"  # by photo

ReadData = Callable[..., Data]  # called as `build_data`


@dataclass(frozen=True)
class Callbacks:
    """What is called while a run goes on; nothing by default."""

    say: Callable[[str], None] = field(default=lambda sentence: None)  # a plain sentence about data and decisions
    report: Callable[[dict[str, Any]], None] = field(default=lambda line: None)  # a line of metrics.jsonl
    progress: Progress = iter  # wraps the photos whose features are extracted


def launch(
    recipe: Recipe,
    out: Path,
    device: str = "auto",
    *,
    name: str = "RECIPE",
    about: str = "",
    base: Path | None = None,
    callbacks: Callbacks | None = None,
    read: ReadData = build_data,
) -> Checkpoint:
    """Train what the recipe says, or go on where an earlier call stopped; `out` then holds the model and its metrics.

    A folder that holds a run of another recipe is refused. `name` is how a command names the recipe, `about` what the
    recipe that is left in `out` says of itself; `base` is what the data's root is relative to (`data_root()`); `read`
    gives the data.
    """
    if recipe.measure:
        raise ConfigError("this row trains nothing, it measures trained models", fix="use `sightline reproduce`")
    if not (stages := recipe.stage_list()):
        raise ConfigError("the recipe has no stage", fix="give stages")
    with processes(device) as place:
        callbacks = callbacks if callbacks is not None and first_process() else Callbacks()
        refuse_other_run(recipe, out)
        if (out / MODEL).is_file():
            finished = load(out / MODEL, place)
            if "metrics" in finished.card:
                callbacks.say(f"{out} holds this run already, finished.")
                return finished
        base = base or data_root()
        find = Finder(out, name, recipe.start, place)
        parent = find(recipe.start) if recipe.start else None
        if dist.is_initialized() and not first_process():  # process 0 extracts; the others then find what it made
            dist.barrier()
        extracted = extract(recipe.data, base, place, find, callbacks.progress, callbacks.say)
        if dist.is_initialized() and first_process():
            dist.barrier()
        words = None if parent is None else parent.vocabulary
        data = read(recipe.data, recipe.model, stages, base=base, vocabulary=words, vision=recipe.vision)
        for sentence in data.notes:
            callbacks.say(sentence)
        start = Checkpoint(
            _model(recipe, data, parent, find),
            data.vocabulary,
            data.rule.name,
            extracted or preprocessing(recipe.vision) or ({} if parent is None else parent.preprocessing),
            data.fingerprint,
            _card(recipe, data),
        )
        _check(stages, data.pools)
        _begin(recipe, data, out, about)
        pools = _with_features(recipe, data.pools, start.model, place, callbacks)
        context = Context(data.vocabulary, pools, find, place, recipe.seed)
        validate = partial(_validate, recipe, data)
        chosen = train(Run(out, start, stages, context, validate, recipe.fingerprint(), report=callbacks.report))
        return _measure(recipe, data, pools, chosen, out)


def _measure(recipe: Recipe, data: Data, pools: Mapping[str, Pool], chosen: Checkpoint, out: Path) -> Checkpoint:
    """Measure the chosen model on the test split, or on val without one, and leave it with its metrics in `out`."""
    chosen.model.eval()
    split = next((role for role in ("test", "val") if role in pools and pools[role].references), None)
    measured = Measurement({}, {}, PerImage(), photos=0)
    if split is not None:
        on_data = partial(evaluate, grounded=data.grounded, sentiment=data.sentiment)
        measured = on_data(chosen, pools[split], recipe.evaluate)
    metrics = measured.metrics
    chosen = replace(chosen, card={**chosen.card, "measured on": split, "metrics": metrics})
    if first_process():
        write_json(out / "metrics.json", {"split": split, **metrics}, indent=2)
        write_measurement(out, measured)
        save(out / MODEL, chosen)
    return chosen


def _validate(recipe: Recipe, data: Data, checkpoint: Checkpoint, pool: Pool, stage: Stage) -> dict[str, float]:
    """The metrics by which the loop chooses the best model: on the val split or, for R²M, on held-out text."""
    quick = recipe.evaluate.in_training()
    if stage.select.metric == "loss" and isinstance(stage.objective, R2MTextConfig):
        # L_XE + β · L_rec: otherwise nothing tells of the reconstructor
        return text_loss(checkpoint.model, pool, stage.objective, quick.batch)
    if stage.select.metric == "loss":
        pool = replace(pool, references=())  # no caption is written: that takes longest
    return evaluate(checkpoint, pool, quick, grounded=data.grounded, sentiment=data.sentiment).metrics


def _with_features(
    recipe: Recipe, pools: dict[str, Pool], model: Any, device: torch.device, callbacks: Callbacks
) -> dict[str, Pool]:
    """The pools, with features in the place of photos where the vision model does not learn."""
    if not isinstance(model, EndToEnd) or not model.is_frozen:
        return pools
    data, features = recipe.data, dict[str, Pool]()
    for name, pool in pools.items():
        views = data.views if name == "train" else 1
        try:
            features[name] = cache_features(pool, model.vision, device, data.budget, views, data.window)
        except torch.OutOfMemoryError as error:
            fix = "stop other programs there, or set data.views=1; with data.budget=1 photos are seen at every step"
            raise LearningError(f"memory ran out while photos of {name} were looked at", fix=fix) from error
    names = ", ".join(name for name in pools if features[name] is not pools[name])
    if names:
        callbacks.say(f"Photos of {names} have been looked at, once for all: the vision model does not learn.")
    return features


def write_measurement(out: Path, measured: Measurement) -> None:
    """Leave the captions and what each photo adds to the metrics in the folder of a run, where there are any."""
    if measured.captions:
        write_json(out / CAPTIONS, {id: caption.text for id, caption in measured.captions.items()}, indent=0)
    if measured.per_image.shares:
        measured.per_image.write(out / PER_IMAGE)


def _check(stages: list[Stage], pools: dict[str, Pool]) -> None:
    """Refuse, before hours of training, stages whose photos or sentences are not there."""
    for stage in stages:
        if stage.batch.pool not in pools:
            missing = "data.corpus" if stage.batch.pool == "corpus" else "data.captions and data.features"
            what = f"stage `{stage.name}` draws from {stage.batch.pool}, which is empty"
            raise ConfigError(what, fix=f"give {missing}")
        if stage.held_out() not in pools and (stage.select.every or stage.select.every_steps):
            by, fix = "on the val split, and no photo is in it", "set data.val"
            if stage.held_out() == "corpus-val":
                by, fix = "by held-out text, and there is none", "give data.corpus"
            what = f"stage `{stage.name}` chooses its best model {by}"
            raise ConfigError(what, fix=f"{fix}, or stages.{stage.name}.select.every=0 to keep the last model")


def _model(recipe: Recipe, data: Data, parent: Checkpoint | None, find: Finder) -> Any:
    """The seeded model, with the weights of the model that it starts from."""
    torch.manual_seed(recipe.seed)
    model = with_vision(build_model(recipe.model, len(data.vocabulary)), recipe.vision, find)
    if parent is None:
        pool = data.pools.get("corpus", data.pools.get("train"))  # R2M learns to write from its corpus alone
        texts = None if pool is None or recipe.output_bias == "zero" else pool.texts
        start_output_bias(model, None if texts is None else texts.ids)
        tell_names(model, data.vocabulary)
        return model
    receiver, fingerprint = model, data.fingerprint
    if isinstance(model, EndToEnd) and not isinstance(parent.model, EndToEnd):  # it read features of the same backbone
        receiver, fingerprint = model.reader, model.vision.fingerprint()
    if parent.text_rule != data.rule.name:
        what = f"{recipe.start} splits captions by the rule {parent.text_rule}, and the recipe by {data.rule.name}"
        raise ConfigError(what, fix=f"set data.rule={parent.text_rule}")
    refuse_other_vision(recipe.start, parent.fingerprint, fingerprint)
    weights = parent.model.state_dict()
    shapes = {name: part.shape for name, part in weights.items()}
    wanted = {name: part.shape for name, part in receiver.state_dict().items()}
    wrong = [name for name in {**wanted, **shapes} if wanted.get(name) != shapes.get(name)]
    if wrong:
        kind = parent.model.config.kind
        raise CheckpointError(
            f"{recipe.start} is {indefinite_article(kind) or 'a'} {kind} model whose weights do not fit this "
            f"{recipe.model.kind}: {', '.join(wrong[:3])}",
            fix="give it the same kind and sizes as the recipe's model",
        )
    receiver.load_state_dict(weights)
    return model


def _card(recipe: Recipe, data: Data) -> dict[str, Any]:
    return {
        "model": recipe.model.kind,
        "recipe": plain(recipe),
        "recipe fingerprint": recipe.fingerprint(),
        "data": data.card(),
        "seed": recipe.seed,
        "versions": {"sightline": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def plain(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain values, which `read_recipe` would build again."""
    values: dict[str, Any] = json.loads(json.dumps(asdict(recipe), default=str))
    return values


def to_yaml(recipe: Recipe, about: str = "") -> str:
    values = {**({"about": about} if about else {}), "base": plain(recipe)}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)


def refuse_other_run(recipe: Recipe, out: Path) -> None:
    """Refuse a folder that holds a run of another recipe, and say where they differ."""
    if not (out / RECIPE).is_file():
        if (out / MODEL).exists():
            raise LearningError("this folder holds a model of something else", where=out, fix="choose another --out")
        return
    other = read_run_recipe(out / RECIPE)
    if other.fingerprint() == recipe.fingerprint():
        return
    differing = list(differences(plain(other), plain(recipe)))
    first = "; ".join(differing[:3]) + ("; …" if len(differing) > 3 else "")
    fix = "choose another --out, or remove the folder"
    raise LearningError(f"this folder holds a run of another recipe ({first})", where=out, fix=fix)


def differences(there: Any, here: Any, path: str = "") -> Iterator[str]:
    """Where two recipes differ, a sentence each; what a paper prints is no difference."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in {**there, **here}:
            if (path, key) != ("", "paper"):
                yield from differences(there.get(key), here.get(key), f"{path}.{key}" if path else str(key))
    elif there != here:
        yield f"{path} is {there} there and {here} here"


def _begin(recipe: Recipe, data: Data, out: Path, about: str) -> None:
    """Write recipe and data card into the folder; refuse to go on where the data has changed since."""
    card = data.card()
    if (out / DATA).is_file() and read_json(out / DATA).get("digest") != card["digest"]:
        fix = "choose another --out, or bring the data back"
        raise LearningError("photos, captions or features have changed since this run began", where=out, fix=fix)
    if first_process() and not (out / RECIPE).is_file():
        write_json(out / DATA, card, indent=2)
        write_text(out / RECIPE, to_yaml(recipe, about))


def data_root() -> Path:
    """The folder SIGHTLINE_DATA names, else the current one."""
    return Path(os.environ.get("SIGHTLINE_DATA") or Path.cwd())
