"""From a step to its batches: a sampler draws rows, a batch is the tensors of some rows, a thread makes the next ones.

Which rows a step sees is a pure function of (seed, epoch, step), so that resuming needs counters and no iterators.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.errors import ConfigError, CountError
from sightline.training.tensor_tables import Pool, SceneTable

Ids = npt.NDArray[np.int64]

SORTED = 50  # batches whose captions are sorted by length together


@dataclass(frozen=True)
class Batching:
    """What a batch is made of, as a recipe says it.

    Attributes:
        of: `images` with some captions each; `pairs`, every caption of an epoch once with its image; or `photos` alone.
        size: images, pairs or photos in a batch.
        captions: captions of each image. Of more, a random run of consecutive ones is taken; of fewer, some twice.
        pool: the split it draws from: `train`, or `corpus` for sentences without photos.
        by_length: pairs of a batch have captions of similar length, since a step takes as long as its longest one. A
            loss that is a mean over a batch's words then weighs a word of short captions more than one of long ones.
    """

    of: Literal["images", "pairs", "photos"] = "images"
    size: int = 32
    captions: int = 5
    pool: Literal["train", "corpus"] = "train"
    by_length: bool = False

    def __post_init__(self) -> None:
        if self.by_length and self.of != "pairs":
            raise ConfigError(
                f"`batch.by_length` sorts pairs, and batches are of {self.of}", fix="set batch.of to pairs"
            )


@dataclass(frozen=True, eq=False)
class Batch:
    """What an objective sees.

    Attributes:
        photos: (B,) rows of the pool.
        scenes: B of them, or None.
        texts: N = B·K captions, the K of an image next to each other, or None.
        captions: (N,) rows of the pool's captions.
        negatives: as many times N captions of other images, for objectives that ask.
        positives: (N, T, n) how far a region truly shows a word (IoU), for objectives that ask; -1 without annotation.
        beside: a batch of another pool, for objectives that ask.
    """

    photos: Tensor
    scenes: SceneBatch | None = None
    texts: TextBatch | None = None
    captions: Tensor | None = None
    negatives: tuple[TextBatch, ...] = ()
    positives: Tensor | None = None
    beside: Batch | None = None

    def to(self, device: torch.device | str) -> Batch:
        """The batch on `device`."""
        parts = {name: getattr(self, name) for name in ("scenes", "texts", "positives", "beside")}
        moved = {name: part.to(device) for name, part in parts.items() if part is not None}
        return replace(self, **moved, negatives=tuple(texts.to(device) for texts in self.negatives))


class Rows(NamedTuple):
    """The rows of a pool that one batch is made of.

    Attributes:
        photos: (B,).
        views: (B,) which view of each photo, where photos have several.
        captions: (B, K), or None for photos alone.
        negatives: (B, K) each, captions of other photos.
    """

    photos: Ids
    views: Ids | None
    captions: Ids | None
    negatives: tuple[Ids, ...]

    def of_process(self, rank: int, world: int) -> Rows:
        """The part of process `rank` of `world`."""
        mine = slice(rank, None, world)
        views, captions = (None if part is None else part[mine] for part in (self.views, self.captions))
        return Rows(self.photos[mine], views, captions, tuple(part[mine] for part in self.negatives))


class Sampler:
    """Which rows a batch is made of: drawn by (seed, epoch, step) alone, for all processes together.

    Args:
        pool: that is drawn from.
        batching: what a batch is made of.
        seed: of all draws.
        negatives: how many captions of other photos come with each caption.
    """

    def __init__(self, pool: Pool, batching: Batching, seed: int, negatives: int = 0) -> None:
        self.pool, self.batching, self.seed, self.negatives = pool, batching, seed, negatives
        if batching.of != "photos" and pool.texts is None:
            raise ConfigError(f"batches of {batching.of} need captions", fix="give captions, or batches of photos")
        if batching.size < 1 or batching.captions < 1:
            raise ConfigError("a batch of nothing", fix="give batch.size and batch.captions of at least 1")
        self._count = len(pool.texts) if batching.of == "pairs" and pool.texts is not None else len(pool)
        if self._count == 0:
            raise CountError("there is nothing to train on", fix="check the splits and the captions")
        self._ordered: tuple[int, Ids] = (-1, np.zeros(0, np.int64))

    def __len__(self) -> int:
        """Steps in an epoch. A last batch that is not full is left out, unless it is the only one."""
        return max(1, self._count // self.batching.size)

    def rows(self, epoch: int, step: int) -> Rows:
        """The rows of a step."""
        if step >= len(self):
            raise CountError(f"an epoch has {len(self)} steps, not {step + 1}")
        size = self.batching.size
        chosen = self._order(epoch)[step * size : (step + 1) * size]
        random = np.random.default_rng([self.seed, epoch, step])
        photos, captions = chosen, None
        if self.batching.of == "pairs":
            photos, captions = np.searchsorted(self._first, chosen, side="right") - 1, chosen[:, None]
        elif self.batching.of == "images":
            captions = self._captions(chosen, random)
        copies = self.negatives if captions is not None else 0
        negatives = tuple(self._captions_of_others(photos, random) for _ in range(copies))
        views = self.pool.scenes.views if isinstance(self.pool.scenes, SceneTable) else 1
        return Rows(photos, random.integers(views, size=len(photos)) if views > 1 else None, captions, negatives)

    def _order(self, epoch: int) -> Ids:
        if self._ordered[0] != epoch:  # kept, since an epoch of many captions takes long to shuffle
            random = np.random.default_rng([self.seed, epoch])
            order = random.permutation(self._count)
            self._ordered = epoch, self._by_length(order, random) if self.batching.by_length else order
        return self._ordered[1]

    def _by_length(self, order: Ids, random: np.random.Generator) -> Ids:
        """Batches of captions of similar length, in random order; what is left out is chosen before sorting."""
        assert self.pool.texts is not None
        lengths, size = self.pool.texts.lengths.numpy(), self.batching.size
        order = order[: len(self) * size]
        parts = [order[start : start + SORTED * size] for start in range(0, len(order), SORTED * size)]
        order = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts])
        return random.permutation(order.reshape(len(self), -1)).ravel()

    def _captions(self, photos: Ids, random: np.random.Generator) -> Ids:
        """(B, K) captions of each photo."""
        first, wanted = self._first, self.batching.captions
        rows = []
        for photo in photos:
            start, count = first[photo], first[photo + 1] - first[photo]
            if count == 0:
                raise CountError(f"photo {self.pool.ids[photo]} has no caption", fix="leave it out of training")
            if count >= wanted:
                rows.append(start + random.integers(count - wanted + 1) + np.arange(wanted))
            else:
                rows.append(start + random.integers(count, size=wanted))
        return np.stack(rows)

    def _captions_of_others(self, photos: Ids, random: np.random.Generator) -> Ids:
        """(B, K) captions of another photo for each photo, as many as it has itself."""
        if len(self.pool) < 2:
            raise CountError("captions of another photo are needed, and there is one photo", fix="give more photos")
        shift = random.integers(1, len(self.pool), size=len(photos))
        others = (photos + shift) % len(self.pool)
        if self.batching.of == "images":
            return self._captions(others, random)
        first = self._first
        return (first[others] + random.integers(first[others + 1] - first[others]))[:, None]  # type: ignore[no-any-return]

    @property
    def _first(self) -> npt.NDArray[Any]:
        assert self.pool.first is not None
        return self.pool.first


class Batches:
    """The batches of a stage: what a sampler draws, as tensors. Each carries one of `beside`, with epochs of its own.

    `positives` asks for how far regions truly show the words of captions.
    """

    def __init__(
        self,
        pool: Pool,
        batching: Batching,
        seed: int,
        negatives: int = 0,
        positives: bool = False,
        beside: Batches | None = None,
    ) -> None:
        self.pool, self.sampler = pool, Sampler(pool, batching, seed, negatives)
        self.positives, self.beside = positives, beside

    def __len__(self) -> int:
        """Steps in an epoch."""
        return len(self.sampler)

    def batch(self, epoch: int, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of a step, or the part of it that process `rank` of `world` sees."""
        rows = self.sampler.rows(epoch, step)
        if len(rows.photos) < world:
            what = f"{world} processes share a batch of {len(rows.photos)}"
            raise ConfigError(what, fix=f"set batch.size to {world} or more")
        batch = self.collate(rows.of_process(rank, world))
        if self.beside is None:
            return batch
        place = divmod(epoch * len(self) + step, len(self.beside))
        return replace(batch, beside=self.beside.batch(*place, rank, world))

    def collate(self, rows: Rows) -> Batch:
        """The tensors of some rows."""
        pool, photos, scenes = self.pool, torch.from_numpy(rows.photos), None
        if isinstance(pool.scenes, SceneTable) and rows.views is not None:
            scenes = pool.scenes.batch(photos, torch.from_numpy(rows.views))
        elif pool.scenes is not None:
            scenes = pool.scenes.batch(photos)
        if rows.captions is None or pool.texts is None:
            return Batch(photos, scenes)
        captions, *others = (torch.from_numpy(part.ravel()) for part in (rows.captions, *rows.negatives))
        texts = pool.texts.batch(captions)
        positives = self._positives(captions, texts, scenes) if self.positives else None
        return Batch(photos, scenes, texts, captions, tuple(map(pool.texts.batch, others)), positives)

    def _positives(self, captions: Tensor, texts: TextBatch, scenes: SceneBatch | None) -> Tensor:
        if scenes is None or scenes.regions is None or self.pool.positives is None:
            raise ConfigError("grounding annotations are needed", fix="give data.grounding and features with boxes")
        width = scenes.regions.shape[1]
        table = torch.full((len(captions), texts.ids.shape[1], width), -1, dtype=torch.float32)
        for place, row in enumerate(captions.tolist()):
            known = self.pool.positives.get(row)
            if known is not None:
                length = min(table.shape[1], known.shape[0])
                table[place, :length, : known.shape[1]] = known[:length]
        return table


@contextlib.contextmanager
def prefetch(
    batches: Batches, accumulate: int, steps: range, rank: int = 0, world: int = 1
) -> Iterator[Iterator[list[Batch]]]:
    """The `accumulate` batches of each optimiser step; a thread makes those of the next step meanwhile."""
    per_epoch = max(1, len(batches) // accumulate)

    def make(step: int) -> list[Batch]:
        epoch, place = divmod(step, per_epoch)
        places = [(place * accumulate + i) % len(batches) for i in range(accumulate)]
        return [batches.batch(epoch, place, rank, world) for place in places]

    def feed(pool: ThreadPoolExecutor) -> Iterator[list[Batch]]:
        following = [pool.submit(make, step) for step in steps[:1]]
        for step in steps:
            current = following.pop().result()
            following = [pool.submit(make, step + 1)] if step + 1 in steps else []
            yield current

    with ThreadPoolExecutor(1) as pool:
        yield feed(pool)
