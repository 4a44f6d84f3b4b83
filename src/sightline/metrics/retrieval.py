"""Image-text retrieval: recall at k both ways, median and mean rank, over the full set or as the mean of folds.

Scores come in blocks, so that the matrix of all images and all captions never exists. A query's rank is one plus the
number of wrong items that score at least as well as the right one: ties count against the model, so a model that gives
every pair the same score ranks last instead of first. (Published code sorts and lets ties fall as they may.)

Self-retrieval (Dai and Lin 2017, section 4.1) asks whether a model's caption finds its own photo again: all photos are
ranked by log p(caption | photo) under the model that wrote it. A caption that would fit many photos ("a man standing in
a room") ranks its own nowhere near the top. Recall at k depends on how many photos compete, so the chance level
k / pool is given beside each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sightline.errors import ConfigError, CountError, MissingRecordError, NonFiniteError
from sightline.metrics.ngrams import FloatArray, IntArray
from sightline.text.vocabulary import PAD

if TYPE_CHECKING:
    from torch import Tensor

    from sightline.models.captioner import Captioner

KS = (1, 5, 10)  # of recall at k, by default
# (image indices (b,), caption indices (c,)) → (b, c) scores, higher is better.
Similarity = Callable[[IntArray, IntArray], npt.NDArray[np.floating[Any]]]


@dataclass(frozen=True)
class Ranks:
    """Ranks from 1: of each image's best own caption among the captions, of each caption's image among the images."""

    image_to_text: IntArray  # (images,)
    text_to_image: IntArray  # (captions,)


@dataclass(frozen=True)
class RetrievalScores:
    """Both ways of retrieval; with several folds every number is the mean over them.

    `metrics` has the percentages `i2t_R@1` and `t2i_R@1` (image to text, text to image) of every k, their sum `rsum`,
    `i2t_median_rank` (rounded down, as published), `i2t_mean_rank`, and the `images` of each of `folds`.
    """

    metrics: dict[str, float]
    ranks: tuple[Ranks, ...]  # of each fold


def recalls(ranks: IntArray, ks: Sequence[int]) -> dict[int, float]:
    """For each k the percentage of ranks up to k."""
    return {k: 100.0 * float(np.mean(ranks <= k)) for k in ks}


def mean_similarity(members: Sequence[Similarity]) -> Similarity:
    """Several models that score together: the mean of their scores."""

    def similarity(images: IntArray, captions: IntArray) -> FloatArray:
        scores = [np.asarray(member(images, captions), np.float64) for member in members]
        mean: FloatArray = np.mean(scores, axis=0)
        return mean

    return similarity


def evaluate_retrieval(
    similarity: Similarity,
    owner: npt.ArrayLike,
    *,
    ks: Sequence[int] = KS,
    folds: Sequence[npt.ArrayLike] | None = None,
    block: tuple[int, int] = (256, 2048),
) -> RetrievalScores:
    """Rank captions for images and images for captions.

    Args:
        similarity: scores of a block of pairs.
        owner: (captions,) the index of the image each caption belongs to; any number of captions an image.
        ks: the k of recall at k.
        folds: image indices of each fold, ranked by itself ("1K" is the mean of folds of 1,000); None is the full set.
        block: how many images and captions are scored at a time.
    """
    owners = np.asarray(owner, np.int64)
    pools = [np.unique(owners)] if folds is None else [np.asarray(fold, np.int64) for fold in folds]
    if not pools or not all(len(pool) for pool in pools):
        raise ConfigError("there is nothing to rank: a fold holds no image", fix="give folds of at least one image")
    if min(int(owners.min(initial=0)), *(int(pool.min()) for pool in pools)) < 0:
        raise ConfigError("an image index is negative", fix="count images from 0")
    ranks = [rank_pool(similarity, owners, pool, block) for pool in pools]
    metrics = {"images": float(round(np.mean([len(pool) for pool in pools]))), "folds": float(len(pools))}
    by_way = {"i2t": [fold.image_to_text for fold in ranks], "t2i": [fold.text_to_image for fold in ranks]}
    for way, folds_ranks in by_way.items():
        for k in ks:
            metrics[f"{way}_R@{k}"] = float(np.mean([recalls(fold, ks)[k] for fold in folds_ranks]))
        metrics[f"{way}_median_rank"] = float(np.mean([np.floor(np.median(fold)) for fold in folds_ranks]))
        metrics[f"{way}_mean_rank"] = float(np.mean([np.mean(fold) for fold in folds_ranks]))
    metrics["rsum"] = sum(value for name, value in metrics.items() if "_R@" in name)
    return RetrievalScores(metrics, tuple(ranks))


def consecutive_folds(size: int, count: int) -> list[IntArray]:
    """`count` folds of `size` images each, from the first image on."""
    return [np.arange(start, start + size) for start in range(0, size * count, size)]


def rank_pool(similarity: Similarity, owner: IntArray, images: IntArray, block: tuple[int, int]) -> Ranks:
    """Rank within some images and their captions."""
    if len(np.unique(images)) != len(images):
        raise CountError("an image is twice in a fold", fix="give each image once")
    row = np.full(max(int(owner.max(initial=-1)), int(images.max())) + 1, -1)
    row[images] = np.arange(len(images))
    captions = np.flatnonzero(row[owner] >= 0)
    own = row[owner[captions]]  # (C,) the row of each caption's image
    without = np.setdiff1d(np.arange(len(images)), own)
    if len(without):
        raise MissingRecordError("an image has no caption", where=f"image index {images[without[0]]}")

    right = _own_scores(similarity, images, captions, own, block)
    best = np.full(len(images), -np.inf)
    np.maximum.at(best, own, right)
    text_ranks, image_ranks = np.ones(len(images), np.int64), np.ones(len(captions), np.int64)
    for top in range(0, len(images), block[0]):
        for left in range(0, len(captions), block[1]):
            rows, columns = slice(top, top + block[0]), slice(left, left + block[1])
            scores = _checked_scores(similarity, images[rows], captions[columns])
            wrong = own[columns] != np.arange(len(images))[rows, None]
            text_ranks[rows] += ((scores >= best[rows, None]) & wrong).sum(axis=1)
            image_ranks[columns] += ((scores >= right[columns]) & wrong).sum(axis=0)
    return Ranks(text_ranks, image_ranks)


def _own_scores(
    similarity: Similarity, images: IntArray, captions: IntArray, own: IntArray, block: tuple[int, int]
) -> FloatArray:
    """(C,) the score of each caption with its own image: what the others are compared with."""
    scores = np.zeros(len(captions))
    for start in range(0, len(images), block[0]):
        rows = slice(start, start + block[0])
        mine = np.flatnonzero((own >= start) & (own < start + block[0]))
        for first in range(0, len(mine), block[1]):
            columns = mine[first : first + block[1]]
            scored = _checked_scores(similarity, images[rows], captions[columns])
            scores[columns] = scored[own[columns] - start, np.arange(len(columns))]
    return scores


def _checked_scores(similarity: Similarity, images: IntArray, captions: IntArray) -> npt.NDArray[np.floating[Any]]:
    scores = np.asarray(similarity(images, captions))
    if scores.shape != (len(images), len(captions)):
        raise CountError(f"{len(images)} images and {len(captions)} captions got scores of shape {scores.shape}")
    if np.isnan(scores).any():
        i, c = np.argwhere(np.isnan(scores))[0]
        raise NonFiniteError("a score is NaN", where=f"image index {images[i]}, caption index {captions[c]}")
    return scores


@dataclass(frozen=True)
class SelfRetrievalScores:
    """Recalls in percent, each with the percentage that guessing would reach among `pool` images."""

    recalls: dict[int, float]
    chance: dict[int, float]
    pool: int
    ranks: tuple[int, ...]  # of each caption's own image


def self_retrieval(
    captioner: Captioner,
    scenes: Callable[[Sequence[int]], Any],
    words: Tensor,
    *,
    ks: Sequence[int] = (1, 5, 50, 500),
    block: tuple[int, int] = (32, 64),
) -> SelfRetrievalScores:
    """Rank all images for the caption of each.

    Args:
        captioner: in evaluation mode; its memory decides on which device the scoring runs.
        scenes: gives what `captioner.encode` takes for some image indices. Every image is encoded once.
        words: (N, T) the caption of each image, as `captioner.log_prob` takes it.
        ks: the k of recall at k.
        block: images and captions scored at a time; their product is the batch `log_prob` sees.
    """
    import torch

    index, words = np.arange(len(words)), words.cpu()
    lengths = (words != PAD).sum(1)
    order = torch.argsort(lengths, stable=True)  # captions of a block are of like length: few steps are padding
    with torch.inference_mode():
        blocks = [index[start : start + block[0]].tolist() for start in range(0, len(words), block[0])]
        memories = [captioner.encode(scenes(images)) for images in blocks]
        device = next(iter(memories[0].values())).device
        captions = words[order].to(device)

        def similarity(images: IntArray, columns: IntArray) -> FloatArray:
            longest = int(lengths[order[columns]].max())
            memory, chosen = memories[int(images[0]) // block[0]], captions[torch.from_numpy(columns).to(device)]
            scores = captioner.log_prob(memory, chosen[:, :longest].repeat(len(images), 1))
            return scores.reshape(len(images), -1).double().cpu().numpy()

        ranks = np.empty(len(words), np.int64)
        ranks[order] = rank_pool(similarity, order.numpy(), index, block).text_to_image
    chance = {k: 100.0 * min(1.0, k / len(words)) for k in ks}
    return SelfRetrievalScores(recalls(ranks, ks), chance, len(words), tuple(ranks.tolist()))
