"""From a step to its batches: rows are drawn, a batch is the tensors of some rows, a thread makes the next ones.

Which rows a step sees is a pure function of (seed, epoch, step), so that resuming needs counters and no iterators.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.config import check_ranges
from sightline.errors import ConfigError, CountError
from sightline.training.tensor_tables import Pool, SceneTable

Ids = npt.NDArray[np.int64]

SORTED = 50  # batches whose captions are sorted by length together


@dataclass(frozen=True)
class Batching:
    """What a batch is made of, as a recipe says it."""

    # `images` with some captions each; `pairs`, every caption of an epoch once with its image; or `photos` alone
    of: Literal["images", "pairs", "photos"] = "images"
    size: int = 32  # images, pairs or photos in a batch
    # captions of each image. Of more, a random run of consecutive ones is taken; of fewer, some twice.
    captions: int = 5
    # the split it draws from: `train`, or `corpus` for sentences without photos
    pool: Literal["train", "corpus"] = "train"
    # pairs of a batch have captions of similar length, since a step takes as long as its longest one. A loss that is a
    # mean over a batch's words then weighs a word of short captions more than one of long ones.
    by_length: bool = False

    def __post_init__(self) -> None:
        check_ranges(self, "batch.", size="[1, ∞)", captions="[1, ∞)")
        if self.by_length and self.of != "pairs":
            what = f"`batch.by_length` sorts pairs, and batches are of {self.of}"
            raise ConfigError(what, fix="set batch.of to pairs")


@dataclass(frozen=True, eq=False)
class Batch:
    """What an objective sees."""

    photos: Tensor  # (B,) rows of the pool
    scenes: SceneBatch | None = None  # B of them, or None
    texts: TextBatch | None = None  # N = B·K captions, the K of an image next to each other, or None
    captions: Tensor | None = None  # (N,) rows of the pool's captions
    negatives: tuple[TextBatch, ...] = ()  # as many times N captions of other images, for objectives that ask
    # (N, T, n) how far a region truly shows a word (IoU), for objectives that ask; -1 without annotation
    positives: Tensor | None = None
    beside: Batch | None = None  # a batch of another pool, for objectives that ask

    def to(self, device: torch.device | str) -> Batch:
        parts = {name: getattr(self, name) for name in ("scenes", "texts", "positives", "beside")}
        moved = {name: part.to(device) for name, part in parts.items() if part is not None}
        return replace(self, **moved, negatives=tuple(texts.to(device) for texts in self.negatives))


class Batches:
    """The batches of a stage. Rows are drawn by (seed, epoch, step) alone, for all processes together.

    `negatives` captions of other photos come with each caption, and where `positives` is asked for, how far regions
    truly show its words. Each batch carries one of `beside`, which has epochs of its own.
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
        self.pool, self.batching, self.seed = pool, batching, seed
        self.negatives, self.positives, self.beside = negatives, positives, beside
        if batching.of != "photos" and pool.texts is None:
            raise ConfigError(f"batches of {batching.of} need captions", fix="give captions, or batches of photos")
        self._count = len(pool.texts) if batching.of == "pairs" and pool.texts is not None else len(pool)
        if self._count == 0:
            raise CountError("there is nothing to train on", fix="check the splits and the captions")
        self._first: Ids = np.zeros(1, np.int64) if pool.first is None else pool.first
        self._orders: dict[int, Ids] = {}  # of the epoch that is being drawn

    def __len__(self) -> int:
        """Steps in an epoch. A last batch that is not full is left out, unless it is the only one."""
        return max(1, self._count // self.batching.size)

    def batch(self, epoch: int, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of a step, or the part of it that process `rank` of `world` sees."""
        size = self.batching.size
        photos = self._order(epoch)[step * size : (step + 1) * size]  # (B,)
        random = np.random.default_rng([self.seed, epoch, step])
        captions: list[Ids] = []  # (B, K) of the photos, then of others
        if self.batching.of == "pairs":
            captions = [photos[:, None]]
            photos = np.searchsorted(self._first, photos, side="right") - 1
        elif self.batching.of == "images":
            captions = [self._captions(photos, random)]
        if captions:
            captions += [self._captions_of_others(photos, random) for _ in range(self.negatives)]
        views = None
        if isinstance(self.pool.scenes, SceneTable) and self.pool.scenes.views > 1:
            views = random.integers(self.pool.scenes.views, size=len(photos))
        if len(photos) < world:
            what = f"{world} processes share a batch of {len(photos)}"
            raise ConfigError(what, fix=f"set batch.size to {world} or more")
        mine = slice(rank, None, world)
        batch = self._collate(photos[mine], None if views is None else views[mine], [part[mine] for part in captions])
        if self.beside is None:
            return batch
        place = divmod(epoch * len(self) + step, len(self.beside))
        return replace(batch, beside=self.beside.batch(*place, rank, world))

    def _order(self, epoch: int) -> Ids:
        if epoch not in self._orders:  # kept, since an epoch of many captions takes long to shuffle
            random = np.random.default_rng([self.seed, epoch])
            order = random.permutation(self._count)
            self._orders = {epoch: self._by_length(order, random) if self.batching.by_length else order}
        return self._orders[epoch]

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
        others = (photos + random.integers(1, len(self.pool), size=len(photos))) % len(self.pool)
        if self.batching.of == "images":
            return self._captions(others, random)
        first, after = self._first[others], self._first[others + 1]
        return (first + random.integers(after - first))[:, None]  # type: ignore[no-any-return]

    def _collate(self, photos: Ids, views: Ids | None, groups: list[Ids]) -> Batch:
        pool, rows, scenes = self.pool, torch.from_numpy(photos), None
        if isinstance(pool.scenes, SceneTable) and views is not None:
            scenes = pool.scenes.batch(rows, torch.from_numpy(views))
        elif pool.scenes is not None:
            scenes = pool.scenes.batch(rows)
        if not groups or pool.texts is None:
            return Batch(rows, scenes)
        captions, *others = [torch.from_numpy(part.ravel()) for part in groups]
        texts = pool.texts.batch(captions)
        negatives = tuple(pool.texts.batch(part) for part in others)
        positives = self._positives(captions, texts, scenes) if self.positives else None
        return Batch(rows, scenes, texts, captions, negatives, positives)

    def _positives(self, captions: Tensor, texts: TextBatch, scenes: SceneBatch | None) -> Tensor:
        if scenes is None or scenes.regions is None or self.pool.positives is None:
            raise ConfigError("grounding annotations are needed", fix="give data.grounding and features with boxes")
        width = scenes.regions.shape[1]
        table = torch.full((len(captions), texts.ids.shape[1], width), -1, dtype=torch.float32)
        for place, row in enumerate(captions.tolist()):
            overlaps = self.pool.positives.get(row)
            if overlaps is not None:
                length = min(table.shape[1], overlaps.shape[0])
                table[place, :length, : overlaps.shape[1]] = overlaps[:length]
        return table


def prefetch(
    batches: Batches, accumulate: int, steps: range, rank: int = 0, world: int = 1
) -> Generator[list[Batch], None, None]:
    """The `accumulate` batches of each optimiser step; a thread makes those of the next step meanwhile.

    Whoever stops before the last step closes it (`contextlib.closing`), which ends the thread.
    """
    per_epoch = max(1, len(batches) // accumulate)

    def make(step: int) -> list[Batch]:
        epoch, place = divmod(step, per_epoch)
        places = [(place * accumulate + i) % len(batches) for i in range(accumulate)]
        return [batches.batch(epoch, place, rank, world) for place in places]

    with ThreadPoolExecutor(1) as thread:
        following = [thread.submit(make, step) for step in steps[:1]]
        for step in steps:
            current = following.pop().result()
            following = [thread.submit(make, step + 1)] if step + 1 in steps else []
            yield current
