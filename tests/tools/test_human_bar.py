"""What counts as a good caption, against the definition written out."""

import statistics
import sys
from pathlib import Path

import pytest

from sightline.errors import CountError
from sightline.metrics.cider import CIDErD, DocumentFrequencies

sys.path.append(str(Path(__file__).parents[2] / "tools"))
from human_bar import good, human_bar

REFERENCES = {
    "1": ["a dog runs on grass", "a brown dog runs fast", "the dog is on the grass"],
    "2": ["two people on a bench", "a couple sits on a bench"],
    "3": ["a red bus in the street"],
    "4": ["a cat sleeps on a bed", "the cat is asleep on a bed", "a sleeping cat", "cat on a bed"],
}


def alone(caption, references):
    """CIDEr-D of one caption, under the document frequencies of all references."""
    metric = CIDErD(DocumentFrequencies.of(REFERENCES.values()))
    metric.update({"x": caption}, {"x": references})
    return metric.compute().corpus["CIDEr"]


def test_the_bar_is_the_median_of_each_caption_against_the_others_of_its_photo():
    scores = []
    for known in REFERENCES.values():
        for i, caption in enumerate(known):
            others = [other for j, other in enumerate(known) if j != i]
            if others:
                scores.append(alone(caption, others))
    assert len(scores) == 9
    assert human_bar(REFERENCES) == pytest.approx(statistics.median(scores))


def test_a_caption_is_good_from_the_bar_on():
    said = {"1": "a dog runs on grass", "3": "a red bus in the street", "4": "a man with a kite"}
    found, bar = good(said, REFERENCES)
    assert bar == pytest.approx(human_bar(REFERENCES))
    assert found == {id: alone(caption, REFERENCES[id]) >= bar for id, caption in said.items()}
    assert found["3"]
    assert not found["4"]


def test_people_cannot_be_compared_where_each_photo_has_one_caption():
    with pytest.raises(CountError, match="two references"):
        human_bar({"3": REFERENCES["3"]})
