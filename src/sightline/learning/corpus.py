"""The text corpus of R²M: sentences that nobody wrote for our images, each with the concepts it mentions (section 3.2).

A sentence is kept if it has 8 words or more (Treebank words, punctuation counts), at most 15 % of them unknown, and at
least one concept. The first 1 % of what is kept is held out: each text stage stops by its loss.

The authors' code replaces plurals of concept words by the singular throughout the captions. Here only the list of
concepts is in the singular, *two dogs* mentions *dog*; the sentence itself keeps its words, since it is what the model
learns to say, and it should not learn to say *two dog*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from sightline.data import corpus as plain
from sightline.data import senticap
from sightline.data.inspect import identify
from sightline.errors import ConfigError, CountError
from sightline.files import PathLike
from sightline.learning.concepts import ConceptDictionary
from sightline.learning.tables import Pool, SceneTable, TextTable
from sightline.scene import Concept, Scene
from sightline.text.vocabulary import Vocabulary, build_vocabulary, rule

RULE = "r2m"
SMALL = 200_000  # sentences; below this, rarer words are kept too
Sentiment = Literal["positive", "negative"]


@dataclass(frozen=True)
class Keeping:
    """Which sentences and words of a corpus are kept.

    Attributes:
        min_words: sentences with fewer words are left out.
        max_words: sentences with more are left out; 28 with START and END are the 30 ids the authors' code pads to.
            None keeps all. A step takes as long as its longest sentence.
        unknown: the largest share of unknown words.
        min_count: how often a word must occur; 0 is 5 for corpora under 200,000 sentences, else 15.
        held_out: the share of sentences, the first ones, by whose loss text stages stop.
    """

    min_words: int = 8
    max_words: int | None = 28
    unknown: float = 0.15
    min_count: int = 0
    held_out: float = 0.01

    def __post_init__(self) -> None:
        if self.min_words < 1 or (self.max_words is not None and self.max_words < self.min_words):
            raise ConfigError(
                f"sentences of {self.min_words} to {self.max_words} words", fix="give min_words from 1 to max_words"
            )
        if not 0 <= self.unknown <= 1:
            raise ConfigError(f"`unknown` is {self.unknown}", fix="give a share from 0 to 1")
        if not 0 < self.held_out < 1:
            raise ConfigError(f"`held_out` is {self.held_out}", fix="give a share between 0 and 1 (the paper: 0.01)")


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sentences ready for training.

    Attributes:
        vocabulary: words that occur often enough, then the concept words that do not.
        train: the pool `corpus`; a scene's concepts are those of its sentence.
        held_out: the pool `corpus-val`.
        told: what was kept and what was not, in a sentence.
    """

    vocabulary: Vocabulary
    train: Pool
    held_out: Pool
    told: str


def read_corpus(path: PathLike, sentiment: Sentiment | None = None) -> list[str]:
    """The sentences of a text file, or the captions of a file of any format; `sentiment` chooses among SentiCap's."""
    path = Path(path)
    found = identify(path)
    if sentiment is not None and found.name != senticap.FORMAT.name:
        raise ConfigError(f"{found.name} tells no sentiment", where=path, fix="give a SentiCap file, or no sentiment")
    if found.name == plain.FORMAT.name:
        return plain.read_sentences(path)
    if found.captions is None:
        raise ConfigError(f"{found.name} holds no sentences", where=path, fix="give a text file, a sentence per line")
    sentences = found.captions(path).sentences()
    return [one.text for one in sentences if sentiment is None or senticap.sentiment_of(one) == sentiment]


def build_corpus(
    sentences: Sequence[str],
    dictionary: ConceptDictionary,
    keeping: Keeping | None = None,
    vocabulary: Vocabulary | None = None,
) -> Corpus:
    """Split, count, choose, and find concepts; `vocabulary` takes the words of another corpus instead of its own."""
    keeping = keeping or Keeping()
    splits = rule(RULE)
    every = [splits.words(sentence) for sentence in sentences]
    most = keeping.max_words or max(map(len, every), default=0)
    fitting = [words for words in every if keeping.min_words <= len(words) <= most]
    if vocabulary is None:
        min_count = keeping.min_count or (5 if len(sentences) < SMALL else 15)
        vocabulary = build_vocabulary(fitting, min_count, dictionary.words)
    known = [words for words in fitting if _unknown(words, vocabulary) <= keeping.unknown]
    pairs = [(words, found) for words, found in zip(known, dictionary.find_all(known), strict=True) if found]
    first = max(1, int(keeping.held_out * len(pairs)))
    if len(pairs) <= first:
        raise CountError(
            f"{len(pairs)} of {len(sentences)} sentences can be used",
            fix="give more text, or longer sentences about things that the dictionary knows",
        )
    told = (
        f"{len(pairs):,} of {len(sentences):,} sentences are kept, the first {first:,} to stop by. Left out: "
        f"{len(every) - len(fitting):,} too short or too long, {len(fitting) - len(known):,} with too many unknown "
        f"words, {len(known) - len(pairs):,} without a concept. {len(vocabulary.words):,} words."
    )
    return Corpus(vocabulary, _pool(pairs[first:], first, vocabulary), _pool(pairs[:first], 0, vocabulary), told)


def _unknown(words: Sequence[str], vocabulary: Vocabulary) -> float:
    return sum(word not in vocabulary for word in words) / len(words)


def _pool(pairs: Sequence[tuple[list[str], list[str]]], first: int, vocabulary: Vocabulary) -> Pool:
    ids = tuple(f"sentence {first + number}" for number in range(len(pairs)))
    scenes = (Scene(id, concepts=tuple(map(Concept, found))) for id, (_, found) in zip(ids, pairs, strict=True))
    return Pool(
        ids,
        SceneTable.build(scenes, ("concepts",), vocabulary),
        TextTable.build([words for words, _ in pairs], vocabulary),
        np.arange(len(pairs) + 1, dtype=np.int64),
    )
