"""CIDEr-D as the reward of self-critical training: references are counted once, a batch of samples takes milliseconds.

The usual scorer turns ids into text, counts every reference again at every call, and reads document frequencies through
a `defaultdict`, which grows with every n-gram a sample invents. Here n-grams are rows of sorted tables, made once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from sightline.errors import ConfigError, CountError, DataError
from sightline.metrics.cider import cosines, idf_weights, length_penalty, mean_agreement
from sightline.metrics.ngrams import (
    ORDERS,
    FloatArray,
    IntArray,
    NGrams,
    Tokens,
    count_ngrams,
    images_with,
    norms,
    sort_places,
    spans,
)
from sightline.text.vocabulary import END, PAD


class CiderDReward:
    """CIDEr-D of sampled token ids against the references of their images.

    Equal to `CIDErD` over the same sentences written as ids, with document frequencies of all references. END counts as
    a word on both sides, as in self-critical training: without it the reward cannot see bad endings. A reference always
    ends; a sample that was cut off before END gets no END n-grams.

    Args:
        references: for each image its references, each a list of word ids, without END and padding.
    """

    def __init__(self, references: Sequence[Sequence[Sequence[int]]]) -> None:
        self._many = np.array([len(sentences) for sentences in references], np.int64)  # (I,) references an image
        if not self._many.all():
            raise DataError("an image has no reference", where=f"image index {int(np.argmin(self._many))}")
        self._start = np.cumsum(self._many) - self._many  # (I,) its first reference
        sentences = [(*sentence, END) for image in references for sentence in image]
        words = np.fromiter(chain.from_iterable(sentences), np.int64)
        _check_ids(words, "a reference")
        tokens = Tokens(words, np.array([len(sentence) for sentence in sentences], np.int64))
        self._bigrams = tokens.lengths - 1  # (R,)
        self._norms = np.zeros((ORDERS, len(sentences)))
        self.orders: list[Order] = []
        self._count(tokens)

    def __call__(self, images: npt.ArrayLike, samples: npt.ArrayLike) -> FloatArray:
        """Score a batch.

        Args:
            images: (N,) for each sample the index of its image in `references`.
            samples: (N, T) word ids, END, padding.

        Returns:
            (N,) CIDEr-D of each sample, times ten as usual.
        """
        image, rows = np.asarray(images, np.int64), np.asarray(samples, np.int64)
        self._check(image, rows)
        stop = (rows == END) | (rows == PAD)
        inside = (np.cumsum(stop, axis=1) - stop == 0) & (rows != PAD)  # up to padding, or up to END and with it
        tokens = Tokens(rows[inside], inside.sum(axis=1))
        sentences = tokens.sentences
        sample = np.repeat(np.arange(len(rows)), self._many[image])  # (P,) of each pair of a sample and a reference
        reference = spans(self._start[image], self._many[image])
        pair = np.cumsum(self._many[image]) - self._many[image] - self._start[image]  # + reference = its pair
        batch, slot = np.unique(image, return_inverse=True)
        products = np.zeros((ORDERS, len(sample)))
        lengths = np.zeros((ORDERS, len(rows)))
        number = np.zeros(1, np.int64)
        for n, (ngrams, order) in enumerate(zip(count_ngrams(tokens), self.orders, strict=True)):
            number = order.find(number[ngrams.prefix], ngrams.last)
            weights = ngrams.count * order.idf[number[ngrams.gram]]
            lengths[n] = norms(ngrams, weights, sentences, len(rows))
            ours, theirs = order.matches(ngrams, number, batch, slot)
            their_weights = order.count[theirs] * order.idf[order.gram[theirs]]
            product = np.minimum(weights[ours], their_weights) * their_weights
            products[n] = np.bincount(pair[ngrams.sentence[ours]] + order.reference[theirs], product, len(sample))
        agreement = cosines(products, lengths[:, sample], self._norms[:, reference])
        agreement *= length_penalty(np.maximum(tokens.lengths - 1, 0)[sample] - self._bigrams[reference])
        return mean_agreement(agreement, sample, len(rows))

    def _check(self, image: IntArray, rows: IntArray) -> None:
        if rows.ndim != 2 or image.shape != rows.shape[:1]:
            raise CountError(f"samples of shape {rows.shape} with image indices of shape {image.shape}")
        if image.size and (int(image.min()) < 0 or int(image.max()) >= len(self._many)):
            raise ConfigError(f"image indices run from {image.min()} to {image.max()}, of {len(self._many)} images")
        _check_ids(rows, "a sample")

    def _count(self, tokens: Tokens) -> None:
        """Number all n-grams of the references, weigh them, and list them by image."""
        images = len(self._many)
        image = np.repeat(np.arange(images), self._many)  # (R,) of each reference
        bits = int(tokens.words.max(initial=0)).bit_length()
        sentences = tokens.sentences
        for n, ngrams in enumerate(count_ngrams(tokens)):
            table = (ngrams.prefix << bits) | ngrams.last
            counts = images_with(ngrams.gram, image[ngrams.sentence], len(table))
            idf = np.append(idf_weights(counts, images), idf_weights(np.zeros(1), images))
            self._norms[n] = norms(ngrams, ngrams.count * idf[ngrams.gram], sentences, len(tokens.lengths))
            _, by_image = sort_places(image[ngrams.sentence], np.arange(len(ngrams.sentence)))
            self.orders.append(
                Order(
                    bits,
                    table,
                    idf,
                    gram=ngrams.gram[by_image].astype(np.int32),
                    reference=ngrams.sentence[by_image].astype(np.int32),
                    count=ngrams.count[by_image].astype(np.int32),
                    bounds=np.searchsorted(image[ngrams.sentence[by_image]], np.arange(images + 1)),
                )
            )


@dataclass(frozen=True)
class Order:
    """The n-grams of one n: a sorted table with their weights, and which reference of which image holds which."""

    bits: int  # of a word id in the numbers of `table`
    table: IntArray  # (G,) prefix number and last word in one number, ascending
    idf: FloatArray  # (G + 1,) the last is the weight of n-grams not in the table, whose number is -1
    gram: IntArray  # (E,) entries image by image, ascending within an image
    reference: IntArray  # (E,)
    count: IntArray  # (E,)
    bounds: IntArray  # (I + 1,) where each image's entries start

    def find(self, prefix: IntArray, last: IntArray) -> IntArray:
        """The numbers of n-grams, -1 where the table has none."""
        if not len(self.table):
            return np.full(len(last), -1)
        keys = np.where(last >> self.bits, -1, (prefix << self.bits) | last)  # a prefix of -1 gives a negative key
        at = np.minimum(np.searchsorted(self.table, keys), len(self.table) - 1)
        return np.where(self.table[at] == keys, at, -1)

    def matches(self, ngrams: NGrams, number: IntArray, images: IntArray, slot: IntArray) -> tuple[IntArray, IntArray]:
        """Pairs (entry of a sample, entry of a reference of its image) with the same n-gram, in the samples' order.

        `images` are the images of the batch, ascending; `slot` says for each sample which of them is its own.
        """
        many = self.bounds[images + 1] - self.bounds[images]
        entries = spans(self.bounds[images], many)
        width = len(self.table)
        keys = np.repeat(np.arange(len(images)), many) * width + self.gram[entries]  # ascending
        ours = np.argsort(ngrams.first, kind="stable")
        ours = ours[number[ngrams.gram[ours]] >= 0]
        wanted = slot[ngrams.sentence[ours]] * width + number[ngrams.gram[ours]]
        low = np.searchsorted(keys, wanted)
        match = np.append(keys, -1)[low] == wanted
        ours, wanted, low = ours[match], wanted[match], low[match]
        repeats = np.searchsorted(keys, wanted, side="right") - low
        return np.repeat(ours, repeats), entries[spans(low, repeats)]


def _check_ids(words: IntArray, holder: str) -> None:
    wrong = words[(words < 0) | (words >> 31 > 0)]
    if wrong.size:
        raise DataError(f"{holder} holds the word id {wrong[0]}", fix="word ids run from 0 to 2³¹ - 1; pad with 0")
