"""Which words of a sentence get boxes, how many, and which two may have the same one."""

import pytest

from sightline.grounding.nouns import (
    MANY,
    box_counts,
    concept_kind,
    excludes,
    implies,
    may_name_the_same,
    may_share,
    noun_tags,
    stand_in,
    usual_kind,
)
from sightline.text.vocabulary import Vocabulary


def boxed(sentence):
    words = sentence.split()
    counts = box_counts(words, noun_tags([words])[0])
    return {word: count for word, count in zip(words, counts, strict=True) if count}


@pytest.mark.parametrize(
    ("sentence", "heads"),
    [
        ("a boy with a beach ball", ["boy", "ball"]),
        ("a man holding a wii remote", ["man", "remote"]),
        ("a woman with a cell phone", ["woman", "phone"]),
        ("a red fire hydrant", ["hydrant"]),
        ("a dog in a dog house", ["dog", "house"]),
        ("a man woman and child", ["man", "woman", "child"]),  # a list, whose comma the model does not read
    ],
)
def test_only_the_head_of_a_compound_has_a_box(sentence, heads):
    words = sentence.split()
    counts = box_counts(words, noun_tags([words])[0])
    assert [word for word, count in zip(words, counts, strict=True) if count] == heads
    if sentence.count("dog") == 2:
        assert counts[1] == 1
        assert counts[-2] == 0


@pytest.mark.parametrize(
    ("sentence", "nouns"),
    [
        ("an animal standing in a field", ["animal", "field"]),
        ("an orange sitting on top of an orange", ["orange", "orange"]),
        ("a group of safe sitting in a room", ["room"]),
        ("an orange and white cat", ["cat"]),
        ("a man in white running shoes", ["man", "shoes"]),
        ("a white building", ["building"]),
    ],
)
def test_what_an_animal_does_is_no_thing_and_has_no_box(sentence, nouns):
    words = sentence.split()
    counts = box_counts(words, noun_tags([words])[0])
    assert [word for word, count in zip(words, counts, strict=True) if count] == nouns


@pytest.mark.parametrize("word", ["group", "pair", "background", "front", "couple", "air"])
def test_nouns_that_name_no_thing_have_no_box(word):
    sentence = "a dog in the air" if word == "air" else f"a {word} of a dog"
    assert boxed(sentence) == {"dog": 1}


@pytest.mark.parametrize(
    ("sentence", "count"),
    [
        ("a dog runs", 1),
        ("dogs run", MANY),
        ("two dogs run", 2),
        ("three small brown dogs run", 3),
        ("a couple of dogs run", 2),
        ("two men with dogs", MANY),
    ],
)
def test_a_plural_has_as_many_boxes_as_its_number(sentence, count):
    found = boxed(sentence)
    assert found.get("dogs", found.get("dog")) == count


def test_a_pair_of_glasses_is_one_thing():
    assert boxed("a man in jeans and glasses") == {"man": 1, "jeans": 1, "glasses": 1}


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        ("man", "woman", False),
        ("dog", "stick", False),
        ("cat", "tie", True),  # worn
        ("women", "dresses", True),
        ("dog", "mouth", True),
        ("man", "person", True),
        ("dog", "dogs", True),
        ("cup", "table", False),
        ("zyzzyva", "qwerty", False),
    ],
)
def test_only_a_being_and_what_it_wears_or_has_share_a_box_and_names_of_one_thing(one, other, may):
    words = f"a {one} and a {other}".split()
    assert may_share(words, 1, 4) == may_share(words, 4, 1) == may


@pytest.mark.parametrize(
    ("sentence", "may"),
    [("a cup of coffee", True), ("a plate of hot food", True), ("a cup with coffee", False)],
)
def test_what_is_in_something_shares_its_box(sentence, may):
    words = sentence.split()
    assert may_share(words, 1, len(words) - 1) == may


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


def test_a_concept_is_the_animal_plant_or_food_that_imagenet_means():
    names = (
        "tiger",
        "leopards",
        "otter",
        "lobster",
        "mushroom",
        "daisy",
        "hot dog",
        "banana",
        "drum",
        "animal",
        "xyzzy",
    )
    assert [concept_kind(name) for name in names] == [
        *["animal"] * 4,
        *["plant"] * 2,
        *["food"] * 2,
        "artifact",
        usual_kind("animal"),
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
