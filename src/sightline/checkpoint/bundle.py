"""One file from a photo to a grounded caption: the vision model, a captioner, a matcher, and what they are used with.

    bundle = load_bundle("sightline.safetensors")
    bundle.vision, bundle.captioner.model, bundle.captioner.vocabulary, bundle.matcher, bundle.calibration, bundle.card

Weights are named `vision.…`, `captioner.…` and `matcher.…`, and are stored in few bits
(`sightline.checkpoint.checkpoint_file`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sightline.checkpoint.checkpoint_file import (
    Module,
    Precision,
    build_model,
    pack,
    plain,
    read_file,
    unpack,
    weights_must_fit,
    write_file,
)
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.errors import CheckpointError
from sightline.files import PathLike
from sightline.grounding.box_chooser import BoxChooser
from sightline.grounding.calibration import Calibration, SupportModel
from sightline.grounding.choice import Choice
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import EndToEnd, Reader
from sightline.models.matcher import Matcher
from sightline.models.model_configs import CaptionerConfig, MatcherConfig
from sightline.models.scene_matcher import SceneMatcher
from sightline.models.word_pointer import WordPointer, WordPointerConfig
from sightline.text.vocabulary import Vocabulary
from sightline.vision.encoder import VisionConfig, VisionModel

DEFAULT = ("weights", "sightline.safetensors")  # inside the package


@dataclass(frozen=True, eq=False)
class Bundle:
    """The models that caption a photo, with the settings they are used with."""

    vision: VisionModel  # from pixels to scenes
    captioner: Reader[Captioner]  # from scenes to captions
    matcher: Reader[Matcher] | None = None  # finds words in scenes; without it the captioner's attention points
    pointer: WordPointer | None = None  # tells which box a word of the matcher means; without it a rule does
    calibration: Calibration = field(default_factory=Calibration)  # from log-probabilities to confidence
    pointing: BoxChooser = field(default_factory=BoxChooser)  # which words point at which boxes
    auditing: SupportModel = field(default_factory=SupportModel)  # how well a photo supports a noun, by both models
    card: dict[str, Any] = field(default_factory=dict)  # name, data, licence, metrics, limits: what people should know
    # What a caption's cosine with the photo, by the matcher, counts beside its log-probability when the best of a beam
    # is chosen; 0 leaves the choice to the captioner.
    fit: float = 0.0
    choice: Choice = field(default_factory=Choice)  # what else that choice goes by

    @classmethod
    def of(cls, captioner: Checkpoint, matcher: Checkpoint | None = None, card: dict[str, Any] | None = None) -> Bundle:
        """A bundle of a captioner with its own vision model, and of a matcher that was trained on what this model sees.

        The card is the captioner's where none is given.
        """
        model = captioner.captioner()
        if not isinstance(model, EndToEnd):
            what = f"this {model.config.kind} model reads features and has no eyes of its own"
            raise CheckpointError(what, fix="give the checkpoint of a captioner that was trained with a vision model")
        assert isinstance(model.reader, Captioner)
        reader = Reader(model.reader, captioner.vocabulary, captioner.text_rule)
        matching = None if matcher is None else _matcher_reader(matcher, model.vision.fingerprint())
        return cls(model.vision, reader, matching, card=captioner.card if card is None else card)


def _matcher_reader(matcher: Checkpoint, fingerprint: str) -> Reader[Matcher]:
    model = matcher.matcher()
    if matcher.fingerprint and matcher.fingerprint != fingerprint:
        what = "captioner and matcher have learned from different vision models"
        raise CheckpointError(what, fix="train both with the same one")
    reader = model.reader if isinstance(model, EndToEnd) else model
    assert isinstance(reader, Matcher)
    return Reader(reader, matcher.vocabulary, matcher.text_rule)


@dataclass(frozen=True)
class _Captioner:
    config: CaptionerConfig
    rule: str
    words: str  # one a line


@dataclass(frozen=True)
class _Matcher:
    config: MatcherConfig
    rule: str
    words: str | None  # None for the captioner's


@dataclass(frozen=True, kw_only=True)
class _Header:
    precision: Precision
    vision: VisionConfig
    captioner: _Captioner
    matcher: _Matcher | None
    calibration: Calibration
    pointing: BoxChooser
    auditing: SupportModel = field(default_factory=SupportModel)
    fit: float = 0.0
    choice: Choice = field(default_factory=Choice)
    pointer: WordPointerConfig | None = None
    card: dict[str, Any]


def default_bundle() -> Path:
    """The model that comes with Sightline."""
    path = Path(str(resources.files("sightline").joinpath(*DEFAULT)))
    if not path.is_file():
        what = "the model that comes with Sightline is not in this installation"
        fix = "install a release that has it, or name a model file of your own: `--model FILE`, sightline.load(FILE)"
        raise CheckpointError(what, where=path, fix=fix)
    return path


def save_bundle(path: PathLike, bundle: Bundle, precision: Precision = "int8") -> None:
    """Write the bundle; the file is whole or not there."""
    captioner, matcher = bundle.captioner, bundle.matcher
    models: dict[str, nn.Module] = {"vision": bundle.vision, "captioner": captioner.model}
    matcher_header = None
    if matcher is not None:
        models["matcher"] = matcher.model
        words = None if matcher.vocabulary == captioner.vocabulary else _lines(matcher.vocabulary)
        matcher_header = _Matcher(matcher.model.config, matcher.text_rule, words)
    if bundle.pointer is not None:
        models["pointer"] = bundle.pointer
    header = _Header(
        precision=precision,
        vision=bundle.vision.config,
        captioner=_Captioner(captioner.model.config, captioner.text_rule, _lines(captioner.vocabulary)),
        matcher=matcher_header,
        calibration=bundle.calibration,
        pointing=bundle.pointing,
        auditing=bundle.auditing,
        fit=bundle.fit,
        choice=bundle.choice,
        pointer=None if bundle.pointer is None else bundle.pointer.config,
        card=bundle.card,
    )
    weights = {f"{part}.{name}": tensor for part, model in models.items() for name, tensor in plain(model).items()}
    write_file(path, pack(weights, precision), header, "bundle")


def load_bundle(path: PathLike | None = None, device: torch.device | str = "cpu") -> Bundle:
    """Read a bundle, by default the one that comes with Sightline; its models are in evaluation mode, in float32."""
    path = default_bundle() if path is None else path
    header, packed = read_file(path, _Header, "bundle")
    captioner, matcher = header.captioner, header.matcher

    def build_part(make: Callable[[], Module], prefix: str) -> Module:
        part = {name.removeprefix(prefix): tensor for name, tensor in packed.items() if name.startswith(prefix)}
        return build_model(make, unpack(part)).to(device).eval()

    vocabulary = _vocabulary(captioner.words)
    matcher_reader = pointer = None
    with weights_must_fit(path):
        vision: VisionModel = build_part(lambda: header.vision.build(), "vision.")
        model: Captioner = build_part(lambda: captioner.config.build(len(vocabulary)), "captioner.")
        if matcher is not None:
            words = vocabulary if matcher.words is None else _vocabulary(matcher.words)
            matching: Matcher = build_part(lambda: matcher.config.build(len(words)), "matcher.")
            matcher_reader = Reader(matching, words, matcher.rule)
        if header.pointer is not None:
            pointer = build_part(header.pointer.build, "pointer.")
    if pointer is not None:
        finds = None if matcher_reader is None else matcher_reader.model
        widths = (pointer.config.word_width, pointer.config.region_width)
        if not isinstance(finds, SceneMatcher) or widths != (finds.config.size, finds.config.region_width):
            fix = "train the pointer of this matcher: tools/train_pointer.py"
            raise CheckpointError("its word pointer was not made for its matcher", where=path, fix=fix)
    return Bundle(
        vision,
        Reader(model, vocabulary, captioner.rule),
        matcher_reader,
        pointer,
        calibration=header.calibration,
        pointing=header.pointing,
        auditing=header.auditing,
        card=header.card,
        fit=header.fit,
        choice=header.choice,
    )


def _lines(vocabulary: Vocabulary) -> str:
    if broken := [word for word in vocabulary if "\n" in word]:
        raise CheckpointError(f"the word {broken[0]!r} has a line break", fix="leave it out of the vocabulary")
    return "\n".join(vocabulary)


def _vocabulary(lines: str) -> Vocabulary:
    return Vocabulary(lines.split("\n") if lines else ())
