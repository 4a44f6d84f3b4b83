"""What an objective is, and what all share: checks of model and batch, frozen teachers, passes without gradients.

An objective gives sums over a batch and what to divide them by. It is a module, so that what it trains beside the model
(the evaluator of a GAN) joins the optimiser, and what it keeps (a replaced reference) is saved with the training state.
Frozen teachers are kept outside of it, in a tuple or a `Teacher`: no optimiser reaches them, and no state holds them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch, TextBatch
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner
from sightline.models.matcher import Embedding, GlobalMatcher, Matcher
from sightline.text.vocabulary import UNK, Vocabulary
from sightline.training.batches import Batch, Batching
from sightline.training.tensor_tables import Pool


@dataclass(frozen=True)
class Progress:
    """How far training is: the stage's epoch and step, both from 0."""

    epoch: int = 0
    step: int = 0


@dataclass(frozen=True, eq=False)
class Losses:
    """The sum that is minimised after division by the objective's weight, and its parts for the log, sums too."""

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Context:
    """What objectives may need besides model and batch."""

    vocabulary: Vocabulary  # of the model that is trained
    pools: dict[str, Pool] = field(default_factory=dict)  # `train`, `val` and, for R²M, `corpus`
    # gives the checkpoint a name in a recipe stands for: `row:NAME`, `start`, or a path
    find: Callable[[str], Checkpoint] | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  # where training runs
    seed: int = 0  # of the run

    def checkpoint(self, name: str) -> Checkpoint:
        if self.find is None:
            raise ConfigError(f"nothing here can find the model {name!r}", fix="give a path to a checkpoint")
        return self.find(name)


class Objective(nn.Module, ABC):
    """A loss over batches, by the choices of its `config`.

    `negatives`, `positives` and `beside` (how it is made) ask for these parts of a batch.
    """

    negatives: int = 0
    positives: bool = False
    beside: Batching | None = None

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.config = config

    def weight(self, batch: Batch) -> float:
        """What the sums over this batch are divided by, known before the model runs: captions, unless overridden."""
        return float(len(self.captions(batch)))

    @abstractmethod
    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        """The sums over this batch."""

    def begin(self, model: Any, epoch: int = 0) -> None:
        """Called when a stage begins, or goes on after `epoch` epochs: the place to copy the model as a reference.

        Where it goes on, what the training state holds of the objective is loaded after this.
        """

    def after_epoch(self, model: Any, epoch: int) -> None:
        """Called after each epoch: the place to replace a reference."""

    def captioner(self, model: Any) -> Captioner:
        """The model, if it is a captioner; `matcher` and `expect` are for other kinds."""
        trained: Captioner = self.expect(model, Captioner, "captioners", "choose a captioner, or the objective triplet")
        return trained

    def matcher(self, model: Any) -> Any:
        return self.expect(model, Matcher, "matchers", "choose a matcher, or the objective cross-entropy")

    def expect(self, model: Any, wanted: type, what: str, fix: str) -> Any:
        if isinstance(model, wanted):
            return model
        kind = getattr(getattr(model, "config", None), "kind", type(model).__name__)
        raise ConfigError(f"the objective {self.name} trains {what}, and {kind} is none", fix=fix)

    def scenes(self, batch: Batch) -> SceneBatch:
        if batch.scenes is None:
            fix = "set batch.pool to train, and give data.features"
            raise ConfigError(f"the objective {self.name} needs photos", fix=fix)
        return batch.scenes

    def captions(self, batch: Batch) -> TextBatch:
        if batch.texts is None:
            raise ConfigError(f"the objective {self.name} needs captions", fix="set batch.of to images or pairs")
        return batch.texts

    def count_words(self, batch: Batch) -> float:
        return float(self.captions(batch).mask[:, 1:].sum())

    @property
    def name(self) -> str:
        """What recipes call it."""
        return getattr(self.config, "kind", type(self).__name__)


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """The model in training or evaluation mode, and afterwards as it was."""
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)


@contextmanager
def no_gradients(device: torch.device) -> Iterator[None]:
    """No gradients, and no weights left behind that lack them.

    Autocast keeps the half-precision copy of a weight until its block ends. PyTorch releases differ in whether one that
    was made without gradients then serves the pass with gradients too, and the weight silently does not learn.
    """
    enabled, dtype = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
    with torch.no_grad(), torch.autocast(device.type, dtype, enabled=enabled, cache_enabled=False):
        yield


def refuse_other_vision(model: str, trained_on: str, fingerprint: str) -> None:
    """Refuse scenes that another vision model made than those a model was trained on; "" is not known."""
    if trained_on and fingerprint and trained_on != fingerprint:
        what = f"{model} was trained on scenes {trained_on}, and these are {fingerprint}"
        raise ConfigError(what, fix="use features of the same vision model")


class Teacher:
    """A matcher's checkpoint as a recipe names it. Two models meet at surface words, each with its own table of ids.

    With `full_stop`, captions are given to it with one at the end, for matchers whose training captions had one.
    """

    def __init__(self, context: Context, name: str, full_stop: bool = False) -> None:
        checkpoint = context.checkpoint(name)
        self.model = checkpoint.matcher(name).to(context.device).eval().requires_grad_(False)
        self.name, self.vocabulary, self.fingerprint = name, checkpoint.vocabulary, checkpoint.fingerprint
        self.full_stop = full_stop

    def images(self, scenes: SceneBatch) -> Embedding:
        """Embedded images; scenes of another vision model than it was trained on are refused."""
        refuse_other_vision(self.name, self.fingerprint, scenes.fingerprint)
        return self.model.embed_images(scenes)

    def texts(self, sentences: Sequence[Sequence[str]], device: torch.device, nouns: Tensor | None = None) -> TextBatch:
        """Sentences as its ids; places are those of the captioner's own batch, a full stop comes after them.

        `nouns` (N, T) marks the words that matchers of parts of speech look at; by default their own config does. A
        word that it does not know is never one of them.
        """
        stop = ["."] if self.full_stop else []
        mark = getattr(self.model.config, "mark", None) if nouns is None else None
        texts = TextBatch.collate([[*words, *stop] for words in sentences], self.vocabulary, mark=mark).to(device)
        tagged = texts.tagged if nouns is None else F.pad(nouns, (0, texts.ids.shape[1] - nouns.shape[1]))
        return texts if tagged is None else replace(texts, tagged=tagged & (texts.ids != UNK))

    def fit(self, scenes: SceneBatch, sentences: Sequence[Sequence[str]]) -> Tensor:
        """(N,) raw similarity of each sentence with its image; the N / B of an image are next to each other."""
        images = self.images(scenes)
        device = next(iter(images.values())).device
        texts = self.model.embed_texts(self.texts(sentences, device))
        count, copies = len(scenes), len(sentences) // len(scenes)
        # Pairs across images are not needed; a GPU computes them sooner than it starts many small blocks.
        together = count if isinstance(self.model, GlobalMatcher) or device.type != "cpu" else 1
        parts = []
        for start in range(0, count, together):
            stop = start + together
            some_images = {name: part[start:stop] for name, part in images.items()}
            some_texts = {name: part[start * copies : stop * copies] for name, part in texts.items()}
            scores = self.model.similarity(some_images, some_texts)  # (b, b · copies)
            column = torch.arange(scores.shape[1], device=device)
            parts.append(scores[column // copies, column])
        return torch.cat(parts).float()
