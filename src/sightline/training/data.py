"""Read the data of a recipe: from its files to pools of scenes and captions that batches draw from."""

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
from sightline.data.json_captions import sentiment_words
from sightline.data.records import CaptionedPhoto, GroundedPhoto
from sightline.errors import ConfigError, plural
from sightline.files import fingerprint
from sightline.models.model_configs import ModelConfig
from sightline.models.scan import POSSCANConfig
from sightline.models.scene_trans import SceneTransConfig
from sightline.text.vocabulary import SPECIALS, Rule, Vocabulary
from sightline.text.vocabulary import rule as named_rule
from sightline.training.data_config import DataConfig
from sightline.training.features import feature_pools
from sightline.training.new_model import CachedFeatures, Grid, Vision, outline
from sightline.training.objectives.distillation import BOXES, DistillationConfig
from sightline.training.recipe_captions import Splitter, choose_vocabulary, corpus_pools, read_corpus, read_photos
from sightline.training.stage import Stage
from sightline.training.tensor_tables import Mark, Pool, TextTable
from sightline.training.training_photos import pixel_pools
from sightline.training.word_boxes import word_overlaps

FIRST = torch.tensor([0])  # the row of a pool by which its scenes are known
READ_BY = {"r2m-image": ("vector",)}  # scene parts that an objective reads besides the model's


