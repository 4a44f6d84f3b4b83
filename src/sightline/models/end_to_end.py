"""Models that look for themselves: a captioner or matcher with the vision backbone that makes its scenes.

Scenes that carry pixels go through the backbone first, with gradients, so that training reaches it (JRAN, section 4.1:
the CNN at 1e-5, the language model at 5e-4). Scenes that vision made before are read as they are. Parameters are named
`vision.…` and `captioner.…` or `matcher.…`, so a recipe gives the backbone a rate of its own by
`optimiser.lrs: {vision: 1.0e-5}`, and freezes it by 0.
"""

from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

from torch import Tensor, nn

from sightline.batch import SceneBatch, TextBatch
from sightline.errors import CheckpointError, ConfigError
from sightline.models.captioner import Captioner, Memory, WrappedCaptioner
from sightline.models.matcher import AligningMatcher, Embedding, Matcher
from sightline.text.vocabulary import Vocabulary
from sightline.vision.encoder import VisionModel, pool_grid

VISION_PARTS = ("regions", "boxes", "grid", "vector")  # the scene parts that the backbone makes

Model = TypeVar("Model", Captioner, Matcher)


class EndToEnd(nn.Module):
    """What the models below share: a backbone, and scenes made by it."""

    vision: VisionModel

    @property
    def reader(self) -> Captioner | Matcher:
        raise NotImplementedError

    @property
    def is_frozen(self) -> bool:
        return not any(parameter.requires_grad for parameter in self.vision.parameters())

    def see(self, scenes: SceneBatch) -> SceneBatch:
        """The scenes as the backbone sees them, if they are pixels; else as they are."""
        if scenes.pixels is None:
            return scenes
        return replace(self.vision.scenes(scenes.pixels, scenes.ids, scenes.fingerprint), sizes=scenes.sizes)

    def train(self, mode: bool = True) -> Self:
        """Switch modes; a frozen backbone stays in evaluation mode, so that its batch norms stay as they are too."""
        super().train(mode)
        if self.is_frozen:
            self.vision.eval()
        return self


def frozen_scenes(model: nn.Module, scenes: SceneBatch) -> SceneBatch:
    """What a model sees in pixels, if its vision does not learn: then the scenes serve all that follows."""
    return model.see(scenes) if isinstance(model, EndToEnd) and model.is_frozen else scenes


class EndToEndCaptioner(WrappedCaptioner, EndToEnd):
    """A captioner behind a backbone: all but vision is the captioner's own."""

    def __init__(self, captioner: Captioner, vision: VisionModel) -> None:
        super().__init__()
        self.vision, self.captioner = vision, captioner
        self.needs, self.vocab_size, self.config = ("pixels",), captioner.vocab_size, captioner.config

    def encode(self, scenes: SceneBatch) -> Memory:
        return self.captioner.encode(self.see(scenes))


class PooledCaptioner(WrappedCaptioner):
    """A captioner of features whose grid was pooled (`data.encoder: detector`), for scenes as vision makes them."""

    def __init__(self, captioner: Captioner, side: int) -> None:
        super().__init__()
        self.captioner, self.side = captioner, side
        self.needs, self.vocab_size, self.config = captioner.needs, captioner.vocab_size, captioner.config

    def encode(self, scenes: SceneBatch) -> Memory:
        return self.captioner.encode(pool_grid(scenes, self.side))


class EndToEndMatcher(EndToEnd, Matcher):
    """A matcher behind a backbone: all but vision is the matcher's own."""

    def __init__(self, matcher: Matcher, vision: VisionModel) -> None:
        super().__init__()
        self.vision, self.matcher = vision, matcher
        self.needs, self.vocab_size, self.config = ("pixels",), matcher.vocab_size, matcher.config

    def __getattr__(self, name: str) -> Any:
        """What a kind of matcher has besides the contract, such as VSRN's `generation_log_probs`."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in ("vision", "matcher") or name.startswith("_"):
                raise
            return getattr(self.matcher, name)

    @property
    def reader(self) -> Matcher:
        return self.matcher

    def embed_images(self, scenes: SceneBatch) -> Embedding:
        return self.matcher.embed_images(self.see(scenes))

    def embed_texts(self, texts: TextBatch) -> Embedding:
        return self.matcher.embed_texts(texts)

    def similarity(self, images: Embedding, texts: Embedding) -> Tensor:
        return self.matcher.similarity(images, texts)


class EndToEndAligner(EndToEndMatcher, AligningMatcher):
    """A matcher that aligns words with regions, behind a backbone."""

    def alignment(self, images: Embedding, texts: Embedding, forced: Tensor | None = None) -> Tensor:
        assert isinstance(self.matcher, AligningMatcher)
        return self.matcher.alignment(images, texts, forced)


def end_to_end(model: Captioner | Matcher, vision: VisionModel) -> EndToEndCaptioner | EndToEndMatcher:
    missing = [part for part in model.needs if part not in VISION_PARTS]
    if missing:
        what = f"a {model.config.kind} model reads {missing[0]}, which a backbone does not see"
        raise ConfigError(what, fix="train it on features that hold them (vision.kind=cached)")
    if isinstance(model, Captioner):
        return EndToEndCaptioner(model, vision)
    return (EndToEndAligner if isinstance(model, AligningMatcher) else EndToEndMatcher)(model, vision)


@dataclass(frozen=True, eq=False)
class Reader(Generic[Model]):
    """A model that reads scenes, its words, and the name of the rule that splits captions into them."""

    model: Model
    vocabulary: Vocabulary
    text_rule: str

    def __post_init__(self) -> None:
        kind, vocab_size = self.model.config.kind, self.model.vocab_size
        if vocab_size != len(self.vocabulary):
            what = f"a {kind} model of {vocab_size} ids with a vocabulary of {len(self.vocabulary)}"
            raise CheckpointError(what, fix="give the vocabulary it was built with")
        missing = [part for part in self.model.needs if part not in VISION_PARTS]
        if missing:
            what = f"a {kind} model reads {missing[0]}, which vision does not give"
            raise CheckpointError(what, fix="bundle one that reads scenes")
