"""A tiny set of photos with captions that mean something, for objectives that tag, match or score words."""

from __future__ import annotations

import numpy as np
import torch

from captioner_contract import REGION_WIDTH, random_scenes
from sightline.batch import SceneBatch, TextBatch
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner
from sightline.models.matcher import Matcher
from sightline.models.scan import POSSCANConfig, SCANConfig
from sightline.models.updown import UpDownConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.text.vocabulary import Vocabulary
from sightline.training.batches import Batch
from sightline.training.objective import Context
from sightline.training.tensor_tables import Pool, SceneTable, TextTable

CAPTIONS = (
    ("a dog runs on the grass", "a brown dog on a field"),
    ("a man rides a red bicycle", "the man on a bicycle in a street"),
    ("two children play in the snow", "a child in the snow"),
    ("a cat sleeps on a sofa", "the cat on a red sofa"),
)
SENTENCES = [caption.split() for captions in CAPTIONS for caption in captions]
VOCABULARY = Vocabulary(sorted({word for words in SENTENCES for word in words} - {"field"}))  # the captioner's
THEIR_WORDS = Vocabulary(sorted({word for words in SENTENCES for word in words} - {"street", "runs"}, reverse=True))
ATTENDING = {"region_width": REGION_WIDTH, "word_size": 8, "size": 12}


def scenes(fingerprint: str = "") -> SceneBatch:
    parts = {n: v for n, v in vars(random_scenes(4, seed=7)).items() if n not in ("concepts", "concept_mask")}
    return SceneBatch(**{**parts, "fingerprint": fingerprint})


def pool(seen: SceneBatch | None = None) -> Pool:
    texts = TextTable.build(SENTENCES, VOCABULARY, max_words=16)
    return Pool(("0", "1", "2", "3"), SceneTable(seen or scenes()), texts, np.arange(0, 9, 2))


def batch(nouns: bool = True, photos: tuple[int, ...] = (0, 1, 2, 3), seen: SceneBatch | None = None) -> Batch:
    """Photos with both captions each."""
    whole, rows = pool(seen), torch.tensor([2 * p + k for p in photos for k in range(2)])
    assert whole.scenes is not None
    sentences = [SENTENCES[row] for row in rows.tolist()]
    texts = TextBatch.collate(sentences, VOCABULARY, mark=POSSCANConfig().mark if nouns else None)
    index = torch.tensor(photos)
    return Batch(index, whole.scenes.batch(index), texts, rows)


def updown(dropout: float = 0.0, seed: int = 0, words: Vocabulary = VOCABULARY) -> Captioner:
    torch.manual_seed(seed)
    config = UpDownConfig(region_width=REGION_WIDTH, word_size=8, hidden_size=12, attention_size=8, dropout=dropout)
    return config.build(len(words))


def matcher(kind: str, words: Vocabulary = THEIR_WORDS) -> Matcher:
    torch.manual_seed(5)
    if kind == "vsepp":
        return VSEPPConfig(image="regions", region_width=REGION_WIDTH, word_size=8, size=12).build(len(words))
    return (POSSCANConfig if kind == "pos-scan" else SCANConfig)(**ATTENDING).build(len(words))


def context(fingerprint: str = "", **models: Captioner) -> Context:
    """A context that finds the matchers scan, pos-scan and vsepp, and what else is given."""

    def find(name: str) -> Checkpoint:
        if name in models:
            return Checkpoint(models[name], VOCABULARY)
        if name not in ("scan", "pos-scan", "vsepp"):
            raise ConfigError(f"no model {name}")
        return Checkpoint(matcher(name), THEIR_WORDS, "scan", fingerprint=fingerprint)

    return Context(VOCABULARY, {"train": pool()}, find)
