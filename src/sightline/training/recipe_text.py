"""The words of a recipe: captions split once, the vocabulary, and the text corpus of R²M (section 3.2).

A sentence of the corpus is kept if it has 8 to 28 words (Treebank words, punctuation counts), at most 15 % of them
unknown, and at least one concept. 1 % of what is kept is held out: each text stage stops by its loss.

The authors' code replaces plurals of concept words by the singular throughout the captions. Here only the list of
concepts is in the singular, *two dogs* mentions *dog*; the sentence itself keeps its words, since it is what the model
learns to say, and it should not learn to say *two dog*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from sightline.data import karpathy, text_lists
from sightline.data.concept_dictionary import ConceptDictionary
from sightline.data.inspect import identify
from sightline.data.records import CaptionedPhoto
from sightline.errors import ConfigError, CountError, DataError
from sightline.files import PathLike
from sightline.scene import Concept, Scene
from sightline.text.vocabulary import Rule, Vocabulary, build_vocabulary
from sightline.training.data_config import DataConfig, Sentiment
from sightline.training.recipe_photos import hash_share, plural
from sightline.training.tensor_tables import Pool, SceneTable, TextTable


class Splitter:
    """A rule that remembers what it split: Treebank words take longer than everything else that reading does."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._known: dict[tuple[str, tuple[str, ...] | None], tuple[str, ...]] = {}

    def words(self, text: str, tokens: tuple[str, ...] | None = None) -> tuple[str, ...]:
        key = (text, tokens if self.rule.given_tokens else None)
        if key not in self._known:
            self._known[key] = tuple(self.rule.all_words(text, tokens))
        return self._known[key]

    def sentences(self, photo: CaptionedPhoto) -> list[tuple[str, ...]]:
        """The words of each caption of a photo; a caption of no words is an error."""
        split = [self.words(sentence.text, sentence.tokens) for sentence in photo.sentences]
        for sentence, words in zip(photo.sentences, split, strict=True):
            if not words:
                what = f"the caption {sentence.text[:40]!r} of photo {photo.id} has no word"
                raise DataError(what, fix="write one, or remove it")
        return split


def choose_vocabulary(
    source: Literal["rule", "train", "corpus"],
    splitter: Splitter,
    photos: Mapping[str, Sequence[CaptionedPhoto]],
    corpus: Sequence[str],
    always: Iterable[str],
    notes: list[str],
) -> Vocabulary:
    """The words that occur often enough where `source` says, then `always`."""
    rule = splitter.rule
    if source == "corpus":
        counted: Iterable[Sequence[str]] = (splitter.words(sentence) for sentence in corpus)
        where = "the corpus"
    else:
        roles = [role for role in photos if (role == "train" if source == "train" else rule.counts_split(role))]
        counted = (words for role in roles for photo in photos[role] for words in splitter.sentences(photo))
        where = ", ".join(roles)
    vocabulary = build_vocabulary(counted, rule.min_count, always)
    if not vocabulary.words:
        fix = "give more captions, or lower data.min_count"
        raise CountError(f"no word occurs {times(rule.min_count)} in {where}", fix=fix)
    notes.append(
        f"The vocabulary has {len(vocabulary.words):,} words: those that occur at least {times(rule.min_count)} in "
        f"{where} (rule {rule.name})."
    )
    return vocabulary


def times(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else f"{count} times"


def read_corpus(path: PathLike, sentiment: Sentiment = "") -> tuple[str, ...]:
    """The sentences of a text file, a line each, or the captions of any format that holds some.

    `sentiment` chooses among those of SentiCap.
    """
    path = Path(path)
    kind = identify(path)
    if sentiment and kind.name != karpathy.SENTICAP.name:
        raise ConfigError(f"{kind.name} tells no sentiment", where=path, fix="give a SentiCap file, or no sentiment")
    if kind.name == text_lists.CORPUS.name:
        return tuple(text_lists.read_sentences(path))
    if kind.captions is None:
        raise ConfigError(f"{kind.name} holds no sentences", where=path, fix="give a text file, a sentence per line")
    sentences = kind.captions(path).sentences()
    return tuple(s.text for s in sentences if not sentiment or karpathy.sentiment_of(s) == sentiment)


def corpus_pools(
    config: DataConfig,
    corpus: Sequence[str],
    splitter: Splitter,
    vocabulary: Vocabulary,
    dictionary: ConceptDictionary | None,
    notes: list[str],
) -> dict[str, Pool]:
    """`corpus` and `corpus-val`: sentences of the right length and known enough, each with the concepts it mentions.

    A hash decides which sentences are held out, so that equal ones are on the same side.
    """
    split = [(text, splitter.words(text)) for text in corpus]
    least, most = max(1, config.min_words), config.max_words or float("inf")
    fitting = [(text, words) for text, words in split if least <= len(words) <= most]
    unknown = [sum(word not in vocabulary for word in words) / len(words) for _, words in fitting]
    known = [pair for pair, share in zip(fitting, unknown, strict=True) if share <= config.unknown]
    named = [()] * len(known) if dictionary is None else dictionary.find_all([words for _, words in known])
    sides: dict[str, list[tuple[tuple[str, ...], Scene]]] = {"corpus": [], "corpus-val": []}  # words, what they mention
    for number, ((text, words), names) in enumerate(zip(known, named, strict=True)):
        if dictionary is None or names:
            scene = Scene(f"sentence {number}", concepts=tuple(map(Concept, names)))
            sides["corpus-val" if hash_share(text) < config.held_out else "corpus"].append((words, scene))
    used = sum(map(len, sides.values()))
    if used < 2:
        raise CountError(
            f"{used} of {plural(len(corpus), 'sentence')} of the corpus can be used, and 2 are needed",
            fix="add text about things that the dictionary knows, lower data.min_words, or raise data.max_words",
        )
    for side, other in (("corpus", "corpus-val"), ("corpus-val", "corpus")):
        if not sides[side]:
            sides[side].append(sides[other].pop())
    longest = f" or more than {config.max_words}" if config.max_words else ""
    notes.append(
        f"Of {plural(len(corpus), 'sentence')} of the corpus {used:,} are used, {len(sides['corpus-val']):,} of them "
        f"to choose models by. Left out: {len(split) - len(fitting):,} of fewer than {config.min_words}{longest} "
        f"words, {len(fitting) - len(known):,} with too many unknown words, {len(known) - used:,} that name nothing "
        "of the dictionary."
    )
    pools = {}
    for name, rows in sides.items():
        rows = rows[: config.max_photos or None]
        scenes = [scene for _, scene in rows]
        pools[name] = Pool(
            tuple(scene.id for scene in scenes),
            None if dictionary is None else SceneTable.build(scenes, ("concepts",), vocabulary),
            TextTable.build([words for words, _ in rows], vocabulary, splitter.rule.max_words),
            np.arange(len(rows) + 1, dtype=np.int64),
        )
    return pools
