"""The model a run begins with: how it sees, how large it may be, and an output bias that knows word frequencies.

A recipe's model sees by features that were made before, or by a backbone that is trained with it. A bias of zeros makes
all words equally likely, and the first gradients then teach how often each word occurs through whatever the words are
predicted from, the image among it. A bias that knows it from the start leaves the image to tell what is in it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sightline.checkpoint.checkpoint_file import meta_init
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.config import check_ranges
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import EndToEnd, end_to_end
from sightline.models.matcher import Matcher
from sightline.models.model_configs import ModelConfig
from sightline.models.scene_trans import SceneTrans
from sightline.text.vocabulary import PAD, START, Vocabulary
from sightline.vision.concept_names import concept_names
from sightline.vision.concept_tokens import token_names
from sightline.vision.detector import Detector, DetectorConfig
from sightline.vision.efficientnet_lite import Variant
from sightline.vision.encoder import VisionModel
from sightline.vision.grid_encoder import GridEncoder

FIX = "check the numbers under `model` in the recipe"
UNSEEN = 1.0  # occurrences that an id without any is given, so that its logarithm is finite and it can be learned
NEVER = 1e-3  # the same for PAD and START, which no caption predicts: e⁷ times less likely than an unseen word

Find = Callable[[str], Checkpoint]  # from a name in a recipe to the model it stands for


@dataclass(frozen=True)
class CachedFeatures:
    """Scenes are those of `data.features`; vision takes no part in training."""

    kind: Literal["cached"] = "cached"


@dataclass(frozen=True)
class Grid:
    """The photos of `data.images` go through a backbone at every step, so that it can learn too.

    Its learning rate is `optimiser.lrs: {vision: …}` of a stage, 1e-5 in JRAN's paper (section 4.1); 0 freezes it for
    that stage.
    """

    kind: Literal["grid"] = "grid"
    variant: Variant = "lite0"  # of EfficientNet-Lite
    size: int = 224  # photos are squashed to squares of so many pixels
    train: bool = True  # False freezes the backbone in all stages
    # what the backbone starts from. With `start`, the weights of a model that sees are its own.
    weights: Literal["imagenet", "random"] = "imagenet"

    def __post_init__(self) -> None:
        check_ranges(self, "vision.", size="[32, ∞)")

    def build(self) -> GridEncoder:
        make = GridEncoder.imagenet if self.weights == "imagenet" else GridEncoder
        return make(self.variant, self.size).requires_grad_(self.train)


@dataclass(frozen=True)
class Detect:
    """The photos of `data.images` go through the vision model at every step: regions, grid and vector are its own."""

    kind: Literal["detector"] = "detector"
    variant: Variant = "lite2"  # of EfficientNet-Lite
    size: int = 288  # photos are squashed to squares of so many pixels
    boxes: int = 36  # regions of a photo
    train: bool = True  # False freezes the vision model in all stages
    # `imagenet` for the backbone alone, `random`, or a trained model whose sight it takes over, named like `start`.
    # With `start`, the weights of a model that sees are its own.
    weights: str = "imagenet"
    # it keeps the 1,000 classes of ImageNet (`looking.imagenet` teaches it not to forget them); where `weights` are
    # those of a model without them, they start from ImageNet's own
    imagenet: bool = False
    # batch norms keep the statistics that they have, as in detectors that are tuned further: statistics of batches
    # would change what the weights mean, and with it what the backbone knew
    fixed_norms: bool = False

    def build(self, find: Find | None = None) -> Detector:
        built = DetectorConfig(
            variant=self.variant, size=self.size, boxes=self.boxes, names=concept_names(), imagenet=self.imagenet
        ).build()
        if self.weights == "imagenet":
            built.load_imagenet()
        elif self.weights != "random":
            built.copy_weights(self._source(find))
        built.fixed_norms = self.fixed_norms
        return built.requires_grad_(self.train)

    def _source(self, find: Find | None) -> Detector:
        model: Any = None if find is None else find(self.weights).model
        if not isinstance(model, EndToEnd) or not isinstance(model.vision, Detector):
            what = f"`vision.weights` is {self.weights}, which is no trained model with a detector"
            raise ConfigError(what, fix="give imagenet, random, or a model that was trained with vision.kind=detector")
        config = model.vision.config
        if config.variant != self.variant or config.names != concept_names():
            what = f"{self.weights} sees with {config.variant} and {len(config.names)} names"
            fix = "set vision.variant to its own, and train it again where the list of names has changed"
            raise ConfigError(what, fix=fix)
        return model.vision


Vision = CachedFeatures | Grid | Detect


def with_vision(model: Captioner | Matcher, vision: Vision, find: Find | None = None) -> Captioner | Matcher:
    """The model as the recipe wants it to see; `find` gives the models it names."""
    if isinstance(vision, CachedFeatures):
        return model
    return end_to_end(model, vision.build(find) if isinstance(vision, Detect) else vision.build())


def preprocessing(vision: Vision) -> dict[str, Any]:
    """What a checkpoint says of how its vision model, if it has one, prepares photos."""
    if isinstance(vision, CachedFeatures):
        return {}
    return {"encoder": vision.kind, "variant": vision.variant, "size": vision.size, "resize": "squash"}


def config_of(model: VisionModel) -> Vision:
    """The config by which a recipe would build a vision model like `model`."""
    if isinstance(model, Detector):
        return Detect(variant=model.variant, size=model.size, imagenet=model.config.imagenet)
    return Grid(variant=model.variant, size=model.size)


def outline(config: ModelConfig, vocab_size: int) -> Captioner | Matcher:
    """The model without weights: what it needs and how large it is."""
    try:
        with meta_init():
            return config.build(vocab_size)
    except (ArithmeticError, AssertionError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"no {config.kind} model can have these sizes ({reason})", where="model", fix=FIX) from error


def build_model(config: ModelConfig, vocab_size: int) -> Captioner | Matcher:
    """The model, unless its weights alone are more than this machine's memory."""
    size = sum(part.numel() * part.element_size() for part in outline(config, vocab_size).parameters())
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows does not say
        memory = 1 << 40
    if size > memory:
        what = f"the weights of a {config.kind} model of these sizes take {size / 1e9:,.0f} GB"
        raise ConfigError(f"{what}; this machine has {memory / 1e9:,.0f}", where="model", fix=FIX)
    return config.build(vocab_size)


