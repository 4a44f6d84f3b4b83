"""R²M on a text corpus: sentences told again from the concepts found in them (section 2.4, Eq. 10-11).

Guo et al., "Recurrent Relational Memory Network for Unsupervised Image Captioning", IJCAI 2020. No image is seen here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sightline.batch import SceneBatch
from sightline.errors import ConfigError
from sightline.models.r2m import R2M
from sightline.training.batches import Batch
from sightline.training.cuda_graphs import Graphs
from sightline.training.objective import Context, Losses, Objective, Progress
from sightline.training.objectives.pairs import captions, scenes
from sightline.training.tensor_tables import Pool, TextTable

NAME = "r2m-text"

Reduction = Literal["mean", "sum"]


@dataclass(frozen=True)
class R2MTextConfig:
    """The choices of R²M's text stages.

    Attributes:
        beta: β of Eq. 11, the weight of L_rec; 0 is the first stage, L_XE alone, which leaves the reconstructor out.
        reconstruction: over the d dimensions of v, L_rec is their `mean`, as in the authors' code, or their `sum`, as
            printed, which weighs d times more beside L_XE.
        graphs: on a CUDA device, run the recurrence as CUDA graphs: the same losses several times sooner.
    """

    kind: Literal["r2m-text"] = "r2m-text"
    beta: float = 0.0
    reconstruction: Reduction = "mean"
    graphs: bool = True

    def __post_init__(self) -> None:
        if self.beta < 0:
            raise ConfigError(f"`beta` is {self.beta}", fix="give 0 (L_XE alone) or more (the paper: 1 or 0.2)")

    def build(self, context: Context) -> R2MText:
        """The objective."""
        return R2MText(self)


class R2MText(Objective):
    """L_S = L_XE + β · L_rec over sentences S with their concepts.

    Inputs: scenes that hold the concepts of a sentence, and the sentence itself.

        L_XE  = -Σ_t ln p(w_t | w_1 … w_{t-1}, v)   (Eq. 10)   here the mean over all words and ENDs of the batch
        L_rec = ‖v - ṽ‖²                             (Eq. 11)   mean over sentences, mean or sum over dimensions

    The loss of a step is one mean plus β times the other. Since sums are divided by the number of words and ENDs, the
    sum of L_rec is its mean times that number; over accumulated batches it is weighted by their words.

    Section 2.1 reads concepts in random order: in training each step shuffles them, in evaluation they keep theirs.
    Gradients of L_rec reach both v and ṽ, so encoder, decoder and reconstructor learn from it.

    Relations: L_XE is `cross-entropy` from concepts. `r2m-image` goes on with images where no sentence is known.

    Parts: `cross-entropy` and, with β > 0, `reconstruction`.

    >>> objective = R2MTextConfig(beta=1.0).build(context)  # doctest: +SKIP
    >>> objective(model, batch, Progress()).total / objective.weight(batch)  # doctest: +SKIP
    """

    def __init__(self, config: R2MTextConfig) -> None:
        super().__init__()
        self.config = config
        self._graphs = Graphs(config.graphs)

    def weight(self, batch: Batch) -> float:
        """Words and ENDs."""
        return float(captions(batch, NAME).mask[:, 1:].sum())

    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        """The sums over this batch."""
        model, texts, seen = r2m(model, NAME), captions(batch, NAME), scenes(batch, NAME)
        if len(texts) != len(seen):
            raise ConfigError(
                f"{len(texts)} sentences for {len(seen)} lists of concepts",
                fix="set batch.of to pairs: each sentence has its own concepts",
            )
        memory = model.encode(shuffle_concepts(seen) if model.training else seen)
        with self._graphs.on(model.decoder, model.reconstructor):
            hidden, _ = model.unroll(memory, texts.ids[:, :-1])
            cross_entropy = -model.chosen(hidden, texts.ids[:, 1:]).sum()  # Eq. 10
            if self.config.beta == 0:
                return Losses(cross_entropy, {"cross-entropy": cross_entropy})
            rebuilt = model.reconstruct(hidden, texts.lengths - 1)
        mean = reconstruction(memory["concepts"], rebuilt, self.config.reconstruction).mean()
        rebuilding = mean * texts.mask[:, 1:].sum()
        total = cross_entropy + self.config.beta * rebuilding  # Eq. 11
        return Losses(total, {"cross-entropy": cross_entropy, "reconstruction": rebuilding})


@torch.no_grad()
def text_loss(model: Any, pool: Pool, config: R2MTextConfig, batch: int = 64) -> dict[str, float]:
    """L_S of held-out text and its parts: `loss`, `cross-entropy` and, with β > 0, `reconstruction`.

    L_XE is the mean over all words and ENDs, L_rec the mean over all sentences.
    """
    objective, device = R2MText(replace(config, graphs=False)), next(model.parameters()).device
    means: dict[str, float] = {}
    for part in _batches(pool, 2 * batch):
        words = objective.weight(part)
        for name, total in objective(model, part.to(device), Progress()).parts.items():
            share = words / _words(pool) if name == "cross-entropy" else len(part.photos) / len(_texts(pool))
            means[name] = means.get(name, 0.0) + float(total) / words * share
    return {"loss": means["cross-entropy"] + config.beta * means.get("reconstruction", 0.0), **means}  # Eq. 11


def _batches(pool: Pool, size: int) -> Iterator[Batch]:
    """Every sentence of a pool once, with its concepts."""
    assert pool.scenes is not None
    assert pool.first is not None
    texts = _texts(pool)
    owner = torch.from_numpy(np.repeat(np.arange(len(pool)), np.diff(pool.first)))
    for rows in torch.split(torch.arange(len(texts)), size):
        yield Batch(owner[rows], pool.scenes.batch(owner[rows]), texts.batch(rows), rows)


def _texts(pool: Pool) -> TextTable:
    if pool.texts is None:
        raise ConfigError(f"{NAME} is measured on sentences, and there are none", fix="give data.corpus")
    return pool.texts


def _words(pool: Pool) -> float:
    """Words and ENDs of a pool."""
    return float((_texts(pool).lengths - 1).sum())


def reconstruction(v: Tensor, rebuilt: Tensor, reduce: Reduction) -> Tensor:
    """(N,) L_rec of each row: ‖v - ṽ‖² (N, d), or that divided by d."""
    squares = (v - rebuilt).square()
    return squares.mean(1) if reduce == "mean" else squares.sum(1)


def shuffle_concepts(scenes: SceneBatch) -> SceneBatch:
    """Each scene's concepts in a random order of their own, drawn from torch's generator; padding comes last."""
    concepts, mask = scenes.part("concepts", by="R²M"), scenes.part("concept_mask", by="R²M")
    order = torch.rand(concepts.shape, device=concepts.device).masked_fill(~mask, 2).argsort(1)
    scores = scenes.concept_scores
    return replace(
        scenes,
        concepts=concepts.gather(1, order),
        concept_mask=mask.gather(1, order),
        concept_scores=None if scores is None else scores.gather(1, order),
    )


def r2m(model: Any, by: str) -> R2M:
    """The model, if it is R²M."""
    if isinstance(model, R2M):
        return model
    kind = getattr(getattr(model, "config", None), "kind", type(model).__name__)
    raise ConfigError(
        f"the objective {by} trains the model r2m, and {kind} is none", fix="set model.kind to r2m, or train otherwise"
    )
