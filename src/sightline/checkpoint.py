"""One file holds one model: weights as safetensors and, as JSON in the header, all the model needs to be used.

The header tells the model's config, its words, how captions are split into them, how pictures are prepared, which
vision model made the scenes it was trained on, and a card for people. Nothing in it can run code. The backbone of a
model that looks for itself (`sightline.seeing`) is in the same file: its weights are named `vision.…`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import nn
from torch.overrides import TorchFunctionMode

from sightline.config import build
from sightline.errors import CheckpointError, ConfigError
from sightline.files import PathLike, atomic_write, checksum, existing
from sightline.models.captioner import Captioner
from sightline.models.matcher import Matcher
from sightline.models.zoo import ModelConfig
from sightline.seeing import Seeing, seeing
from sightline.text.vocabulary import Vocabulary
from sightline.vision.efficientnet_lite import Variant
from sightline.vision.grid_encoder import GridEncoder

LAYOUT = 1


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
class _Vision:
    variant: Variant
    size: int


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
    vision: _Vision | None = None


def save(path: PathLike, checkpoint: Checkpoint) -> None:
    """Write the checkpoint; the file is whole or not there."""
    model = checkpoint.model
    if model.words != len(checkpoint.vocabulary):
        raise CheckpointError(
            f"a model of {model.words} ids with a vocabulary of {len(checkpoint.vocabulary)}",
            where=path,
            fix="build the model with len(vocabulary)",
        )
    weights = {name: part.detach().cpu().contiguous() for name, part in model.state_dict().items()}
    vision = model.vision if isinstance(model, Seeing) else None
    header = {
        "layout": LAYOUT,
        "model": dataclasses.asdict(model.config),
        "words": checkpoint.vocabulary.words,
        "text_rule": checkpoint.text_rule,
        "preprocessing": checkpoint.preprocessing,
        "fingerprint": checkpoint.fingerprint if vision is None else vision.fingerprint(),
        "vision": None if vision is None else {"variant": vision.variant, "size": vision.size},
        "card": checkpoint.card,
        "checksum": checksum_of(weights),
    }
    text = json.dumps(header, ensure_ascii=False)
    with atomic_write(path) as file:
        file.write(to_bytes(weights, {"sightline": text, "checksum": str(checksum(text.encode()))}))


def read_header(path: PathLike) -> dict[str, Any]:
    """What a checkpoint says about itself, without its weights."""
    existing(path)
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"not a Sightline checkpoint ({error})",
            where=path,
            fix="give a file that Sightline saved; `sightline convert` reads checkpoints of other projects",
        ) from error
    text = metadata.get("sightline", "")
    if text and metadata.get("checksum") != str(checksum(text.encode())):
        raise CheckpointError("its description is damaged", where=path, fix="copy or download the file again")
    try:
        header: dict[str, Any] = json.loads(text)
        layout = header["layout"]
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(
            "the file holds weights but not Sightline's description of them",
            where=path,
            fix="give a file that Sightline saved",
        ) from error
    if layout != LAYOUT:
        raise CheckpointError(
            f"it was saved in layout {layout}, and this version reads layout {LAYOUT}",
            where=path,
            fix="use the version of Sightline that saved it, or save it again",
        )
    return header


def load(path: PathLike, device: torch.device | str = "cpu") -> Checkpoint:
    """Read a checkpoint; its model is in evaluation mode on `device`."""
    told = read_header(path)
    try:
        header = build(_Header, told, where=str(path))
    except ConfigError as error:
        raise CheckpointError(
            f"this version cannot read its model: {error.what}", where=path, fix="use the version that saved it"
        ) from error
    with safe_open(path, "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
    if checksum_of(weights) != header.checksum:
        raise CheckpointError("its weights are damaged", where=path, fix="copy or download the file again")
    vocabulary = Vocabulary(header.words)
    try:
        model = _built(header, len(vocabulary))
        assign(model, weights)
    except (RuntimeError, TypeError, OverflowError) as error:  # the latter for sizes that no tensor can have
        raise CheckpointError(
            f"its weights do not fit its config: {error}", where=path, fix="save the model again"
        ) from error
    return Checkpoint(
        model.to(device).eval(),
        vocabulary,
        header.text_rule,
        header.preprocessing,
        header.fingerprint,
        header.card,
    )


def _built(header: _Header, words: int) -> Captioner | Matcher:
    with weightless():
        model: Captioner | Matcher = header.model.build(words)
        if header.vision is not None:
            model = seeing(model, GridEncoder(header.vision.variant, header.vision.size))
    return model


class _NoDraws(TorchFunctionMode):
    """First weights are not drawn. (`normal_` on the meta device would import PyTorch's compiler, for seconds.)"""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def weightless() -> Iterator[None]:
    """Models built in here have shapes only, so that sizes take no memory until weights prove to have them."""
    with torch.device("meta"), _NoDraws():
        yield


def assign(model: nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Give copies of `weights` to a `weightless` model; a RuntimeError where they do not fit.

    Everything such a model holds must be in its state dict: what it computes when built is never computed there.
    """
    types = {name: part.dtype for name, part in model.state_dict().items()}
    copies = {
        name: part.to(types.get(name, part.dtype), copy=True, memory_format=torch.contiguous_format)
        for name, part in weights.items()
    }
    model.load_state_dict(copies, assign=True)


def checksum_of(weights: dict[str, torch.Tensor]) -> int:
    """One number for tensors with their names, to notice damage."""
    total = 0
    for name in sorted(weights):
        data = weights[name].contiguous().flatten().view(torch.uint8).numpy()
        total = checksum(f"{total} {name} {checksum(data.data)}".encode())
    return total
