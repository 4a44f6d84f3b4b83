"""Which rows a step sees: a pure function of (seed, epoch, step), so that resuming needs counters and no iterators."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.errors import ConfigError, CountError
from sightline.training.tensor_tables import Pool, SceneTable

Rows = npt.NDArray[np.int64]

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


class Batches:
    """The batches of a stage. Each carries one of `beside`, whose epochs have their own length."""

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
        if batching.size < 1 or batching.captions < 1:
            raise ConfigError("a batch of nothing", fix="give batch.size and batch.captions of at least 1")
        count = len(pool.texts) if batching.of == "pairs" and pool.texts is not None else len(pool)
        if count == 0:
            raise CountError("there is nothing to train on", fix="check the splits and the captions")
        self._count = count
        self._ordered: tuple[int, Rows] = (-1, np.zeros(0, np.int64))

    def __len__(self) -> int:
        """Steps in an epoch. A last batch that is not full is left out, unless it is the only one."""
        return max(1, self._count // self.batching.size)

    def batch(self, epoch: int, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of a step, or the part of it that process `rank` of `world` sees."""
        if step >= len(self):
            raise CountError(f"an epoch has {len(self)} steps, not {step + 1}")
        size = self.batching.size
        chosen = self._order(epoch)[step * size : (step + 1) * size]
        if len(chosen) < world:
            raise ConfigError(
                f"{world} processes share a batch of {len(chosen)}", fix=f"set batch.size to {world} or more"
            )
        random = np.random.default_rng([self.seed, epoch, step])
        photos, captions = chosen, None
        if self.batching.of == "pairs":
            photos, captions = self._photo_of(chosen), chosen[:, None]
        elif self.batching.of == "images":
            captions = self._captions(chosen, random)
        others = [self._others(photos, random) for _ in range(self.negatives if captions is not None else 0)]
        views = self._views(photos, random)
        mine = slice(rank, None, world)  # all draw for the whole batch, so that it does not depend on how it is shared
        made = self._make(
            photos[mine],
            None if views is None else views[mine],
            None if captions is None else captions[mine].ravel(),
            [o[mine].ravel() for o in others],
        )
        if self.beside is None:
            return made
        place = divmod(epoch * len(self) + step, len(self.beside))
        return replace(made, beside=self.beside.batch(*place, rank, world))

    def _order(self, epoch: int) -> Rows:
        if self._ordered[0] != epoch:  # kept, since an epoch of many captions takes long to shuffle
            random = np.random.default_rng([self.seed, epoch])
            order = random.permutation(self._count)
            self._ordered = epoch, self._by_length(order, random) if self.batching.by_length else order
        return self._ordered[1]

    def _by_length(self, order: Rows, random: np.random.Generator) -> Rows:
        """Batches of captions of similar length, in random order; what is left out is chosen before sorting."""
        assert self.pool.texts is not None
        lengths, size = self.pool.texts.lengths.numpy(), self.batching.size
        order = order[: len(self) * size]
        parts = [order[start : start + SORTED * size] for start in range(0, len(order), SORTED * size)]
        order = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts])
        return random.permutation(order.reshape(len(self), -1)).ravel()

    def _make(self, photos: Rows, views: Rows | None, captions: Rows | None, others: list[Rows]) -> Batch:
        pool = self.pool
        index = torch.from_numpy(photos)
        scenes = self._scenes(index, views)
        if captions is None or pool.texts is None:
            return Batch(index, scenes)
        rows = torch.from_numpy(captions)
        texts = pool.texts.batch(rows)
        negatives = tuple(pool.texts.batch(torch.from_numpy(other)) for other in others)
        positives = self._positives(captions, texts, scenes) if self.positives else None
        return Batch(index, scenes, texts, rows, negatives, positives)

    def _views(self, photos: Rows, random: np.random.Generator) -> Rows | None:
        """(B,) which view of each photo is taken, where a photo has several."""
        scenes = self.pool.scenes
        views = scenes.views if isinstance(scenes, SceneTable) else 1
        return random.integers(views, size=len(photos)) if views > 1 else None

    def _scenes(self, photos: Tensor, views: Rows | None) -> SceneBatch | None:
        scenes = self.pool.scenes
        if isinstance(scenes, SceneTable) and views is not None:
            return scenes.batch(photos, torch.from_numpy(views))
        return None if scenes is None else scenes.batch(photos)

    def _captions(self, photos: Rows, random: np.random.Generator) -> Rows:
        """(B, K) captions of each photo."""
        first, wanted = self._first(), self.batching.captions
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

    def _others(self, photos: Rows, random: np.random.Generator) -> Rows:
        """(B, K) captions of another photo for each photo, as many as `texts` has."""
        if len(self.pool) < 2:
            raise CountError("captions of another photo are needed, and there is one photo", fix="give more photos")
        shift = random.integers(1, len(self.pool), size=len(photos))
        others = (photos + shift) % len(self.pool)
        if self.batching.of == "images":
            return self._captions(others, random)
        first = self._first()
        return (first[others] + random.integers(first[others + 1] - first[others]))[:, None]  # type: ignore[no-any-return]

    def _positives(self, captions: Rows, texts: TextBatch, scenes: SceneBatch | None) -> Tensor:
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

    def _photo_of(self, captions: Rows) -> Rows:
        return np.searchsorted(self._first(), captions, side="right") - 1

    def _first(self) -> npt.NDArray[Any]:
        assert self.pool.first is not None
        return self.pool.first


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
