"""`sightline likelihood`: how likely a captioner finds a caption, word by word."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.cli.console import print_table, show
from sightline.errors import ConfigError, MissingRecordError, about
from sightline.files import model_file

if TYPE_CHECKING:  # what brings PyTorch is imported once there is a caption to judge
    from sightline.batch import SceneBatch
    from sightline.decoding.likelihood import Likelihood
    from sightline.models.captioner import Captioner
    from sightline.models.end_to_end import Reader


def likelihood(
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
        features: where the photo's features are, in any format that holds features, for a model that was trained on
            features; without them, the photo is looked at.
        attention: write words, log-probabilities, attention and gates to this .npz file.
    """
    import torch

    from sightline.decoding import likelihood as scoring
    from sightline.devices import choose_device
    from sightline.text.vocabulary import rule

    reader, scenes = _read(photo, model, features, device)
    words = rule(reader.text_rule).split(caption)
    if not words:
        raise ConfigError("the caption has no word", fix="write one")
    scenes = scenes.to(choose_device(device), torch.float32)
    result = scoring.likelihood(reader.model, scenes, reader.vocabulary, [words])[0]
    if attention is not None:
        boxes = None if scenes.boxes is None else scenes.boxes[0].cpu().numpy()
        scoring.save_attention(attention, result, boxes)
    show(_to_json(result), lambda: _print(result), json=json, quiet=quiet)


def _read(photo: str, model: Path | None, features: Path | None, device: str) -> tuple[Reader[Captioner], SceneBatch]:
    """The captioner with its vocabulary, and the scene of the photo: from features, or from the photo itself."""
    import torch

    from sightline.checkpoint.checkpoint_file import kind_of_file
    from sightline.checkpoint.model_checkpoint import load as load_checkpoint
    from sightline.data.image_list import match_photos
    from sightline.data.records import CaptionedPhoto
    from sightline.devices import choose_device
    from sightline.models.end_to_end import EndToEnd, Reader
    from sightline.pipeline import load
    from sightline.training.data import needs_of
    from sightline.training.features import open_scenes
    from sightline.training.objective import refuse_other_vision
    from sightline.training.tensor_tables import collate

    path = None if model is None else model_file(model)
    if features is None:
        pipeline = load(path, device)
        with torch.inference_mode():
            scenes = pipeline.scenes([pipeline.read(photo)])
        return replace(pipeline.bundle.captioner, model=pipeline.captioner), scenes
    fix = "leave --features out, and give the photo's file"
    looks_itself = ConfigError("this model looks at photos itself", where=path, fix=fix)
    if path is None or kind_of_file(path) != "checkpoint":
        raise looks_itself
    checkpoint = load_checkpoint(path, choose_device(device))
    captioner = checkpoint.captioner(path)
    if isinstance(captioner, EndToEnd):
        raise looks_itself
    reader = Reader(captioner, checkpoint.vocabulary, checkpoint.text_rule)
    needs, kind, source = needs_of(reader.model.config), reader.model.config.kind, open_scenes(features)
    ids, asked = source.ids(), Path(photo)
    id = next((id for id in (photo, asked.name, asked.stem) if id in set(ids)), None)
    id = id or match_photos([CaptionedPhoto(photo)], map(CaptionedPhoto, ids)).get(photo)
    if id is None:
        what = f"no features of {photo!r}; ids there look like {next(iter(ids), 'none')!r}"
        raise MissingRecordError(what, where=features, fix="give the id of a photo whose features are there")
    scene = source[id]
    with about(features):
        refuse_other_vision(kind, checkpoint.fingerprint, scene.fingerprint)
    return reader, collate([scene], reader.vocabulary, needs, by=kind)


def _steps(result: Likelihood) -> list[tuple[str, float | None]]:
    words, traces = (*result.caption.words, "<end>"), (*result.caption.trace, result.end)
    return [(word, trace.log_prob) for word, trace in zip(words, traces, strict=True)]


def _to_json(result: Likelihood) -> dict[str, object]:
    def finite(value: float | None) -> float | None:  # JSON has no number for others
        return value if value is not None and math.isfinite(value) else None

    return {
        "caption": result.caption.text,
        "log_prob": finite(result.caption.log_prob),
        "perplexity": finite(result.perplexity),
        "words": [{"word": word, "log_prob": finite(log_prob)} for word, log_prob in _steps(result)],
        "unknown": list(result.unknown),
    }


def _print(result: Likelihood) -> None:
    rows = [(word, f"{log_p or 0.0:.3f}", f"{math.exp(log_p or 0.0):.4f}") for word, log_p in _steps(result)]
    print_table(("word", "log p", "p"), rows)
    print(f"log p(caption | photo) = {result.caption.log_prob:.3f}, perplexity {result.perplexity:.2f}")
    if result.unknown:
        print(f"note: the model does not know {', '.join(result.unknown)}")
