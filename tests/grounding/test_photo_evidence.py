"""What eyes, matcher and concepts say of nouns."""

import math

import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.batch import TextBatch
from sightline.grounding.photo_evidence import NounVectors, concept_odds
from sightline.pipeline import Pipeline
from sightline.scene import Concept

torch.set_num_threads(1)
PHOTOS = sorted(EXAMPLES.glob("*.jpg"))


@pytest.fixture(scope="module")
def pipeline():
    return Pipeline(tiny_bundle())


def test_what_concepts_say_is_the_surest_for_it_else_the_surest_against_it():
    seen = [Concept("zebra", 0.9), Concept("giraffe", 0.6), Concept("grass", 1.0)]
    assert concept_odds("zebra", seen) == pytest.approx(math.log(9))
    assert concept_odds("giraffe", seen) == pytest.approx(math.log(1.5))  # both are there
    assert concept_odds("elephant", seen) == pytest.approx(-math.log(9))
    assert concept_odds("grass", seen) == pytest.approx(math.log(99))  # nothing is surer
    assert math.isnan(concept_odds("frisbee", seen))
    assert math.isnan(concept_odds("zebra", []))


@torch.no_grad()
def test_vectors_of_nouns_are_those_of_the_matcher_and_made_once(pipeline):
    finds = pipeline.bundle.matcher
    vectors = NounVectors(finds)
    made = vectors.of({"dog", "terrier", "xyzzy"}, torch.device("cpu"))
    assert set(made) == {"dog", "terrier"}
    texts = finds.model.embed_texts(TextBatch.collate([["a", "dog"]], finds.vocabulary))
    for found in made.values():  # a terrier is asked for as a dog
        torch.testing.assert_close(found[0], texts["vector"][0])
        torch.testing.assert_close(found[1], texts["words"][0, 2])
    again = vectors.of({"dog"}, torch.device("cpu"))
    assert again["dog"][0] is made["dog"][0]


@torch.no_grad()
def test_the_evidence_of_a_batch_is_that_of_each_photo_alone(pipeline):
    words, nouns = "a dog two cats the table xyzzy".split(), [1, 3, 5, 6]
    scenes = pipeline.scenes([pipeline.read(path) for path in PHOTOS[:3]])
    together = pipeline._grounder.photo_evidence(scenes)
    for row, path in enumerate(PHOTOS[:3]):
        alone = pipeline._grounder.photo_evidence(pipeline.scenes([pipeline.read(path)]))
        for one, other in zip(together.of(row, words, nouns), alone.of(0, words, nouns), strict=True):
            assert one == pytest.approx(other, abs=1e-4, nan_ok=True)
            assert math.isnan(one.log_prob)  # of the captioner, nothing
    assert math.isfinite(together.of(0, words, nouns)[0].name_margin)
