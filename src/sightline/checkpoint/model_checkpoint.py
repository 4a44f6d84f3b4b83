"""One file holds one model: weights as safetensors and, as JSON in the header, all the model needs to be used.

The header tells the model's config, its words, how captions are split into them, how pictures are prepared, which
vision model made the scenes it was trained on, and a card for people. Nothing in it can run code. The backbone of a
model that looks for itself (`sightline.models.end_to_end`) is in the same file: its weights are named `vision.…`.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from sightline.checkpoint.checkpoint_file import (
    build_model,
    plain,
    read_file,
    weights_must_fit,
    write_file,
)
from sightline.errors import CheckpointError
from sightline.files import PathLike
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import EndToEnd, end_to_end
from sightline.models.matcher import Matcher
from sightline.models.model_configs import ModelConfig
from sightline.text.vocabulary import Vocabulary
from sightline.vision.encoder import VisionConfig


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model with all it needs to be used."""

    model: Captioner | Matcher  # in evaluation mode when loaded
    vocabulary: Vocabulary
    text_rule: str = "self-critical"  # which splits captions into these words (`sightline.text.vocabulary.RULES`)
    preprocessing: dict[str, Any] = field(default_factory=dict)  # how pictures were prepared for the vision model
    fingerprint: str = ""  # of the scenes it was trained on; "" where unknown
    card: dict[str, Any] = field(default_factory=dict)  # name, data, licence, metrics, limits: what people should know

    def captioner(self, where: PathLike = "") -> Captioner:
        if isinstance(self.model, Captioner):
            return self.model
        what = f"a {self.model.config.kind} model matches texts with images and cannot write captions"
        raise CheckpointError(what, where=where or None, fix="give a captioner's checkpoint")

    def matcher(self, where: PathLike = "") -> Matcher:
        if isinstance(self.model, Matcher):
            return self.model
        what = f"a {self.model.config.kind} model writes captions and does not match texts with images"
        raise CheckpointError(what, where=where or None, fix="give a matcher's checkpoint, such as scan or vsrn")


@dataclass(frozen=True, kw_only=True)
class _Header:
    model: ModelConfig
    words: tuple[str, ...]
    text_rule: str
    preprocessing: dict[str, Any]
    fingerprint: str
    vision: VisionConfig | None = None
    card: dict[str, Any]


def save(path: PathLike, checkpoint: Checkpoint) -> None:
    """Write the checkpoint; the file is whole or not there."""
    model = checkpoint.model
    if model.vocab_size != len(checkpoint.vocabulary):
        what = f"a model of {model.vocab_size} ids with a vocabulary of {len(checkpoint.vocabulary)}"
        raise CheckpointError(what, where=path, fix="build the model with len(vocabulary)")
    vision = model.vision if isinstance(model, EndToEnd) else None
    header = _Header(
        model=model.config,
        words=checkpoint.vocabulary.words,
        text_rule=checkpoint.text_rule,
        preprocessing=checkpoint.preprocessing,
        fingerprint=checkpoint.fingerprint if vision is None else vision.fingerprint(),
        vision=None if vision is None else vision.config,
        card=checkpoint.card,
    )
    write_file(path, plain(model), header, "checkpoint")


def load(path: PathLike, device: torch.device | str = "cpu") -> Checkpoint:
    """Read a checkpoint; its model is in evaluation mode on `device`."""
    header, weights = read_file(path, _Header, "checkpoint")
    vocabulary = Vocabulary(header.words)

    def make() -> Captioner | Matcher:
        model: Captioner | Matcher = header.model.build(len(vocabulary))
        return model if header.vision is None else end_to_end(model, header.vision.build())

    with weights_must_fit(path):
        model = build_model(make, weights).to(device).eval()
    return Checkpoint(model, vocabulary, header.text_rule, header.preprocessing, header.fingerprint, header.card)
