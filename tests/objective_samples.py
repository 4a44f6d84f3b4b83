"""A small pool of photos with captions, small captioners, and a few steps of training, for tests of objectives."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import numpy as np
import torch

from captioner_contract import GRID_WIDTH, REGION_WIDTH, VECTOR_WIDTH, WORDS, random_scenes
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.models.adaptive_attention import AdaptiveAttention, AdaptiveAttentionConfig
from sightline.models.captioner import Captioner
from sightline.models.neuraltalk2 import NeuralTalk2, NeuralTalk2Config
from sightline.models.scan import SCANConfig
from sightline.models.updown import UpDown, UpDownConfig
from sightline.text.vocabulary import Vocabulary
from sightline.training.batches import Batch, Batches, Batching
from sightline.training.objective import Context, Objective, Progress
from sightline.training.tensor_tables import Pool, SceneTable, TextTable

VOCABULARY = Vocabulary([f"word{i}" for i in range(WORDS - 4)])


def updown(seed: int = 0, dropout: float = 0.0) -> UpDown:
    torch.manual_seed(seed)
    sizes = {"word_size": 12, "hidden_size": 12, "attention_size": 8}
    return UpDownConfig(region_width=REGION_WIDTH, dropout=dropout, **sizes).build(WORDS)


def adaptive(seed: int = 0, dropout: float = 0.0) -> AdaptiveAttention:
    torch.manual_seed(seed)
    sizes = {"word_size": 12, "hidden_size": 12, "attention_size": 8}
    widths = {"grid_width": GRID_WIDTH, "vector_width": VECTOR_WIDTH}
    return AdaptiveAttentionConfig(dropout=dropout, **widths, **sizes).build(WORDS)


def neuraltalk2(seed: int = 0, dropout: float = 0.0) -> NeuralTalk2:
    torch.manual_seed(seed)
    return NeuralTalk2Config(vector_width=VECTOR_WIDTH, dropout=dropout, word_size=12, hidden_size=12).build(WORDS)


def matcher() -> torch.nn.Module:
    return SCANConfig(region_width=REGION_WIDTH, word_size=8, size=8).build(WORDS)


CAPTIONERS = (updown, adaptive)
FIRST = Progress()


def make_pool(photos: int = 6, captions: int = 2, seed: int = 0) -> Pool:
    """Photos with random features, each with `captions` captions of 1 to 6 random words."""
    draw = random.Random(seed)
    sentences = [draw.choices(VOCABULARY.words, k=draw.randint(1, 6)) for _ in range(photos * captions)]
    return Pool(
        ids=tuple(str(i) for i in range(photos)),
        scenes=SceneTable(random_scenes(photos, seed)),
        texts=TextTable.build(sentences, VOCABULARY),
        first=np.arange(photos + 1) * captions,
    )


def make_context(pool: Pool, find: Callable[[str], Checkpoint] | None = None, seed: int = 0) -> Context:
    return Context(VOCABULARY, {"train": pool}, find, seed=seed)


def make_batch(
    pool: Pool, objective: Objective | None = None, size: int = 3, captions: int = 2, seed: int = 0
) -> Batch:
    negatives = 0 if objective is None else objective.negatives
    return Batches(pool, Batching(size=size, captions=captions), seed, negatives).batch(0, 0)


def checkpoint(model: Captioner, vocabulary: Vocabulary = VOCABULARY, fingerprint: str = "") -> Checkpoint:
    return Checkpoint(model.eval(), vocabulary, fingerprint=fingerprint)


def mean_loss(model: torch.nn.Module, objective: Objective, batch: Batch, progress: Progress = FIRST) -> float:
    with torch.no_grad():
        return float(objective(model, batch, progress).total) / objective.weight(batch)


def descend(model: torch.nn.Module, objective: Objective, batch: Batch, steps: int = 20, rate: float = 0.01) -> None:
    """Some steps of Adam over what the loop would train: the model's parameters and the objective's."""
    parameters = [p for p in [*model.parameters(), *objective.parameters()] if p.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=rate)
    model.train()
    for step in range(steps):
        torch.manual_seed(step)
        optimiser.zero_grad()
        (objective(model, batch, Progress(0, step)).total / objective.weight(batch)).backward()
        optimiser.step()


def scene_of(pool: Pool, photo: int) -> object:
    assert pool.scenes is not None
    return pool.scenes.batch(torch.tensor([photo]))


def naive_log_prob(
    model: Captioner, pool: Pool, photo: int, words: list[int], never: tuple[int, ...] = ()
) -> torch.Tensor:
    """ln p(words and END | photo), stepping one caption on one photo. `words` begins with START and ends with END.

    With `never`, it is that of samples, none of which has those ids.
    """
    memory = model.encode(scene_of(pool, photo))
    state, total = model.start(memory), torch.zeros(())
    for word, following in itertools.pairwise(words):
        log_probs, state = model.step(torch.tensor([word]), memory, state)
        total = total + log_probs[0, following] - (1 - log_probs[0, list(never)].exp().sum()).log()
    return total


def ids_of(texts: object) -> list[list[int]]:
    """The captions of a TextBatch as lists, without padding."""
    return [row[mask].tolist() for row, mask in zip(texts.ids, texts.mask, strict=True)]
