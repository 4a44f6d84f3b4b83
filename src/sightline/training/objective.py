"""What an objective is: sums over a batch, and what to divide them by.

An objective is a module, so that what it trains beside the model (the evaluator of a GAN) joins the optimiser, and what
it keeps (a replaced reference) is saved with the training state. Frozen teachers are kept outside of it (`Frozen`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.errors import ConfigError
from sightline.text.vocabulary import Vocabulary
from sightline.training.batches import Batch, Batching
from sightline.training.tensor_tables import Pool

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Progress:
    """Where training is: the stage's epoch and step, both from 0, and how far the stage is (0 to 1)."""

    epoch: int = 0
    step: int = 0
    part: float = 0.0


@dataclass(frozen=True, eq=False)
class Losses:
    """The sum that is minimised after division by the objective's weight, and its parts for the log, sums too."""

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Context:
    """What objectives may need besides model and batch.

    Attributes:
        vocabulary: of the model that is trained.
        pools: by name, `train` first of all.
        find: gives the checkpoint a name in a recipe stands for: `row:NAME`, `start`, or a path.
        device: where training runs.
        seed: of the run.
    """

    vocabulary: Vocabulary
    pools: dict[str, Pool] = field(default_factory=dict)
    find: Callable[[str], Checkpoint] | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    seed: int = 0

    def checkpoint(self, name: str) -> Checkpoint:
        """The checkpoint `name` stands for."""
        if self.find is None:
            raise ConfigError(f"nothing here can find the model {name!r}", fix="give a path to a checkpoint")
        return self.find(name)


class Objective(nn.Module, ABC):
    """A loss over batches.

    `negatives`, `positives` and `beside` (how it is made) ask for these parts of a batch.
    """

    negatives: int = 0
    positives: bool = False
    beside: Batching | None = None

    @abstractmethod
    def weight(self, batch: Batch) -> float:
        """What the sums over this batch are divided by: tokens, captions, images. Known before the model runs."""

    @abstractmethod
    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        """The sums over this batch."""

    def begin(self, model: Any) -> None:
        """Called when a stage begins (not when it resumes): the place to copy the model as a reference."""

    def after_epoch(self, model: Any, epoch: int) -> None:
        """Called after each epoch: the place to replace a reference."""


class Frozen(Generic[M]):
    """A model in evaluation mode that training never touches and never saves."""

    def __init__(self, model: M) -> None:
        self.model = model.eval().requires_grad_(False)
