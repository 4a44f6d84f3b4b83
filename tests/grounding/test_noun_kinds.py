"""What WordNet says of nouns."""

import pytest

from sightline.grounding.noun_kinds import excludes, implies, may_name_the_same, stand_in, usual_kind
from sightline.text.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("concept", "noun", "expected"),
    [
        ("leopard", "leopards", True),
        ("leopard", "animal", True),
        ("spotted cat", "cat", True),  # not in WordNet as a whole
        ("man", "person", True),
        ("animal", "leopard", False),  # it may be another
        ("lighthouse", "tower", True),
        ("dog", "frisbee", False),
    ],
)
def test_a_concept_is_what_it_is_a_kind_of(concept, noun, expected):
    assert implies(concept, noun) == expected


@pytest.mark.parametrize(
    ("concept", "noun", "expected"),
    [
        ("leopard", "giraffe", True),
        ("zebra", "giraffes", True),
        ("boat", "train", True),
        ("leopard", "cat", False),  # it is one, in a manner of speaking
        ("animal", "giraffe", False),
        ("dog", "terrier", False),
        ("leopard", "tree", False),  # both may be there
        ("fork", "spoon", False),  # so may these
    ],
)
def test_of_animals_and_vehicles_one_is_no_other(concept, noun, expected):
    assert excludes(concept, noun) == expected


def test_names_are_filed_as_people_would():
    assert [usual_kind(name) for name in ("wild cat", "women", "surfboards", "")] == [
        "animal",
        "person",
        "artifact",
        "",
    ]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("dog", "dogs", True), ("puppy", "dog", True), ("sofa", "couch", True), ("dog", "cat", False), ("x", "y", False)],
)
def test_nouns_are_related_both_ways(one, other, expected):
    assert may_name_the_same(one, other) is may_name_the_same(other, one) is expected


def test_a_word_that_nobody_knows_is_looked_for_as_what_it_is_a_kind_of():
    known = Vocabulary(["dog", "person", "cup"])
    assert [stand_in(word, known) for word in ("dog", "dogs", "terrier", "teacup", "mountain")] == [
        *("dog", "dog", "dog", "cup", "mountain")
    ]
