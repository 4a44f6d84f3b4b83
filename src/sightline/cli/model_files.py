"""What a model file holds, as `sightline models` tells it: kinds, sizes, and what the card says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sightline.checkpoint import bundle, model_checkpoint
from sightline.checkpoint.bundle import Bundle
from sightline.checkpoint.checkpoint_file import kind_of_file, read_description
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import EndToEnd
from sightline.models.matcher import Matcher
from sightline.models.reader import Reader
from sightline.text.vocabulary import Vocabulary
from sightline.vision.vision_models import VisionModel

LICENCE = "LICENSE"  # beside the model that comes with Sightline
CARD_KEYS = ("data", "measured on", "metrics")  # what the card of a trained model says of its part


def describe(path: Path) -> dict[str, Any]:
    """Everything `models` tells about a file, JSON-ready. It is read whole, so that damage is noticed.

    The keys are `file`, `holds` (checkpoint or bundle), `name`, `bytes`, `precision`, `parameters`, `parts` (for each
    `part`, `kind`, `parameters`, `words`, `data`, `measured on`, `metrics`; null where unknown), `licence` and `card`.
    Metrics of a part are those at the end of its training; those of a bundle as it is are in its `card`.
    """
    if kind_of_file(path) == "bundle":
        whole = bundle.load_bundle(path)
        parts, card = _of_bundle(whole), whole.card
        precision = read_description(path, bundle.LAYOUT, "bundle")["precision"]
    else:
        loaded = model_checkpoint.load(path)
        parts, card, precision = _of_checkpoint(loaded), loaded.card, "float32"
    return {
        "file": os.fspath(path),
        "holds": kind_of_file(path),
        "name": card.get("name"),
        "bytes": path.stat().st_size,
        "precision": precision,
        "parameters": sum(part["parameters"] for part in parts),
        "parts": parts,
        "licence": card.get("licence", card.get("license")),
        "card": card,
    }


def describe_default() -> dict[str, Any]:
    """The same of the model that comes with Sightline; its licence is the file beside it, if its card tells none."""
    path = bundle.default_bundle()
    found, terms = describe(path), path.with_name(LICENCE)
    if found["licence"] is None and terms.is_file():
        found["licence"] = terms.read_text(encoding="utf-8").strip()
    return found


def _of_bundle(whole: Bundle) -> list[dict[str, Any]]:
    readers: dict[str, Reader[Any] | None] = {"captioner": whole.captioner, "matcher": whole.matcher}
    told = [
        _part(part, reader.model, whole.card.get(part), reader.vocabulary)
        for part, reader in readers.items()
        if reader is not None
    ]
    return [_part("vision", whole.vision), *told]


def _of_checkpoint(loaded: Checkpoint) -> list[dict[str, Any]]:
    model = loaded.model
    reader = model.reader if isinstance(model, EndToEnd) else model
    part = "captioner" if isinstance(model, Captioner) else "matcher"
    told = [_part(part, reader, loaded.card, loaded.vocabulary)]
    return [_part("vision", model.vision), *told] if isinstance(model, EndToEnd) else told


def _part(
    part: str, model: VisionModel | Captioner | Matcher, card: Any = None, words: Vocabulary | None = None
) -> Any:
    said = card if isinstance(card, dict) else {}
    return {
        "part": part,
        "kind": model.config.kind,
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "words": None if words is None else len(words.words),
        **{key: said.get(key) for key in CARD_KEYS},
    }
