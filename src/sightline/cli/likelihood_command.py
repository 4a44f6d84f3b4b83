"""`sightline likelihood`: how likely a captioner finds a caption, word by word."""

from __future__ import annotations

import json as json_module
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.errors import ConfigError, MissingRecordError
from sightline.files import model_file

if TYPE_CHECKING:  # what brings PyTorch is imported once there is a caption to judge
    import torch

    from sightline.batch import SceneBatch
    from sightline.data.records import SceneSource
    from sightline.decoding.likelihood import Likelihood
    from sightline.models.captioner import Captioner
    from sightline.scene import Scene
    from sightline.text.vocabulary import Vocabulary
    from sightline.vision.vision_models import VisionModel


def command(
    photo: str,
    caption: str,
    *,
    model: Path | None = None,
    features: Path | None = None,
    attention: Path | None = None,
    device: str = "cpu",
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Print log p(caption | photo) of a captioner, word by word.

    Args:
        photo: the photo's file or its id in the features.
        caption: the sentence; it is split into words as the model's training captions were.
        model: the folder of a run, or a model file; by default the model that comes with Sightline.
        features: where the photo's features are, in any format that holds features; without them, the photo is looked
            at.
        attention: write words, log-probabilities, attention and gates to this .npz file.
        quiet: print nothing; for `--attention` alone.
    """
    import torch

    from sightline.decoding.likelihood import likelihood, save_attention
    from sightline.devices import choose_device
    from sightline.text.vocabulary import rule

    place = choose_device(device)
    captioner, vocabulary, split, scenes = _read(photo, model, features, place)
    words = rule(split).split(caption)
    if not words:
        raise ConfigError("the caption has no word", fix="write one")
    result = likelihood(captioner, scenes.to(place, torch.float32), vocabulary, [words])[0]
    if attention is not None:
        save_attention(attention, result, None if scenes.boxes is None else scenes.boxes[0].float().cpu().numpy())
    if json:
        print(json_module.dumps(_to_json(result), ensure_ascii=False, allow_nan=False))
    elif not quiet:
        _print(result)


def _read(
    photo: str, model: Path | None, features: Path | None, place: torch.device
) -> tuple[Captioner, Vocabulary, str, SceneBatch]:
    """A captioner, its words and their rule, and what it reads of the photo: features, or what vision sees in it."""
    from sightline.batch import SceneBatch
    from sightline.checkpoint.checkpoint_file import kind_of_file
    from sightline.checkpoint.model_checkpoint import load
    from sightline.models.end_to_end import EndToEndCaptioner
    from sightline.pipeline import load_model

    path = None if model is None else model_file(model)
    if features is not None and path is not None and kind_of_file(path) == "checkpoint":
        checkpoint = load(path, place)
        captioner, vocabulary, split = checkpoint.captioner(path), checkpoint.vocabulary, checkpoint.text_rule
        captioner = captioner.captioner if isinstance(captioner, EndToEndCaptioner) else captioner
        scene = _scene(features, photo, checkpoint.fingerprint)
    else:
        bundle = load_model(path, place)
        captioner, vocabulary, split = bundle.captioner.model, bundle.captioner.vocabulary, bundle.captioner.text_rule
        if features is None:
            return captioner, vocabulary, split, _look(bundle.vision, photo, place)
        scene = _scene(features, photo, bundle.vision.fingerprint())
    scenes = SceneBatch.collate([scene], vocabulary, captioner.needs, by=captioner.config.kind)
    return captioner, vocabulary, split, scenes


def _look(vision: VisionModel, photo: str, place: torch.device) -> SceneBatch:
    """The photo as the vision model sees it."""
    import torch

    from sightline.vision.images import read_pixels

    pixels, size = read_pixels(photo, vision.size)
    with torch.no_grad():
        seen = vision.scenes(torch.from_numpy(pixels).permute(2, 0, 1)[None].to(place), (photo,))
    return replace(seen, sizes=torch.tensor([size]))


def _scene(features: Path, photo: str, fingerprint: str) -> Scene:
    """The scene of a photo, by its id, its file name or its stem, as the model's vision (`fingerprint`) saw it."""
    from sightline.data.inspect import identify

    format = identify(features)
    if format.scenes is None:
        raise ConfigError(f"{format.name} holds no features", where=features, fix="give a file or folder with features")
    source: SceneSource = format.scenes(features)
    known = set(source.ids())
    path = Path(photo)
    name = next((name for name in (photo, path.name, path.stem) if name in known), None)
    if name is None:
        raise MissingRecordError(
            f"no features of {photo!r}; ids there look like {next(iter(source.ids()), 'none')!r}",
            where=features,
            fix="give the id of a photo whose features are there",
        )
    scene = source[name]
    if fingerprint and scene.fingerprint and fingerprint != scene.fingerprint:
        raise ConfigError(
            "the model was trained on features of another vision model",
            where=features,
            fix="extract the photo's features with the one it was trained on",
        )
    return scene


def _to_json(result: Likelihood) -> dict[str, object]:
    steps = zip((*result.caption.words, "<end>"), (*result.caption.trace, result.end), strict=True)
    return {
        "caption": result.caption.text,
        "log_prob": _finite(result.caption.log_prob),
        "perplexity": _finite(result.perplexity),
        "words": [{"word": word, "log_prob": _finite(step.log_prob)} for word, step in steps],
        "unknown": list(result.unknown),
    }


def _finite(value: float | None) -> float | None:
    """The value, or None for what JSON has no number for."""
    return value if value is not None and math.isfinite(value) else None


def _print(result: Likelihood) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    table.add_column("word")
    table.add_column("log p", justify="right")
    table.add_column("p", justify="right")
    for word, step in zip((*result.caption.words, "<end>"), (*result.caption.trace, result.end), strict=True):
        log_prob = step.log_prob or 0.0
        table.add_row(word, f"{log_prob:.3f}", f"{math.exp(log_prob):.4f}")
    console = Console()
    console.print(table)
    print(f"log p(caption | photo) = {result.caption.log_prob:.3f}, perplexity {result.perplexity:.2f}")
    if result.unknown:
        print(f"note: the model does not know {', '.join(result.unknown)}")
