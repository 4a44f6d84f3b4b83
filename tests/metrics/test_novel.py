"""The held-out COCO protocol: what leaves the training set, and F1 of the words that left."""

import pytest

from sightline.errors import MissingRecordError
from sightline.metrics.novel import MEAN, NOVEL, novel_f1, novel_objects


@pytest.mark.parametrize(
    ("text", "objects"),
    [
        ("A zebra, two Zebras.", {"zebra"}),
        ("busses and buses by a bus-stop", {"bus"}),
        ("a person's luggage on the sofa", {"suitcase", "couch"}),
        ("she holds a racquet", {"racket"}),
        ("a businessman and a pizzeria", set()),
        ("", set()),
    ],
)
def test_objects_are_named_by_whole_words_and_their_synonyms(text, objects):
    assert novel_objects(text) == objects


def naive(captions, references, name):
    """Counts of photos, as the paper tells them: precision and recall of naming the object."""
    tp = fp = fn = 0
    for id, caption in captions.items():
        said = any(word in NOVEL[name] for word in caption.split())
        true = any(word in NOVEL[name] for text in references[id] for word in text.split())
        tp, fp, fn = tp + (said and true), fp + (said and not true), fn + (true and not said)
    if not tp:
        return 0.0
    precision, recall = tp / (tp + fp), tp / (tp + fn)
    return 100 * 2 * precision * recall / (precision + recall)


def test_f1_is_that_of_naming_an_object_where_people_do():
    captions = {
        "1": "a zebra",
        "2": "a zebra on a couch",
        "3": "a horse",
        "4": "a dog",
        "5": "two zebras",
        "6": "a sofa",
    }
    references = {
        "1": ["a zebra"],
        "2": ["a horse", "a sofa"],
        "3": ["some zebras", "a horse"],
        "4": ["a dog"],
        "5": ["an animal", "zebras"],
        "6": ["a bus by a couch"],
    }
    found = novel_f1(captions, references)
    assert set(found) == {"F1 zebra", "F1 couch", "F1 bus", MEAN}
    for name in ("zebra", "couch", "bus"):
        assert found[f"F1 {name}"] == pytest.approx(naive(captions, references, name))
    assert found["F1 couch"] == 100
    assert found["F1 bus"] == 0
    assert found[MEAN] == pytest.approx((found["F1 zebra"] + 100 + 0) / 3)


def test_without_an_object_there_is_no_score():
    assert novel_f1({"1": "a zebra"}, {"1": ["a dog"]}) == {}


def test_a_photo_without_references_is_named():
    with pytest.raises(MissingRecordError, match="photo 2"):
        novel_f1({"2": "a zebra"}, {})
