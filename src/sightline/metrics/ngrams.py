"""n-grams of many sentences at once, as whole numbers in a few arrays instead of a dictionary a sentence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.signedinteger[Any]]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
Words = tuple[str, ...]

ORDERS = 4  # BLEU and CIDEr both look at n-grams of one to four words


@dataclass(frozen=True)
class Tokens:
    """Sentences as one stream of word ids. `lengths` parts the stream; `vocabulary` names the ids (or is empty)."""

    words: IntArray  # (N,)
    lengths: IntArray  # (S,)
    vocabulary: tuple[str, ...] = ()

    @classmethod
    def of(cls, sentences: Sequence[str]) -> Tokens:
        """Split sentences at white space and number their words in the order they come."""
        mark = "\0"  # one split of one long text is faster than a split a sentence; the mark must be no one's word
        while any(mark in sentence for sentence in sentences):
            mark += "\0"
        stream = " ".join(chain.from_iterable((sentence, mark) for sentence in sentences)).split()
        number: dict[str, int] = defaultdict(count().__next__, {mark: -1})
        words = np.fromiter(map(number.__getitem__, stream), np.int64, len(stream))
        ends = np.flatnonzero(words < 0)
        return cls(words[words >= 0], np.diff(ends, prepend=-1) - 1, tuple(number)[1:])

    @property
    def sentences(self) -> IntArray:
        """(N,) which sentence each word of the stream stands in."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


@dataclass(frozen=True)
class NGrams:
    """How often each sentence holds each n-gram, for one n. Entries are sorted by n-gram, then by sentence.

    n-grams are numbered by their prefix (a number among the n-grams one word shorter), then by their last word.
    """

    gram: IntArray  # (E,)
    sentence: IntArray  # (E,)
    count: IntArray  # (E,)
    first: IntArray  # (E,) place in the word stream where the sentence first has it
    prefix: IntArray  # (G,) 0 for single words
    last: IntArray  # (G,) the id of the last word


def count_ngrams(tokens: Tokens) -> Iterator[NGrams]:
    """Yield the counted n-grams of one word, then of two, three and four; one sort of the stream each."""
    words, sentences = tokens.words, tokens.sentences
    left = np.repeat(np.cumsum(tokens.lengths), tokens.lengths) - np.arange(len(words))  # words to the sentence's end
    bits = int(words.max()).bit_length() if len(words) else 0
    rank = np.zeros(len(words), np.int64)  # number of the shorter n-gram that starts at each place
    for n in range(ORDERS):
        places = np.flatnonzero(left > n)
        keys, at = sort_places((rank[places] << bits) | words[n:][places], places)
        home = sentences[at]
        new_gram = _changes(keys)
        rank[at] = number = np.cumsum(new_gram) - 1
        starts = np.flatnonzero(new_gram | _changes(home))
        repeats = np.diff(starts, append=len(keys))
        distinct = keys[new_gram]
        entries = (number[starts], home[starts], repeats, at[starts])
        yield NGrams(*entries, prefix=distinct >> bits, last=distinct & ((1 << bits) - 1))


def name_ngrams(ngrams: NGrams, prefixes: Sequence[Words], vocabulary: Sequence[str]) -> list[Words]:
    """Every n-gram as its words; `prefixes` are the names of the n-grams one word shorter ([()] for single words)."""
    pairs = zip(ngrams.prefix.tolist(), ngrams.last.tolist(), strict=True)
    return [(*prefixes[prefix], vocabulary[last]) for prefix, last in pairs]


@dataclass(frozen=True)
class Lineup:
    """Hypotheses and references in one row for counting: each image's hypothesis, then its references."""

    tokens: Tokens
    image: IntArray  # (S,) of each sentence
    hypothesis: IntArray  # (I,) the sentence that is each image's hypothesis

    @classmethod
    def of(cls, hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> Lineup:
        sentences = chain.from_iterable((caption, *references[id]) for id, caption in hypotheses.items())
        tokens = Tokens.of([*sentences])
        size = np.fromiter((1 + len(references[id]) for id in hypotheses), np.int64, len(hypotheses))
        return cls(tokens, np.repeat(np.arange(len(size)), size), np.cumsum(size) - size)

    def matches(self, ngrams: NGrams) -> Iterator[tuple[IntArray, IntArray]]:
        """Pairs of entries (of a hypothesis, of a reference of its image) with the same n-gram.

        In the sorted entries those of the references stand right behind that of the hypothesis, so the pairs come in a
        few batches: with the next entry, with the second next, …
        """
        image = self.image[ngrams.sentence]
        entries = np.flatnonzero(ngrams.sentence == self.hypothesis[image])
        for distance in count(1):
            entries = entries[entries < len(ngrams.gram) - distance]
            entries = entries[ngrams.gram[entries + distance] == ngrams.gram[entries]]
            entries = entries[image[entries + distance] == image[entries]]
            if not len(entries):
                return
            yield entries, entries + distance


def images_with(gram: IntArray, image: IntArray, total: int) -> IntArray:
    """(G,) in how many images each n-gram stands; entries of the same n-gram and image must be neighbours."""
    fresh = _changes(gram) | _changes(image)
    return np.bincount(gram[fresh], minlength=total)


def norms(ngrams: NGrams, weights: FloatArray, sentences: IntArray, total: int) -> FloatArray:
    """(S,) length of every sentence's vector of weights, summed in the order of its words."""
    squares = np.zeros(len(sentences))
    squares[ngrams.first] = weights**2
    return np.sqrt(np.bincount(sentences, squares, total))


def spans(starts: IntArray, lengths: IntArray) -> IntArray:
    """The numbers start, start + 1, … of every span, one span after the other."""
    shift = starts - np.cumsum(lengths) + lengths
    return np.repeat(shift, lengths) + np.arange(int(lengths.sum()))


def ngram_counts(sentence: str) -> Counter[Words]:
    """The n-grams of one sentence, shorter ones first, each with its count."""
    words = sentence.split()
    return Counter(tuple(words[i : i + n]) for n in range(1, ORDERS + 1) for i in range(len(words) - n + 1))


def sort_places(keys: IntArray, places: IntArray) -> tuple[IntArray, IntArray]:
    """Keys and their (ascending) places, sorted by key, then place."""
    if not len(keys):
        return keys, places
    bits = int(places.max()).bit_length()
    if int(keys.max()).bit_length() + bits > 63:
        order = np.argsort(keys, kind="stable")
        return keys[order], places[order]
    packed = np.sort((keys << bits) | places)  # sorting values is several times faster than sorting indices
    return packed >> bits, packed & ((1 << bits) - 1)


def _changes(values: IntArray) -> BoolArray:
    """True at the first value and wherever a value differs from the one before."""
    changes = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes
