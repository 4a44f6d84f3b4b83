"""What eyes, matcher and concepts say of nouns."""

import math

import numpy as np
import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.batch import TextBatch
from sightline.grounding import photo_evidence
from sightline.grounding.photo_evidence import NounVectors, RegionNames, concept_odds, name_regions
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


@pytest.fixture(scope="module")
def bundle():
    return tiny_bundle()


def test_a_region_has_the_names_of_what_it_is_a_kind_of(bundle):
    names = RegionNames(bundle.vision)  # of dog, cat, person, ball
    odds = np.array([[1.0, -2.0, 0.5, -4.0], [0.0, 3.0, -1.0, -5.0]])
    said = [("dog", 1.0), ("dogs", 1.0), ("terrier", 1.0), ("cat", 3.0), ("person", 0.5), ("woman", 0.5)]
    for noun, expected in said:
        assert names.of(odds, noun)[0] == expected
    assert np.isnan(names.of(odds, "mountain")).all()
    assert np.isnan(names.of(odds[:0], "dog")).all()
    boxes = np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]])
    assert names.at(odds, boxes, (0.5, 0.5, 1, 1), 0.5) == ["cat", "dog"]


def test_however_many_nouns_are_asked_about_few_are_remembered(bundle, monkeypatch):
    monkeypatch.setattr(photo_evidence, "CACHE_SIZE", 10)
    names, odds = RegionNames(bundle.vision), np.zeros((1, 4))
    for number in range(25):
        assert np.isnan(names.of(odds, f"zyzzyva{number}")).all()
        assert names.of(odds, "dog")[0] == 0
    assert len(names._id_of_noun) <= 10


def test_of_a_region_that_is_surely_a_cat_little_speaks_for_a_dog(bundle):
    names = RegionNames(bundle.vision)
    cat = np.array([[1.0, 3.0, 2.0, -4.0]])
    assert names.of(cat, "dog") == (1.0, 1.0 - 3.0)
    assert names.of(cat, "cat") == (3.0, 3.0 - 1.0)
    assert names.of(cat, "person") == (2.0, 2.0)  # of another family: both may be there
    both = np.array([[2.0, -3.0, 0.0, 0.0], [-3.0, 4.0, 0.0, 0.0]])
    assert names.of(both, "dog") == (2.0, 2.0)  # where the dog is, there is no cat
    assert names.of(both, "cat") == (4.0, 4.0)


def test_names_are_the_detectors_probabilities_and_one_where_it_has_none(bundle):
    pipeline = Pipeline(bundle)
    with torch.inference_mode():
        scenes = pipeline.scenes([pipeline.read(path) for path in sorted(EXAMPLES.glob("*.jpg"))[:2]])
        found = name_regions(bundle.vision, scenes, 1, ["two", "dogs", "near", "a", "table"], [0, 2, 0, 0, 1])
        regions = scenes.regions[1][scenes.region_mask[1]]
        dog = bundle.vision.naming(regions).sigmoid()[:, bundle.vision.config.names.index("dog")].numpy()
    assert found[1] == pytest.approx(dog, abs=1e-6)
    assert (found[[0, 2, 3, 4]] == 1).all()
