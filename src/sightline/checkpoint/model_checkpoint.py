"""One file holds one model: weights as safetensors and, as JSON in the header, all the model needs to be used.

The header tells the model's config, its words, how captions are split into them, how pictures are prepared, which
vision model made the scenes it was trained on, and a card for people. Nothing in it can run code. The backbone of a
model that looks for itself (`sightline.models.end_to_end`) is in the same file: its weights are named `vision.…`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch

from sightline.checkpoint.checkpoint_file import (
    assign,
    meta_init,
    plain,
    read_description,
    read_tensors,
    weights_must_fit,
    write_file,
)
from sightline.config import build
from sightline.errors import CheckpointError, ConfigError
from sightline.files import PathLike
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import EndToEnd, end_to_end
from sightline.models.matcher import Matcher
from sightline.models.model_configs import ModelConfig
from sightline.text.vocabulary import Vocabulary
from sightline.vision.vision_models import VisionConfig

LAYOUT = 1  # of the description; a file of another layout is refused


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model with all it needs to be used.

    Attributes:
        model: in evaluation mode when loaded.
        vocabulary: its words.
        text_rule: the name of the rule that splits captions into these words (`sightline.text.vocabulary.RULES`).
        preprocessing: how pictures were prepared for the vision model.
        fingerprint: of the scenes it was trained on; "" where unknown.
        card: name, data, licence, metrics, limits: whatever people should know.
    """

    model: Captioner | Matcher
    vocabulary: Vocabulary
    text_rule: str = "self-critical"
    preprocessing: dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    card: dict[str, Any] = field(default_factory=dict)

    def captioner(self, where: PathLike = "") -> Captioner:
        """The model, if it is a captioner."""
        if isinstance(self.model, Captioner):
            return self.model
        raise CheckpointError(
            f"a {self.model.config.kind} model matches texts with images and cannot write captions",
            where=where or None,
            fix="give a captioner's checkpoint",
        )

    def matcher(self, where: PathLike = "") -> Matcher:
        """The model, if it is a matcher."""
        if isinstance(self.model, Matcher):
            return self.model
        raise CheckpointError(
            f"a {self.model.config.kind} model writes captions and does not match texts with images",
            where=where or None,
            fix="give a matcher's checkpoint, such as scan or vsrn",
        )


@dataclass(frozen=True)
class _Header:
    layout: int
    model: ModelConfig
    words: list[str]
    text_rule: str
    preprocessing: dict[str, Any]
    fingerprint: str
    card: dict[str, Any]
    checksum: int
    vision: VisionConfig | None = None


def save(path: PathLike, checkpoint: Checkpoint) -> None:
    """Write the checkpoint; the file is whole or not there."""
    model = checkpoint.model
    if model.vocab_size != len(checkpoint.vocabulary):
        raise CheckpointError(
            f"a model of {model.vocab_size} ids with a vocabulary of {len(checkpoint.vocabulary)}",
            where=path,
            fix="build the model with len(vocabulary)",
        )
    vision = model.vision if isinstance(model, EndToEnd) else None
    header = {
        "layout": LAYOUT,
        "model": dataclasses.asdict(model.config),
        "words": checkpoint.vocabulary.words,
        "text_rule": checkpoint.text_rule,
        "preprocessing": checkpoint.preprocessing,
        "fingerprint": checkpoint.fingerprint if vision is None else vision.fingerprint(),
        "vision": None if vision is None else dataclasses.asdict(vision.config),
        "card": checkpoint.card,
    }
    write_file(path, plain(model), header, "checkpoint")


def read_header(path: PathLike) -> dict[str, Any]:
    """What a checkpoint says about itself, without its weights."""
    return read_description(path, LAYOUT, "checkpoint")


def load(path: PathLike, device: torch.device | str = "cpu") -> Checkpoint:
    """Read a checkpoint; its model is in evaluation mode on `device`."""
    told = read_header(path)
    try:
        header = build(_Header, told, where=str(path))
    except ConfigError as error:
        raise CheckpointError(
            f"this version cannot read its model: {error.what}", where=path, fix="use the version that saved it"
        ) from error
    weights, vocabulary = read_tensors(path, header.checksum), Vocabulary(header.words)
    with weights_must_fit(path):
        model = _built(header, len(vocabulary), len(weights))
        assign(model, weights)
    return Checkpoint(
        model.to(device).eval(),
        vocabulary,
        header.text_rule,
        header.preprocessing,
        header.fingerprint,
        header.card,
    )


def _built(header: _Header, vocab_size: int, tensors: int) -> Captioner | Matcher:
    with meta_init(tensors):
        model: Captioner | Matcher = header.model.build(vocab_size)
        if header.vision is not None:
            model = end_to_end(model, header.vision.build())
    return model
