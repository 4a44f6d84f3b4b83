"""Captions that say less, or another noun."""

import pytest

from sightline.grounding.caption_edits import (
    beginnings,
    is_alone,
    mentions,
    plural_of,
    replaceable,
    with_noun,
)
from sightline.grounding.nouns import noun_tags


@pytest.mark.parametrize(
    ("text", "noun", "name", "expected"),
    [
        ("a bear standing in the grass", "bear", "fox", "a fox standing in the grass"),
        ("a brown polar bear in a field", "bear", "otter", "a brown otter in a field"),
        ("two black bears laying in the grass", "bears", "dog", "two black dogs laying in the grass"),
        ("a group of bears", "bears", "wolf", "a group of wolves"),
        ("a cow standing in a field", "cow", "antelope", "an antelope standing in a field"),
        ("a pair of scissors on a table", "scissors", "snake", "a snake on a table"),
        ("a mirror on a table", "mirror", "sunglasses", "a pair of sunglasses on a table"),
        ("a giraffe in a tree", "giraffe", "wild cat", "a wild cat in a tree"),
    ],
)
def test_another_noun_suits_the_words_around_it(text, noun, name, expected):
    words = tuple(text.split())
    assert " ".join(with_noun(words, words.index(noun), name)) == expected


def test_animals_stand_for_animals_or_what_comes_first_and_nothing_for_people():
    words = tuple("a man holding a dog near a car".split())
    nouns = (1, 4, 7)
    assert replaceable(words, nouns, "fox") == [4]
    assert replaceable(tuple("a glove on a field".split()), (1, 4), "snail") == [1]
    assert replaceable(tuple("a clock on a table".split()), (1, 4), "telephone") == [1]
    assert replaceable(tuple("a man holding a skateboard in a room".split()), (1, 4, 7), "banjo") == [4]
    assert replaceable(tuple("a plate of donuts on a table".split()), (3, 6), "pretzel") == [3]
    assert replaceable(tuple("a group of kites over a rock".split()), (3, 6), "volcano") == [6]
    assert replaceable(tuple("a man in a kitchen".split()), (1, 4), "banjo") == []
    assert replaceable(tuple("people on a beach".split()), (0, 3), "fox") == []
    assert replaceable(tuple("a dog on a couch".split()), (1, 4), "valley") == []
    assert replaceable(tuple("a kitchen with a sink".split()), (1, 4), "clock") == []  # a place


def test_beginnings_end_where_something_is_added():
    words = tuple("a cup of coffee on a table with a plate".split())
    assert [" ".join(one) for one in beginnings(words, noun_tags([words])[0])] == [
        "a cup of coffee",
        "a cup of coffee on a table",
    ]


def test_a_caption_mentions_a_concept_by_any_word_for_it():
    words = "a leopard in a tree".split()
    assert [mentions(words, name) for name in ("leopard", "spotted cat", "animal", "tree", "giraffe")] == [
        True,
        True,
        True,
        True,
        False,
    ]


def test_plurals_are_those_that_people_say():
    names = ("abacus", "camera", "mantis", "knife", "child", "goose", "fish", "bus", "puppy", "woman")
    plurals = ["abacuses", "cameras", "mantises", "knives", "children", "geese", "fish", "buses", "puppies", "women"]
    assert [plural_of(name) for name in names] == plurals


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("a ram standing next to each other", True),
        ("an animal on top of each other", True),
        ("two rams standing next to each other", False),
        ("a man and a woman next to each other", False),
        ("a group of sheep next to each other", False),
        ("people looking at each other", False),
        ("a ram standing next to another", False),
    ],
)
def test_one_thing_has_no_other(text, alone):
    assert is_alone(tuple(text.split())) == alone
