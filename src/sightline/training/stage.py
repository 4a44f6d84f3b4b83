"""A stage of training, as a recipe writes it: an objective, batches, an optimiser, a schedule, and when to stop."""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from sightline.config import check_ranges
from sightline.errors import ConfigError
from sightline.training.batches import Batching
from sightline.training.objectives import ObjectiveConfig


@dataclass(frozen=True)
class Optimiser:
    """Adam, AdamW or SGD."""

    kind: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.999)  # Adam's
    eps: float = 1e-8  # Adam's
    weight_decay: float = 0.0  # of all parameters
    # learning rates of parameters by the beginning of their name, such as {vision: 1.0e-5}; 0 freezes them
    lrs: dict[str, float] = field(default_factory=dict)
    clamp: float = 0.0  # gradients are clamped to ± this, number by number; 0 does not
    clip: float = 0.0  # gradients are scaled to at most this norm; 0 does not

    def __post_init__(self) -> None:
        check_ranges(self, "optimiser.", **dict.fromkeys(("lr", "weight_decay", "clamp", "clip"), "[0, ∞)"))
        check_ranges(self.lrs, "optimiser.lrs.", **dict.fromkeys(self.lrs, "[0, ∞)"))

    def build(self, parameters: dict[str, nn.Parameter]) -> torch.optim.Optimizer:
        """The optimiser over named parameters; each group knows its base learning rate."""
        for prefix in self.lrs:
            if not any(name.startswith(prefix) for name in parameters):
                fix = f"parameters begin with {', '.join(sorted({n.split('.')[0] for n in parameters}))}"
                raise ConfigError(f"`optimiser.lrs.{prefix}` names no parameter", fix=fix)
        groups: dict[float, list[nn.Parameter]] = {}
        for name, parameter in parameters.items():
            matches = [prefix for prefix in self.lrs if name.startswith(prefix)]
            lr = self.lrs[max(matches, key=len)] if matches else self.lr
            if lr == 0:
                parameter.requires_grad_(False)
            elif parameter.requires_grad:
                groups.setdefault(lr, []).append(parameter)
        listed = [{"params": members, "lr": lr, "base_lr": lr} for lr, members in groups.items()]
        if not listed:
            raise ConfigError("nothing is left to train", fix="freeze fewer parameters")
        if self.kind == "sgd":
            return torch.optim.SGD(listed, weight_decay=self.weight_decay)
        kind = torch.optim.Adam if self.kind == "adam" else torch.optim.AdamW
        on_cpu = all(parameter.device.type == "cpu" for parameter in parameters.values())
        fused = on_cpu or None  # one pass over memory instead of six; elsewhere PyTorch chooses
        return kind(listed, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay, fused=fused)


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes: a factor at each step."""

    # `constant`; `decay`, times `factor` each `every` epochs after `start`; `inverse_sqrt`, falling with the root of
    # the step after the warm-up; `cosine`, to 0 at the end of the stage
    kind: Literal["constant", "decay", "inverse_sqrt", "cosine"] = "constant"
    factor: float = 0.8  # of decay
    every: int = 3  # epochs between decays
    start: int = 0  # the first epoch (from 0) that counts; decay begins in the epoch after it
    warmup: int = 0  # steps over which the rate rises from 0

    def __post_init__(self) -> None:
        check_ranges(self, "schedule.", factor="[0, ∞)", start="[0, ∞)", warmup="[0, ∞)", every="[1, ∞)")

    def at(self, epoch: int, step: int, steps: int) -> float:
        """The factor of the learning rate at `step` of `steps`, in `epoch`; both count from 0."""
        rise = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        if self.kind == "decay":
            return rise * self.factor ** (max(0, epoch - self.start) // self.every)
        if self.kind == "inverse_sqrt":
            warmup = max(1, self.warmup)
            return rise * min(1.0, math.sqrt(warmup / (step + 1)))
        if self.kind == "cosine":
            return rise * 0.5 * (1 + math.cos(math.pi * step / max(1, steps)))
        return rise


@dataclass(frozen=True)
class Selection:
    """When the model is evaluated, by what the best is chosen, and when training stops early."""

    # `loss` (of the val split, for R²M's stages of held-out text; lower is better), or a metric that evaluation gives,
    # such as CIDEr or rsum
    metric: str = "loss"
    every: int = 1  # epochs between evaluations; 0 evaluates never, and the last model is kept
    every_steps: int = 0  # steps between evaluations, instead of epochs
    patience: int = 0  # evaluations without a better one before the stage stops; 0 goes to the end
    start: bool = False  # evaluate before the first step too: the stage never gives a worse model than it was given

    def __post_init__(self) -> None:
        check_ranges(self, "select.", every="[0, ∞)", every_steps="[0, ∞)", patience="[0, ∞)")
        if self.start and not (self.every or self.every_steps):
            what = "`select.start` is true, and no later model is evaluated, so that the first would always be chosen"
            raise ConfigError(what, fix="set select.every to 1 or more, or select.start to false")

    def due(self, step: int, per_epoch: int, last: bool) -> bool:
        """True where the model is evaluated after so many steps; after the last one it always is."""
        every = self.every_steps or self.every * per_epoch
        return every > 0 and (step % every == 0 or last)

    def spent(self, without_better: int) -> bool:
        """True once `patience` evaluations passed without improvement."""
        return 0 < self.patience <= without_better


@dataclass(frozen=True)
class Stage:
    """One stage of training. It starts from the model the stage before it chose."""

    objective: ObjectiveConfig  # what is minimised
    name: str = "train"  # in logs; a recipe's key for it
    batch: Batching = field(default_factory=Batching)
    optimiser: Optimiser = field(default_factory=Optimiser)
    schedule: Schedule = field(default_factory=Schedule)  # of the learning rate
    epochs: int = 1
    steps: int = 0  # how long, in optimiser steps; 0 counts epochs
    accumulate: int = 1  # batches per optimiser step
    # tf32 is float32 with products of fewer bits on GPUs that have them; bfloat16 is by autocast
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    select: Selection = field(default_factory=Selection)
    # the share of the weights from before the stage in those that it gives. The mean of two models on one way
    # generalises better than either (Izmailov et al. 2018, "Averaging Weights Leads to Wider Optima").
    average: float = 0.0

    def __post_init__(self) -> None:
        where = "" if self.name == "train" else f"stages.{self.name}."  # a recipe names it once it is built
        check_ranges(self, where, steps="[0, ∞)", average="[0, 1)", accumulate="[1, ∞)", epochs="[1, ∞)")

    def held_out(self) -> str:
        """The pool by which the best model is chosen.

        By its loss, a stage on text or on photos without captions (R²M) is chosen by held-out text.
        """
        unpaired = self.batch.pool == "corpus" or self.objective.kind == "r2m-image"
        return "corpus-val" if unpaired and self.select.metric == "loss" else "val"
