"""Contrastive learning does what it is for: captions find their photo again, and true captions stay likely.

64 photos are all the ways to put one of four things, in one of four colours, in one of four places. A model that
learned a little by maximum likelihood goes on by contrastive learning. It is measured on other photos of these scenes.
"""

from __future__ import annotations

import copy
import itertools
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch

from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Greedy
from sightline.models.adaptive_attention import AdaptiveAttentionConfig
from sightline.models.captioner import Captioner
from sightline.scene import Scene
from sightline.text.vocabulary import Vocabulary
from sightline.training.batches import Batches, Batching
from sightline.training.evaluation import Evaluation, evaluate
from sightline.training.objective import Context, Objective, Progress
from sightline.training.objectives.contrastive import ContrastiveConfig
from sightline.training.objectives.cross_entropy import CrossEntropyConfig
from sightline.training.tensor_tables import Pool, SceneTable, TextTable

THINGS, COLOURS, PLACES = "dog cat horse bird".split(), "red blue white black".split(), "grass snow street sand".split()
SCENES = list(itertools.product(range(4), range(4), range(4)))
VOCABULARY = Vocabulary(sorted({*THINGS, *COLOURS, *PLACES, "a", "on", "the", "has"}))
WIDTH = 12


def photos(seed: int) -> Pool:
    """A photo of each scene: three cells that show thing, place and colour, with some noise."""
    random, scenes, sentences = np.random.default_rng(seed), [], []
    for number, (thing, place, colour) in enumerate(SCENES):
        grid = random.normal(scale=0.3, size=(3, WIDTH)).astype(np.float32)
        grid[[0, 1, 2], [thing, 4 + place, 8 + colour]] += 1
        scenes.append(Scene(str(number), grid=grid, grid_shape=(1, 3), vector=grid.mean(0)))
        what, where, how = THINGS[thing], PLACES[place], COLOURS[colour]
        sentences += [f"a {how} {what} on the {where}", f"a {what} on the {where}", f"the {where} has a {how} {what}"]
    return Pool(
        ids=tuple(str(number) for number in range(len(SCENES))),
        scenes=SceneTable.build(scenes, ("grid", "vector")),
        texts=TextTable.build([sentence.split() for sentence in sentences], VOCABULARY),
        first=np.arange(len(SCENES) + 1) * 3,
        references=tuple(tuple(sentences[row : row + 3]) for row in range(0, len(sentences), 3)),
    )


TRAIN, OTHERS = photos(0), photos(1)


def learn(model: Captioner, objective: Objective, steps: int, rate: float) -> None:
    batches = Batches(TRAIN, Batching(size=16, captions=3), 0, objective.negatives)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for step in range(steps):
        torch.manual_seed(step)
        batch = batches.batch(*divmod(step, len(batches)))
        optimiser.zero_grad()
        (objective(model, batch, Progress()).total / objective.weight(batch)).backward()
        optimiser.step()


def measure(model: Captioner) -> dict[str, float]:
    how = Evaluation(Greedy(), Rules(max_words=8), metrics=("cider",), self_retrieval=True)
    return evaluate(Checkpoint(model, VOCABULARY), OTHERS, how).metrics


def base(seed: int) -> Captioner:
    """A model that learned a little by maximum likelihood."""
    torch.manual_seed(seed)
    sizes = {"word_size": 32, "hidden_size": 32, "attention_size": 32}
    widths = {"grid_width": WIDTH, "vector_width": WIDTH}
    model = AdaptiveAttentionConfig(**widths, **sizes, dropout=0.0).build(len(VOCABULARY))
    learn(model, CrossEntropyConfig().build(Context(VOCABULARY)), 150, 0.01)
    return model


def contrasted(model: Captioner, **choices: Any) -> Captioner:
    """What contrastive learning makes of a copy of the model, which is its reference too."""
    model = copy.deepcopy(model)
    objective = ContrastiveConfig(negatives=3, **choices).build(Context(VOCABULARY, {"train": TRAIN}))
    objective.begin(model)
    learn(model, objective, 100, 0.001)
    return model


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, float]]:
    """The mean over three seeds of what each row of the paper's Table 4 reaches."""
    found: dict[str, list[dict[str, float]]] = {"base": [], "full": [], "N": []}
    for seed in range(3):
        start = base(seed)
        found["base"].append(measure(start))
        found["full"].append(measure(contrasted(start)))
        found["N"].append(measure(contrasted(start, terms="negative")))
    return {row: {name: mean(run[name] for run in runs) for name in runs[0]} for row, runs in found.items()}


def test_captions_find_their_photo_more_often(rows):
    assert rows["full"]["self-retrieval R@1"] > 1.2 * rows["base"]["self-retrieval R@1"], rows


def test_true_captions_stay_about_as_likely(rows):
    assert rows["full"]["loss"] < rows["base"]["loss"] + 0.25, rows
    assert rows["full"]["CIDEr"] > 0.9 * rows["base"]["CIDEr"], rows


def test_mismatched_pairs_alone_destroy_the_language(rows):
    """As in the paper's Table 4, where CL(N) loses 44 of 104 CIDEr and CL wins 10."""
    assert rows["N"]["loss"] > rows["base"]["loss"] + 1, rows
    assert rows["N"]["CIDEr"] < rows["base"]["CIDEr"] / 2, rows
