"""Sentences without photos: the corpus from which R2M learns to speak."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sightline.data.corpus import FORMAT, read_sentences
from sightline.data.inspect import identify
from sightline.errors import ConfigError, CountError
from sightline.learning.concepts import ConceptDictionary
from sightline.learning.data_config import DataConfig
from sightline.learning.photos import hashed, plural
from sightline.learning.tables import Pool, SceneTable, TextTable
from sightline.learning.vocabularies import Splitter
from sightline.scene import Concept, Scene
from sightline.text.vocabulary import Vocabulary

Row = tuple[tuple[str, ...], Scene]  # words, and what they mention


def read_corpus(path: Path) -> tuple[str, ...]:
    """The sentences of a text file, a line each, or the captions of any format that holds some."""
    found = identify(path)
    if found.name == FORMAT.name:
        return tuple(read_sentences(path))
    if found.captions is None:
        raise ConfigError(f"{found.name} holds no sentences", where=path, fix="give a text file, a sentence per line")
    return tuple(sentence.text for sentence in found.captions(path).sentences())


def corpus_pools(
    config: DataConfig,
    corpus: Sequence[str],
    splitter: Splitter,
    vocabulary: Vocabulary,
    dictionary: ConceptDictionary | None,
    told: list[str],
) -> dict[str, Pool]:
    """`corpus` and `corpus-val`: sentences that are long and known enough, each with the concepts it mentions.

    A hash decides which sentences are held out, so that equal ones are on the same side.
    """
    split = [(text, splitter.words(text)) for text in corpus]
    long = [(text, words) for text, words in split if len(words) >= max(1, config.min_words)]
    known = [
        (text, words)
        for text, words in long
        if sum(word not in vocabulary for word in words) <= config.unknown * len(words)
    ]
    named = [()] * len(known) if dictionary is None else dictionary.find_all([words for _, words in known])
    sides: dict[str, list[Row]] = {"corpus": [], "corpus-val": []}
    for number, ((text, words), names) in enumerate(zip(known, named, strict=True)):
        if dictionary is None or names:
            scene = Scene(f"sentence {number}", concepts=tuple(map(Concept, names)))
            sides["corpus-val" if hashed(text) < config.held_out else "corpus"].append((words, scene))
    used = sum(map(len, sides.values()))
    if used < 2:
        raise CountError(
            "the corpus has fewer than 2 sentences that can be used", fix="lower data.min_words, or add text"
        )
    for side, other in (("corpus", "corpus-val"), ("corpus-val", "corpus")):
        if not sides[side]:
            sides[side].append(sides[other].pop())
    told.append(
        f"Of {plural(len(corpus), 'sentence')} of the corpus {used:,} are used, {len(sides['corpus-val']):,} of them "
        f"to choose models by. Left out: {len(split) - len(long):,} of fewer than {config.min_words} words, "
        f"{len(long) - len(known):,} with too many unknown words, {len(known) - used:,} that name nothing of "
        "the dictionary."
    )
    most = config.max_photos or len(corpus)
    return {name: _pool(rows[:most], splitter, vocabulary, dictionary) for name, rows in sides.items()}


def _pool(
    rows: Sequence[Row], splitter: Splitter, vocabulary: Vocabulary, dictionary: ConceptDictionary | None
) -> Pool:
    scenes = [scene for _, scene in rows]
    return Pool(
        tuple(scene.id for scene in scenes),
        None if dictionary is None else SceneTable.build(scenes, ("concepts",), vocabulary),
        TextTable.build([words for words, _ in rows], vocabulary, splitter.rule.max_words),
        np.arange(len(rows) + 1, dtype=np.int64),
    )
