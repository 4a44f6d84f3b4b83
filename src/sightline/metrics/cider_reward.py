"""CIDEr-D as the reward of self-critical training: references are counted once, a batch of samples takes milliseconds.

The usual scorer turns ids into text, counts every reference again at every call, and reads document frequencies through
a `defaultdict`, which grows with every n-gram a sample invents. Here n-grams are rows of sorted tables, made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from sightline.errors import ConfigError, CountError, DataError
from sightline.metrics.cider import DocumentFrequencies, cosines, idf_weights, length_penalty, mean_agreement
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


class CiderDReward:
    """CIDEr-D of sampled token ids against the references of their images.

    Equal to `CIDErD` over the same sentences written as ids. END counts as a word on both sides (`include_end`), as in
    self-critical training: without it the reward cannot see bad endings. A reference always ends; a sample that was cut
    off before END gets no END n-grams.

    Args:
        references: for each image its references, each a list of word ids (what follows END or padding is ignored).
        frequencies: document frequencies over words or id strings; by default counted on `references`.
        ids: from a part of a key in `frequencies` to the word id used here ("dog" → 17, or "0" → END for id strings of
            another layout); by default the parts are the ids. Keys with a part that is missing here are left out.
        end_id: END. The layout of older files, where 0 is both END and padding, is `end_id=0`.
        pad_id: padding behind END.
        include_end: count END as a word.
    """

    def __init__(
        self,
        references: Sequence[Sequence[Sequence[int]]],
        frequencies: DocumentFrequencies | None = None,
        *,
        ids: Mapping[str, int] | None = None,
        end_id: int = 2,
        pad_id: int = 0,
        include_end: bool = True,
    ) -> None:
        self.end_id, self.pad_id, self.include_end = end_id, pad_id, include_end
        self._many = np.array([len(sentences) for sentences in references], np.int64)  # (I,) references an image
        if not self._many.all():
            raise DataError("an image has no reference", where=f"image index {int(np.argmin(self._many))}")
        self._start = np.cumsum(self._many) - self._many  # (I,) its first reference
        sentences = [(*sentence, end_id) for image in references for sentence in image]
        words = np.fromiter(chain.from_iterable(sentences), np.int64)
        _check_ids(words, "a reference")
        tokens = self._tokens(words, np.array([len(one) for one in sentences], np.int64), close=True)
        self._length = np.maximum(tokens.lengths - 1, 0)  # (R,) in bigrams
        self._norms = np.zeros((ORDERS, len(self._length)))
        self._orders: list[_Order] = []
        self._cook(tokens, frequencies, ids)

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
        tokens = self._tokens(rows.ravel(), np.full(len(rows), rows.shape[1]), close=False)
        sentences = tokens.sentences
        sample = np.repeat(np.arange(len(rows)), self._many[image])  # (P,) of each pair of a sample and a reference
        reference = spans(self._start[image], self._many[image])
        pair = np.cumsum(self._many[image]) - self._many[image] - self._start[image]  # + reference = its pair
        batch, slot = np.unique(image, return_inverse=True)
        dots = np.zeros((ORDERS, len(sample)))
        lengths = np.zeros((ORDERS, len(rows)))
        number = np.zeros(1, np.int64)
        for n, (ngrams, order) in enumerate(zip(count_ngrams(tokens), self._orders, strict=True)):
            number = order.find(number[ngrams.prefix], ngrams.last)
            weights = ngrams.count * order.idf[number[ngrams.gram]]
            lengths[n] = norms(ngrams, weights, sentences, len(rows))
            said, heard = order.matches(ngrams, number, batch, slot)
            theirs = order.count[heard] * order.idf[order.gram[heard]]
            at = pair[ngrams.sentence[said]] + order.reference[heard]
            dots[n] = np.bincount(at, np.minimum(weights[said], theirs) * theirs, len(sample))
        agreement = cosines(dots, lengths[:, sample], self._norms[:, reference])
        agreement *= length_penalty(np.maximum(tokens.lengths - 1, 0)[sample] - self._length[reference])
        return mean_agreement(agreement, sample, len(rows))

    def _check(self, image: IntArray, rows: IntArray) -> None:
        if rows.ndim != 2 or image.shape != rows.shape[:1]:
            raise CountError(f"samples of shape {rows.shape} with image indices of shape {image.shape}")
        if image.size and (int(image.min()) < 0 or int(image.max()) >= len(self._many)):
            raise ConfigError(f"image indices run from {image.min()} to {image.max()}, of {len(self._many)} images")
        _check_ids(rows, "a sample")

    def _tokens(self, words: IntArray, lengths: IntArray, close: bool) -> Tokens:
        """Words up to END or padding. Where `close`, padding too stands for END."""
        sentences = np.repeat(np.arange(len(lengths)), lengths)
        stop = (words == self.end_id) | (words == self.pad_id)
        stops = np.concatenate([[0], np.cumsum(stop)])
        open_ = stops[:-1] == np.repeat(stops[np.cumsum(lengths) - lengths], lengths)  # no stop before this place
        ends = open_ & (stop if close else words == self.end_id)
        keep = (open_ & ~stop) | (ends & self.include_end)
        return Tokens(np.where(ends, self.end_id, words)[keep], np.bincount(sentences[keep], minlength=len(lengths)))

    def _cook(self, tokens: Tokens, frequencies: DocumentFrequencies | None, ids: Mapping[str, int] | None) -> None:
        """Number all n-grams of references and document frequencies, weigh them, and list them by image."""
        image = np.repeat(np.arange(len(self._many)), self._many)
        saved = [] if frequencies is None else _as_ids(frequencies, ids)
        images = len(self._many) if frequencies is None else frequencies.images
        highest = max([int(words.max(initial=0)) for words in (tokens.words, *(words for words, _ in saved))])
        bits = highest.bit_length()
        number = np.zeros(1, np.int64)  # in the tables, of each counted n-gram one word shorter
        prefix = [np.zeros(len(words), np.int64) for words, _ in saved]  # the same of each saved key
        sentences = tokens.sentences
        for n, ngrams in enumerate(count_ngrams(tokens)):
            counted = (number[ngrams.prefix] << bits) | ngrams.last
            longer = range(n, len(saved))  # keys of more than n words; their beginnings get numbers too
            keys = {m: (prefix[m] << bits) | saved[m][0][:, n] for m in longer}
            table = np.unique(np.concatenate([counted, *keys.values()]))
            number = np.searchsorted(table, counted)
            for m in longer:
                prefix[m] = np.searchsorted(table, keys[m])
            _, by_image = sort_places(image[ngrams.sentence], np.arange(len(ngrams.sentence)))
            gram, reference = number[ngrams.gram[by_image]], ngrams.sentence[by_image]
            found = np.zeros(len(table))
            if saved:
                found[prefix[n]] = saved[n][1]
            else:
                found[:] = images_with(gram, image[reference], len(table))
            idf = np.append(idf_weights(found, images), idf_weights(np.zeros(1), images))
            bounds = np.searchsorted(image[reference], np.arange(len(self._many) + 1))
            count = ngrams.count[by_image]
            self._norms[n] = norms(ngrams, ngrams.count * idf[number[ngrams.gram]], sentences, len(tokens.lengths))
            postings = (gram.astype(np.int32), reference.astype(np.int32), count.astype(np.int32))
            self._orders.append(_Order(bits, table, idf, *postings, bounds))


@dataclass(frozen=True)
class _Order:
    """The n-grams of one n: a sorted table with their weights, and which reference of which image holds which."""

    bits: int
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
        said = np.argsort(ngrams.first, kind="stable")
        said = said[number[ngrams.gram[said]] >= 0]
        wanted = slot[ngrams.sentence[said]] * width + number[ngrams.gram[said]]
        low = np.searchsorted(keys, wanted)
        found = np.append(keys, -1)[low] == wanted
        said, wanted, low = said[found], wanted[found], low[found]
        repeats = np.searchsorted(keys, wanted, side="right") - low
        return np.repeat(said, repeats), entries[spans(low, repeats)]


def _check_ids(words: IntArray, holder: str) -> None:
    wrong = words[(words < 0) | (words >> 31 > 0)]
    if wrong.size:
        raise DataError(f"{holder} holds the word id {wrong[0]}", fix="word ids run from 0 to 2³¹ - 1; pad with pad_id")


def _as_ids(df: DocumentFrequencies, ids: Mapping[str, int] | None) -> list[tuple[IntArray, FloatArray]]:
    """For n = 1…4 the keys of n words as (M, n) word ids, and their counts."""
    rows: list[list[list[int]]] = [[] for _ in range(ORDERS)]
    counts: list[list[float]] = [[] for _ in range(ORDERS)]
    for words, count in df.counts.items():
        if not 1 <= len(words) <= ORDERS:
            raise DataError(f"the document frequencies hold an n-gram of {len(words)} words: {words}")
        try:
            row = [int(word) for word in words] if ids is None else [ids[word] for word in words]
        except KeyError:
            continue
        except ValueError:
            raise DataError(
                f"the document frequencies are over words ({words}), the references over ids",
                fix="give `ids`, which maps each word to its id",
            ) from None
        rows[len(words) - 1].append(row)
        counts[len(words) - 1].append(count)
    return [
        (np.array(row, np.int64).reshape(-1, n), np.array(count, np.float64))
        for n, (row, count) in enumerate(zip(rows, counts, strict=True), start=1)
    ]
