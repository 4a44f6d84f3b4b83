"""Self-retrieval (Dai and Lin 2017, section 4.1): does a model's caption find its own photo again?

Each generated caption is a query; all photos are ranked by log p(caption | photo) under the model that wrote it. A
caption that would fit many photos ("a man standing in a room") ranks its own nowhere near the top. Recall at k depends
on how many photos compete, so the chance level k / pool is given beside each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sightline.errors import ConfigError, CountError
from sightline.metrics.ngrams import FloatArray, IntArray
from sightline.metrics.retrieval import Block, Direction, rank_pool

if TYPE_CHECKING:
    from torch import Tensor


class Scorer(Protocol):
    """The part of a captioner that self-retrieval needs."""

    def encode(self, scenes: Any) -> Mapping[str, Tensor]:
        """Memory of a batch of scenes: tensors with the batch first."""

    def log_prob(self, memory: Any, words: Tensor) -> Tensor:
        """(B·K,) log-probability of each row of `words`, END included; K rows in turn belong to one of B images."""


@dataclass(frozen=True)
class SelfRetrievalScores:
    """Recalls in percent, each with the percentage that guessing would reach among `pool` images."""

    recalls: dict[int, float]
    chance: dict[int, float]
    median_rank: float
    mean_rank: float
    pool: int
    ranks: tuple[int, ...] = ()  # of each caption's own image


def self_retrieval(
    captioner: Scorer,
    scenes: Callable[[Sequence[int]], Any],
    words: Tensor,
    *,
    ks: Sequence[int] = (1, 5, 50, 500),
    pool: int | None = None,
    seed: int = 0,
    block: tuple[int, int] = (32, 64),
    progress: bool = True,
) -> SelfRetrievalScores:
    """Rank all images for the caption of each.

    Args:
        captioner: in evaluation mode; its memory decides on which device the scoring runs.
        scenes: gives what `captioner.encode` takes for some image indices. Every image is encoded once.
        words: (N, T) the caption of each image, as `captioner.log_prob` takes it.
        ks: the k of recall at k.
        pool: rank only among this many images drawn at random (for a slow machine); None takes all.
        seed: of that draw.
        block: images and captions scored at a time; their product is the batch `log_prob` sees.
        progress: show a progress bar.
    """
    import torch

    if pool is not None and not 1 <= pool <= len(words):
        raise ConfigError(f"a pool of {pool} out of {len(words)} images", fix=f"choose 1 to {len(words)}, or None")
    chosen = np.arange(len(words))
    if pool is not None:
        chosen = np.sort(np.random.default_rng(seed).choice(len(words), pool, replace=False))
    starts = range(0, len(chosen), block[0])
    with torch.inference_mode():
        memories = [captioner.encode(scenes(chosen[start : start + block[0]].tolist())) for start in starts]
        device = next(iter(memories[0].values())).device
        captions = words[torch.from_numpy(chosen)].to(device)

        def similarity(images: IntArray, columns: IntArray) -> FloatArray:
            memory, said = memories[int(images[0]) // block[0]], captions[torch.from_numpy(columns).to(device)]
            scores = captioner.log_prob(memory, said.repeat(len(images), 1))
            if scores.shape != (len(images) * len(said),):
                raise CountError(f"log_prob gave shape {tuple(scores.shape)} for {len(images) * len(said)} pairs")
            return scores.reshape(len(images), -1).double().cpu().numpy()

        index = np.arange(len(chosen))
        ranks = rank_pool(similarity, index, index, block, _bar if progress else iter).text_to_image
    found = Direction.of(ranks, ks)
    chance = {k: 100.0 * min(1.0, k / len(chosen)) for k in ks}
    return SelfRetrievalScores(
        found.recalls, chance, found.median_rank, found.mean_rank, len(chosen), tuple(ranks.tolist())
    )


def _bar(blocks: list[Block]) -> Iterable[Block]:
    from rich.progress import track

    return track(blocks, description="self-retrieval")
