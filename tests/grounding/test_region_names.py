"""What the detector calls the regions of a photo."""

import numpy as np
import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.grounding import region_names
from sightline.grounding.region_names import RegionNames, name_regions
from sightline.pipeline import Pipeline

torch.set_num_threads(1)


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
    monkeypatch.setattr(region_names, "CACHE_SIZE", 10)
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
