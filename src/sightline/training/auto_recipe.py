"""A recipe for one's own photos: every choice follows from the size of the data, and a sentence says so."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from sightline.config import build, override
from sightline.data.photo_folder import photo_files, table_of
from sightline.errors import ConfigError, CountError, plural, times
from sightline.files import existing_path
from sightline.models.model_configs import CaptionerConfig
from sightline.training.data_config import DETECTOR, DataConfig
from sightline.training.features import open_scenes
from sightline.training.recipe import Recipe
from sightline.training.recipe_captions import read_captions, read_corpus
from sightline.training.stage import Stage

KINDS = {config().kind: config for config in get_args(CaptionerConfig)}
SHARES = {"train": 0.9, "val": 0.05, "test": 0.05}  # of photos without splits
ENOUGH = 50  # photos to choose a model by
FEW_EPOCHS = 40  # where there are fewer
FEW_SENTENCES = 2_000  # below, a twentieth are too few to choose by
TEXT_EPOCHS = (30, 5)  # of R2M's text stages then
WIDTHS = {"regions": "region_width", "grid": "grid_width", "vector": "vector_width"}
SIZES = ("size", "hidden_size", "word_size", "attention_size")  # of models, where they have them


@dataclass(frozen=True)
class OwnData:
    """What a user has: photos, their captions, other sentences, features, names of what is in the photos."""

    images: Path | None = None
    captions: Path | None = None
    corpus: Path | None = None
    features: Path | None = None
    concepts: Path | None = None

    def paths(self) -> dict[str, Path]:
        return {name: path for name, path in vars(self).items() if path is not None}

    def is_given(self) -> bool:
        return bool(self.paths())


def auto_recipe(kind: str, own: OwnData, out: Path, changes: Sequence[str] = ()) -> tuple[Recipe, list[str]]:
    """The recipe for `own` data, with `changes`, and what was decided."""
    notes: list[str] = []
    data: dict[str, Any] = {name: str(existing_path(path).absolute()) for name, path in own.paths().items()}
    photos = captions = 0
    on_photos = own.images is not None or own.features is not None
    on_text = kind == "r2m" and own.corpus is not None and own == OwnData(corpus=own.corpus)
    if not (on_photos or on_text):
        raise ConfigError("neither photos nor features are given", fix="add --images photos/ or --features FILE")
    if on_photos:
        photos, captions = _count(own)
        data["shares"] = SHARES
        if own.features is None:
            data |= {"features": str((out / "features").absolute()), "encoder": DETECTOR}
            notes.append(
                "Photos are looked at once, by the detector that comes with Sightline: 36 regions each, with names. "
                f"What it sees is kept in {out / 'features'}."
            )
        if own.images is not None and own.captions is None and (table := table_of(own.images)) is not None:
            data["captions"] = str(table.absolute())
        notes.append(
            "Photos are shared out by a hash of their names: 90 % to train on, 5 % to choose the best model by, 5 % to "
            "measure it on."
        )
    if kind == "r2m":
        sentences = _corpus(own)
        data |= _corpus_settings(own, sentences, notes)
        training = len(notes)  # the place of the note that tells how long it takes
        stages, size = _text_stages(len(sentences), photos, on_photos, notes)
    elif captions:
        data |= {"rule": "neuraltalk2", "min_count": _min_count(captions, notes), "vocabulary": "train"}
        training = len(notes)
        stages, size = _caption_stages(photos, captions, notes)
    else:
        fix = "add --captions FILE, or train r2m with --corpus text.txt, which needs no captions of photos"
        raise ConfigError(f"{kind} learns from captions, and there are none", fix=fix)
    values = {
        "model": {"kind": kind, **_model(kind, own, size, notes)},
        "data": data,
        "stages": stages,
        "evaluate": {"metrics": ["bleu", "rouge", "cider"]},
    }
    recipe = build(Recipe, override(values, changes), where="your data")
    if any(change.startswith("stages.") for change in changes):
        notes[training] = f"With your changes, training takes {', then '.join(map(_length, recipe.stage_list()))}."
    return recipe, notes


def _length(stage: Stage) -> str:
    """How long a stage takes, in batches of what."""
    batch, most = stage.batch, "at most " if stage.select.patience else ""
    time = plural(stage.steps, "step") if stage.steps else plural(stage.epochs, "epoch")
    things = "sentence" if batch.pool == "corpus" else "pair" if batch.of == "pairs" else "photo"
    each = f" with {plural(batch.captions, 'caption')} each" if things == "photo" and batch.of == "images" else ""
    return f"{most}{time} of {stage.name} in batches of {plural(batch.size, things)}{each}"


def _count(own: OwnData) -> tuple[int, int]:
    table = own.captions or (None if own.images is None else table_of(existing_path(own.images)))
    if table is not None:
        captions = read_captions(existing_path(table), own.images)
        return len(captions), sum(len(photo.sentences) for photo in captions)
    if own.images is not None:
        return len(photo_files(own.images)), 0
    return 0, 0


def _model(kind: str, own: OwnData, size: int, notes: list[str]) -> dict[str, Any]:
    """Widths of the features, and sizes that suit the data."""
    names = {item.name for item in fields(KINDS[kind])}
    chosen: dict[str, Any] = {name: size for name in SIZES if name in names}
    chosen |= {"jrln": {"size": size}} if "jrln" in names else {}
    chosen |= {"ffn_size": 4 * size, "layers": 3 if size < 512 else 6, "heads": 8} if "ffn_size" in names else {}
    if own.features is None:
        from sightline.checkpoint.bundle import load_bundle
        from sightline.vision.efficientnet_lite import HEAD

        vision = load_bundle().vision.config
        assert vision.kind == "detector"
        widths = {"region_width": vision.region_width, "grid_width": HEAD, "vector_width": HEAD}
    else:
        scene = next(iter(open_scenes(own.features)), None)
        if scene is None:
            raise CountError("it holds no features", where=own.features, fix="extract them again")
        parts = {part: getattr(scene, part) for part in WIDTHS}
        widths = {WIDTHS[part]: value.shape[-1] for part, value in parts.items() if value is not None}
    notes.append(f"The model is {kind} with {size} units a layer.")
    return {**chosen, **{name: width for name, width in widths.items() if name in names}}


def _caption_stages(photos: int, captions: int, notes: list[str]) -> tuple[dict[str, Any], int]:
    """Cross-entropy, stopped when captions of held-out photos no longer become better, where there are enough of these.

    A model chosen by the loss of four photos has learned words and no sentences: of 60 photos of Flickr8k, it had
    CIDEr 7.0 on 100 dev photos, one chosen by their CIDEr 15.7, and the last of 40 epochs 21.6.
    """
    size = _size(captions)
    train = max(1, round(photos * SHARES["train"]))
    batch = min(32, max(4, 1 << int(math.log2(max(1, train / 20)))))
    chosen = photos * SHARES["val"] >= ENOUGH
    epochs = min(100, max(15, math.ceil(2_000 * batch / train))) if chosen else FEW_EPOCHS
    each = max(1, min(5, round(captions / max(1, photos))))
    how = f"in batches of {plural(batch, 'photo')} with {plural(each, 'caption')} each"
    if chosen:
        notes.append(
            f"Training takes at most {epochs} epochs {how}, and stops when the val split has not become better (CIDEr) "
            "for 5 epochs."
        )
    else:
        notes.append(
            f"Training takes {epochs} epochs {how}. The last model is kept: {plural(photos, 'photo')} are few, and a "
            "twentieth of them too few to choose by. Thousands make better captions."
        )
    stage = {
        "objective": {"kind": "cross-entropy"},
        "batch": {"size": batch, "captions": each},
        "optimiser": {"lr": 2e-3 if size < 256 else 1e-3 if size < 512 else 5e-4, "clip": 1.0},
        "schedule": {"kind": "decay", "factor": 0.8, "every": max(1, epochs // 8)},
        "epochs": epochs,
        "select": {"metric": "CIDEr", "patience": 5} if chosen else {"every": 0},
    }
    return {"cross-entropy": stage}, size


def _corpus(own: OwnData) -> tuple[str, ...]:
    if own.corpus is None:
        raise ConfigError("r2m learns to speak from text, and there is none", fix="add --corpus text.txt")
    return read_corpus(existing_path(own.corpus))


def _corpus_settings(own: OwnData, sentences: Sequence[str], notes: list[str]) -> dict[str, Any]:
    """Which sentences of the corpus are used, and from what count on a word is learned."""
    long = sum(len(sentence.split()) >= 8 for sentence in sentences)
    fewest = 8 if 2 * long >= len(sentences) else 4
    notes.append(f"Of the corpus, sentences of {fewest} to {DataConfig.max_words} words are used.")
    if own == OwnData(corpus=own.corpus):
        notes.append(
            "There are no photos: it learns to speak of what Sightline's own detector has names for, and "
            "`sightline caption --model` lets it speak of any photo."
        )
    return {
        "dictionary": DETECTOR if own.features is None and own.concepts is None else "coco",
        "rule": "r2m",
        "vocabulary": "corpus",
        "min_count": _min_count(len(sentences), notes),
        "min_words": fewest,
        "held_out": 0.01 if len(sentences) >= 10_000 else 0.05,
    }


def _text_stages(sentences: int, photos: int, on_photos: bool, notes: list[str]) -> tuple[dict[str, Any], int]:
    """The four stages of R2M: write sentences, rebuild their concepts, then both with photos where there are some.

    As with photos, few held-out sentences choose badly: of 500 captions of Flickr8k, the model they chose had CIDEr 3.7
    on 100 dev photos and wrote no sentences, the last of 30 and 5 epochs 9.6.
    """
    size = _size(sentences)
    batch = min(256, max(8, 1 << int(math.log2(max(1, sentences / 20)))))
    epochs = min(100, max(10, math.ceil(3_000 * batch / max(1, sentences))))
    rate = 5e-4 if size < 512 else 1e-4
    select: dict[str, Any] = {"metric": "loss", "patience": 3}
    written = {"epochs": epochs, "optimiser": {"lr": rate, "clip": 10.0}}
    rebuilt = written
    if sentences < FEW_SENTENCES:
        select = {"every": 0}
        written = {"epochs": TEXT_EPOCHS[0], "optimiser": {"lr": 2e-3, "clip": 10.0}}
        rebuilt = {"epochs": TEXT_EPOCHS[1], "optimiser": {"lr": 1e-3, "clip": 10.0}}
        note = f"The text stages take {TEXT_EPOCHS[0]} and {TEXT_EPOCHS[1]} epochs in batches of {batch} sentences."
        few = "1 sentence is too little" if sentences == 1 else f"{plural(sentences, 'sentence')} are few"
        note += f" The last model is kept: {few} to choose by."
    else:
        note = f"Each text stage takes at most {epochs} epochs in batches of {batch} sentences, and stops when held-out"
        note += " sentences have not become likelier for 3 epochs."
    if photos:
        note += f" The photo stages take 50 and 100 steps, with {batch} sentences beside the photos."
    notes.append(note)
    text = {"batch": {"pool": "corpus", "size": batch, "captions": 1}, "select": select}
    stages = {
        "text": {"objective": {"kind": "r2m-text"}, **text, **written},
        "text-reconstruction": {"objective": {"kind": "r2m-text", "beta": 1.0}, **text, **rebuilt},
    }
    if not on_photos:
        return stages, size
    photo = {
        "batch": {"of": "photos", "size": max(2, min(256, round(photos * SHARES["train"])))},
        "optimiser": {"lr": 1e-5, "clip": 10.0},
        "select": {"metric": "loss", "every_steps": 10, "patience": 3},
    }
    both = {"kind": "r2m-image", "text": batch}
    stages["photos"] = {"objective": both, **photo, "steps": 50}
    stages["photos-reconstruction"] = {"objective": {**both, "gamma": 1.0}, **photo, "steps": 100}
    return stages, size


def _size(sentences: int) -> int:
    return 128 if sentences < 2_000 else 256 if sentences < 20_000 else 512


def _min_count(sentences: int, notes: list[str]) -> int:
    count = 1 if sentences < 1_000 else 2 if sentences < 10_000 else 3 if sentences < 50_000 else 5
    are = "is" if sentences == 1 else "are"
    notes.append(f"There {are} {plural(sentences, 'sentence')}; words that occur at least {times(count)} are learned.")
    return count
