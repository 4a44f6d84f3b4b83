"""Read the data of a recipe: from its files to pools of scenes and captions that batches draw from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sightline.data.concept_dictionary import NAMED, ConceptDictionary
from sightline.data.entities import ground, read_classes
from sightline.data.entities import read_photos as read_entities
from sightline.data.image_list import photo_number
from sightline.data.karpathy import sentiment_words
from sightline.data.records import CaptionedPhoto, GroundedPhoto
from sightline.errors import ConfigError
from sightline.files import fingerprint
from sightline.models.model_configs import ModelConfig
from sightline.models.pos_scan import POSSCANConfig
from sightline.text.vocabulary import SPECIALS, Rule, Vocabulary
from sightline.text.vocabulary import rule as named_rule
from sightline.training.data_config import DataConfig
from sightline.training.features import SplitScenes, split_scenes
from sightline.training.new_model import outline
from sightline.training.objectives.distillation import BOXES, DistillationConfig
from sightline.training.recipe_photos import ROLES, plural, read_photos
from sightline.training.recipe_text import Splitter, choose_vocabulary, corpus_pools, read_corpus
from sightline.training.stage import Stage
from sightline.training.tensor_tables import Mark, Pool, TextTable
from sightline.training.training_photos import BOXED, pixel_pools
from sightline.training.vision_config import CachedFeatures, Grid, Vision
from sightline.training.word_boxes import word_overlaps

__all__ = ["Data", "DataConfig", "build_data"]

READ_BY = {"r2m-image": ("vector",)}  # scene parts that an objective reads besides the model's


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a recipe, read.

    Attributes:
        vocabulary: of captions or corpus.
        pools: `train`, `val`, `test`, those there are; `boxed`, photos with boxes alone; `corpus` and its held-out part
            `corpus-val`.
        rule: that splits captions into words.
        fingerprint: of the vision model that made the scenes; "" where unknown.
        grounded: annotated photos by their ids in the pools.
        sentiment: words that carry a sentiment, by its name, where captions are measured by them.
        notes: what was read and decided, in plain sentences.
    """

    vocabulary: Vocabulary
    pools: dict[str, Pool]
    rule: Rule
    fingerprint: str = ""
    grounded: Mapping[str, GroundedPhoto] = field(default_factory=dict)
    sentiment: Mapping[str, frozenset[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def digest(self) -> str:
        """A short name for the words, photos and captions, to notice that they changed between two runs."""
        parts = {
            name: (pool.ids, pool.references or (() if pool.texts is None else pool.texts.words))
            for name, pool in self.pools.items()
        }
        return fingerprint(json.dumps([self.vocabulary.words, parts, self.fingerprint], sort_keys=True))

    def card(self) -> dict[str, Any]:
        """What a model's card says about its data."""
        counts = {
            name: {"photos": len(pool), "captions": 0 if pool.texts is None else len(pool.texts)}
            for name, pool in self.pools.items()
        }
        return {"counts": counts, "words": len(self.vocabulary.words), "rule": self.rule.name, "digest": self.digest()}


def build_data(
    config: DataConfig,
    model: ModelConfig,
    stages: Sequence[Stage] = (),
    *,
    base: Path = Path(),
    vocabulary: Vocabulary | None = None,
    vision: Vision = CachedFeatures(),  # noqa: B008 - it is frozen
) -> Data:
    """Read everything, match photos with features, and make the pools.

    Args:
        config: the recipe's.
        model: what reads the scenes.
        stages: what it is trained by.
        base: what `config.root` is relative to.
        vocabulary: of a model to start from, taken over as it is.
        vision: whether scenes are features or, for a backbone that is trained too, pixels.
    """
    rule = named_rule(config.rule)
    rule = replace(rule, min_count=config.min_count or rule.min_count)
    needs = tuple(dict.fromkeys((*needs_of(model, stages), *config.parts)))
    dictionary = _dictionary(config, base) if "concepts" in needs else None
    notes: list[str] = []
    splitter = Splitter(rule)
    photos = read_photos(config, base, notes)
    corpus = () if config.corpus is None else read_corpus(config.path(config.corpus, base), config.sentiment)
    if vocabulary is None:
        always = () if dictionary is None else dictionary.words
        vocabulary = choose_vocabulary(config.vocabulary, splitter, photos, corpus, always, notes)
    else:
        notes.append(f"The {len(vocabulary.words):,} words are those of the model it starts from.")
    if not isinstance(vision, CachedFeatures):
        scenes = pixel_pools(config, base, photos, vision.size, notes, cells=isinstance(vision, Grid))
    elif config.boxes is not None or config.boxed is not None:
        what = "data.boxes and data.boxed are for vision models that are trained, and the recipe reads features"
        raise ConfigError(what, fix="set vision.kind to detector, or remove them")
    else:
        scenes = split_scenes(config, base, photos, needs, dictionary, vocabulary, notes)
    pools = {
        role: _pool(scenes[role], splitter, vocabulary, mark_of(model, stages))
        for role in (*ROLES, BOXED)
        if role in scenes
    }
    if {"regions", "grid"} <= set(needs_of(model)) and (isinstance(vision, Grid) or _alike(pools.get("train"))):
        notes.append(
            "Warning: regions and grid of these photos are the same numbers, and the model relates the one with the "
            "other. Use features whose regions are a detector's."
        )
    if corpus:
        pools |= corpus_pools(config, corpus, splitter, vocabulary, dictionary, notes)
    grounded = _grounded(config, base, scenes)
    if grounded and wants_positives(stages):
        positives = word_overlaps(pools["train"], grounded)
        pools["train"] = replace(pools["train"], positives=positives)
        notes.append(f"{plural(len(positives), 'caption')} of train have words whose boxes are known.")
    marks = [one.fingerprint for one in scenes.values() if one.fingerprint]
    sentiment = {} if config.sentiment_words is None else sentiment_words(config.path(config.sentiment_words, base))
    return Data(vocabulary, pools, rule, marks[0] if marks else "", grounded, sentiment, tuple(notes))


def needs_of(model: ModelConfig, stages: Sequence[Stage] = ()) -> tuple[str, ...]:
    """The scene parts that the model and its objectives read."""
    needs = outline(model, len(SPECIALS)).needs
    return tuple(dict.fromkeys((*needs, *(part for stage in stages for part in READ_BY.get(stage.objective.kind, ())))))


def mark_of(model: ModelConfig, stages: Sequence[Stage] = ()) -> Mark | None:
    """The function that marks nouns in captions, where the model or an objective treats them apart."""
    if isinstance(model, POSSCANConfig):
        return model.mark
    return POSSCANConfig().mark if any(isinstance(stage.objective, DistillationConfig) for stage in stages) else None


def wants_positives(stages: Sequence[Stage]) -> bool:
    """True where an objective learns from annotated boxes."""
    objectives = (stage.objective for stage in stages)
    return any(isinstance(one, DistillationConfig) and one.teacher == BOXES for one in objectives)


def _dictionary(config: DataConfig, base: Path) -> ConceptDictionary:
    if config.dictionary in NAMED:
        return NAMED[config.dictionary]()
    return ConceptDictionary.read(config.path(Path(config.dictionary), base))


def _pool(split: SplitScenes, splitter: Splitter, vocabulary: Vocabulary, mark: Mark | None) -> Pool:
    photos = split.photos
    ids = tuple(photo.id for photo in photos)
    sentences = [words for photo in photos for words in splitter.sentences(photo)]
    if not sentences:
        return Pool(ids, split.scenes)
    first = np.cumsum([0, *(len(photo.sentences) for photo in photos)], dtype=np.int64)
    texts = TextTable.build(sentences, vocabulary, splitter.rule.max_words, mark)
    references = tuple(tuple(sentence.text for sentence in photo.sentences) for photo in photos)
    return Pool(ids, split.scenes, texts, first, references)


def _alike(pool: Pool | None) -> bool:
    """True where regions and grid are the same features, as a grid encoder gives them."""
    if pool is None or pool.scenes is None or not len(pool):
        return False
    first = pool.scenes.batch(torch.tensor([0]))
    return first.regions is not None and first.grid is not None and torch.equal(first.regions, first.grid)


def _grounded(config: DataConfig, base: Path, scenes: Mapping[str, SplitScenes]) -> dict[str, GroundedPhoto]:
    """The annotated photos of all pools, by the ids they have there."""
    if config.grounding is None:
        return {}
    annotated, classes = read_entities(config.path(config.grounding, base)), read_classes()
    grounded: dict[str, GroundedPhoto] = {}
    for role, one in scenes.items():
        for photo in one.photos if role != BOXED else ():
            known = annotated.get(_number(photo))
            if known is not None:
                grounded[photo.id] = replace(ground(known, classes), id=photo.id, split=role)
    if not grounded:
        raise ConfigError(
            "none of its photos is one of the captions'",
            where=config.path(config.grounding, base),
            fix="give the annotations of the same photos; they are named by the number before `_`",
        )
    return grounded


def _number(photo: CaptionedPhoto) -> str:
    return photo_number(photo.file or photo.id)