def tell_names(model: Captioner | Matcher, vocabulary: Vocabulary) -> None:
    """Tell a captioner that reads what vision calls things (Scene-Trans with `concepts`) which words the names are."""
    captioner = model.reader if isinstance(model, EndToEnd) else model
    if not isinstance(captioner, SceneTrans) or captioner.names is None:
        return
    names = token_names()
    if captioner.config.concepts != len(names):
        what = f"`model.concepts` is {captioner.config.concepts}, and the vision model has {len(names):,} names"
        raise ConfigError(what, fix=f"set it to {len(names)}, or to 0, which leaves names out")
    captioner.names.set_words(names, vocabulary)


def log_frequencies(captions: Tensor, vocab_size: int) -> Tensor:
    """(vocab_size,) log of the share of each id among all predicted ones.

    `captions` (M, T) are START, words, END and padding: words, unknown ones and END are predicted.
    """
    counts = torch.bincount(captions[:, 1:].flatten(), minlength=vocab_size).double()
    counts[[PAD, START]] = 0
    total = counts.sum()
    counts.clamp_(min=UNSEEN)
    counts[[PAD, START]] = NEVER
    return (counts / total).log().float()


@torch.no_grad()
def start_output_bias(model: Captioner | Matcher, captions: Tensor | None) -> None:
    """Set the output bias of a captioner, or of the captioner in a matcher (VSRN), to log frequencies in `captions`.

    Without captions it is set to zero. Models that write nothing and captioners without an output bias stay as they
    are.
    """
    captioner = model if isinstance(model, Captioner) else getattr(model, "captioner", None)
    bias = captioner.output_bias() if isinstance(captioner, Captioner) else None
    if bias is not None:
        bias.copy_(torch.zeros_like(bias) if captions is None else log_frequencies(captions, len(bias)))