@dataclass(frozen=True, eq=False)
class Data:
    """What was read from the files that a recipe names."""

    vocabulary: Vocabulary  # of captions or corpus
    # `train`, `val`, `test`, those there are; `boxed`, photos with boxes alone; `corpus` and its held-out part
    # `corpus-val`
    pools: dict[str, Pool]
    rule: Rule  # that splits captions into words
    fingerprint: str = ""  # of the vision model that made the scenes; "" where unknown
    grounded: Mapping[str, GroundedPhoto] = field(default_factory=dict)  # annotated photos by their ids in the pools
    # words that carry a sentiment, by its name, where captions are measured by them
    sentiment: Mapping[str, frozenset[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what was read and decided, in plain sentences

    def digest(self) -> str:
        """A short name for the words, photos and captions, to notice that they changed between two runs."""
        parts = {
            name: (pool.ids, pool.references or (() if pool.texts is None else pool.texts.words))
            for name, pool in self.pools.items()
        }
        return fingerprint(json.dumps([self.vocabulary.words, parts, self.fingerprint], sort_keys=True))

    def card(self) -> dict[str, Any]:
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

    The scenes are read by `model`, which is trained by `stages`; `base` is what `config.root` is relative to. The
    `vocabulary` of a model to start from is taken over as it is. A `vision` that is trained too gets pixels.
    """
    config = replace(config, root=base / config.root)
    rule = named_rule(config.rule)
    rule = replace(rule, min_count=config.min_count or rule.min_count)
    needs = tuple(dict.fromkeys((*needs_of(model, stages), *config.parts)))
    dictionary = None
    if "concepts" in needs:
        named = NAMED.get(config.dictionary)
        dictionary = named() if named else ConceptDictionary.read(config.path(Path(config.dictionary)))
    notes: list[str] = []
    splitter = Splitter(rule)
    photos = read_photos(config, Path(), notes)
    corpus = () if config.corpus is None else read_corpus(config.path(config.corpus), config.sentiment)
    if vocabulary is None:
        always = () if dictionary is None else dictionary.words
        vocabulary = choose_vocabulary(config.vocabulary, splitter, photos, corpus, always, notes)
    else:
        notes.append(f"The {len(vocabulary.words):,} words are those of the model it starts from.")
    if dictionary is not None:
        dictionary = dictionary.within(vocabulary)
    fingerprint = ""
    if not isinstance(vision, CachedFeatures):
        pools = pixel_pools(config, photos, vision.size, notes, cells=isinstance(vision, Grid))
    elif config.boxes is not None or config.boxed is not None:
        what = "data.boxes and data.boxed are for vision models that are trained, and the recipe reads features"
        raise ConfigError(what, fix="set vision.kind to detector, or remove them")
    else:
        pools = feature_pools(config, photos, needs, dictionary, vocabulary, notes)
        fingerprint = next((pool.scene_batch(FIRST).fingerprint for pool in pools.values()), "")
    mark = mark_of(model, stages)
    for role, part in photos.items():
        if role in pools:
            pools[role] = _with_captions(pools[role], part, splitter, vocabulary, mark)
    if {"regions", "grid"} <= set(needs_of(model)) and (isinstance(vision, Grid) or _alike(pools.get("train"))):
        notes.append(
            "Warning: regions and grid of these photos are the same numbers, and the model relates the one with the "
            "other. Use features whose regions are a detector's."
        )
    grounded = _grounded(config, photos, pools)
    teachers = [stage.objective.teacher for stage in stages if isinstance(stage.objective, DistillationConfig)]
    if grounded and BOXES in teachers:
        positives = word_overlaps(pools["train"], grounded)
        pools["train"] = replace(pools["train"], positives=positives)
        notes.append(f"{plural(len(positives), 'caption')} of train have words whose boxes are known.")
    if corpus:
        pools |= corpus_pools(config, corpus, splitter, vocabulary, dictionary, notes)
    sentiment = {} if config.sentiment_words is None else sentiment_words(config.path(config.sentiment_words))
    return Data(vocabulary, pools, rule, fingerprint, grounded, sentiment, tuple(notes))


def needs_of(model: ModelConfig, stages: Sequence[Stage] = ()) -> tuple[str, ...]:
    """The scene parts that the model and its objectives read."""
    needs = outline(model, len(SPECIALS)).needs
    if isinstance(model, SceneTransConfig) and model.concepts:
        needs = (*needs, "names")
    return tuple(dict.fromkeys((*needs, *(part for stage in stages for part in READ_BY.get(stage.objective.kind, ())))))


def mark_of(model: ModelConfig, stages: Sequence[Stage] = ()) -> Mark | None:
    """The function that marks nouns in captions, where the model or an objective treats them apart."""
    if isinstance(model, POSSCANConfig):
        return model.mark
    return POSSCANConfig().mark if any(isinstance(stage.objective, DistillationConfig) for stage in stages) else None


def _with_captions(
    pool: Pool, photos: Sequence[CaptionedPhoto], splitter: Splitter, vocabulary: Vocabulary, mark: Mark | None
) -> Pool:
    photo_of = {photo.id: photo for photo in photos}
    captioned = [photo_of[id] for id in pool.ids]
    sentences = [words for photo in captioned for words in splitter.sentences(photo)]
    if not sentences:
        return pool
    first = np.cumsum([0, *(len(photo.sentences) for photo in captioned)], dtype=np.int64)
    texts = TextTable.build(sentences, vocabulary, splitter.rule.max_words, mark)
    references = tuple(tuple(sentence.text for sentence in photo.sentences) for photo in captioned)
    return replace(pool, texts=texts, first=first, references=references)


def _alike(pool: Pool | None) -> bool:
    """True where regions and grid are the same features, as a grid encoder gives them."""
    if pool is None:
        return False
    scene = pool.scene_batch(FIRST)
    return scene.regions is not None and scene.grid is not None and torch.equal(scene.regions, scene.grid)


def _grounded(
    config: DataConfig, photos: Mapping[str, Sequence[CaptionedPhoto]], pools: Mapping[str, Pool]
) -> dict[str, GroundedPhoto]:
    """The annotated photos of all splits, by the ids they have there."""
    if config.grounding is None:
        return {}
    path, classes = config.path(config.grounding), read_classes()
    annotations = read_entities(path)
    grounded: dict[str, GroundedPhoto] = {}
    for role, part in photos.items():
        used = set(pools[role].ids) if role in pools else set()
        for photo in part:
            annotation = annotations.get(photo_number(photo.file or photo.id))
            if annotation is not None and photo.id in used:
                grounded[photo.id] = replace(ground(annotation, classes), id=photo.id, split=role)
    if not grounded:
        fix = "give the annotations of the same photos; they are named by the number before `_`"
        raise ConfigError("none of its photos is one of the captions'", where=path, fix=fix)
    return grounded
