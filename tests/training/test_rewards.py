"""The reward for truth, against sentences whose cost is plain."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.batch import SceneBatch, TextBatch
from sightline.text.vocabulary import Vocabulary
from sightline.training.batches import Batch
from sightline.training.objective import Context
from sightline.training.rewards import TruthReward
from sightline.training.tensor_tables import Pool, TextTable
from sightline.vision.concept_tokens import token_names

REFERENCES = [["a man on a horse", "a person rides"], ["a cat on a sofa", "a cat"]]
SAID = ["a man on a horse", "a man on a dog", "an animal", "a horse and a horse", "a cat with a dog and a cat"]
WORDS = Vocabulary(sorted({word for texts in (*REFERENCES, SAID) for text in texts for word in text.split()}))


def reward(names: tuple[str, ...] = (), score: float = 0.9, **options: float):
    texts = TextTable.build([text.split() for own in REFERENCES for text in own], WORDS)
    pool = Pool(("0", "1"), None, texts, torch.tensor([0, 2, 4]).numpy())
    scenes = SceneBatch(("0", "1"))
    if names:
        ids = torch.tensor([[token_names().index(name) for name in names]] * 2)
        scenes = replace(scenes, names=ids, name_scores=torch.full((*ids.shape, 2), score))
    batch = Batch(torch.arange(2), scenes)
    words = TextBatch.collate([text.split() for text in SAID], WORDS).ids.expand(2, -1, -1)
    context = Context(WORDS, {"train": pool}, lambda name: pytest.fail(name), torch.device("cpu"), 0)
    return TruthReward(**options).build(context)(batch, words).tolist()


def test_things_that_references_do_not_name_cost_one_each_and_repeated_ones_a_half():
    rider, sofa = reward(again=0.5)
    # A horse is an animal; the second horse is said again; neither cat nor dog is there, and the second cat is again.
    assert rider == [0, -1, 0, -0.5, -2.5]
    assert sofa == [-2, -2, 0, -1.5, -1.5]


def test_what_the_vision_model_is_sure_of_is_supported():
    rider, _ = reward(("dog",))
    assert rider == [0, 0, 0, -0.5, -1.5]
    assert reward(("dog",), score=0.1) == reward()
