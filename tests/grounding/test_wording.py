"""Captions as people would word them."""

import pytest

from sightline.grounding.wording import reword


def wording(text, most=None):
    return " ".join(reword(tuple(text.split()), most))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two monkey sitting on a table", "two monkeys sitting on a table"),
        ("a group of crab in the water", "a group of crabs in the water"),
        ("a pair of hair dryer on a wall", "a pair of hair dryers on a wall"),
        ("a group of animal and a knife", "a group of animals and a knife"),
        ("three brown dog with a ball", "three brown dogs with a ball"),
        ("two sheep and several clownfish", "two sheep and several clownfish"),
        ("a pile of luggage", "a pile of luggage"),
        ("a bunch of broccoli", "a bunch of broccoli"),
        ("a two level bus", "a two level bus"),
        ("a pair of scissors", "a pair of scissors"),
        ("a dog in front of a group", "a dog in front of a group"),
        ("many", "many"),
        ("a group of animal standing in a field", "a group of animals standing in a field"),
        ("a group of woman", "a group of women"),
        ("two person on a bench", "two people on a bench"),
    ],
)
def test_numbers_and_groups_have_plurals_after_them(text, expected):
    assert wording(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a scissors on a table", "a pair of scissors on a table"),
        ("a girl in a red shorts", "a girl in a pair of red shorts"),
        ("a man riding a gymnastics equipment", "a man riding gymnastics equipment"),
        ("a statue of an armor", "a statue of armor"),
        ("a ladles on a table", "a ladle on a table"),
        ("a snake on a dirt ground", "a snake on the dirt ground"),
        ("a pair of scissors", "a pair of scissors"),
        ("a sports car on a road", "a sports car on a road"),
        ("a glasses case", "a glasses case"),
    ],
)
def test_pairs_and_what_is_not_counted_have_no_article_of_their_own(text, expected):
    assert wording(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a cow next to a guinea", "a cow next to a guinea pig"),
        ("a black punching on a wall", "a black punching bag on a wall"),
        ("a komodo in the grass", "a komodo dragon in the grass"),
        ("a man with a gymnastics", "a man with gymnastics equipment"),
        ("a man doing a gymnastics on a rail", "a man doing gymnastics on a rail"),
        ("a room with a sliding door", "a room with a sliding door"),
        ("people playing hockey", "people playing hockey"),
    ],
)
def test_a_name_of_two_words_is_said_whole(text, expected):
    assert wording(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a dog standing on top of a field", "a dog standing in a field"),
        ("football players on top of a field", "football players on a field"),
        ("a dog on top of a grassy beach", "a dog on a grassy beach"),
        ("a dog on top of a floor", "a dog on the floor"),
        ("a cat on top of a wooden floor", "a cat on a wooden floor"),
        ("a man in front of a room", "a man in a room"),
        ("a clock on the side of a room", "a clock in a room"),
        ("a cat on a room", "a cat in a room"),
        ("a car in front of a parking lot", "a car in a parking lot"),
        ("a girl in front of a street", "a girl on a street"),
        ("a cat on a room floor", "a cat on a room floor"),
        ("a man on top of a mountain", "a man on top of a mountain"),
        ("a man in front of a lake", "a man in front of a lake"),
        ("a bench on top of a lake", "a bench on top of a lake"),
        ("a dog next to a field", "a dog next to a field"),
        ("a bedroom with a bed sitting in a room", "a bedroom with a bed"),
        ("a bed sitting in a room", "a bed sitting in a room"),
    ],
)
def test_people_and_things_are_in_places_or_on_them(text, expected):
    assert wording(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a bird standing in front of building", "a bird in front of a building"),
        ("a man and a woman on beach", "a man and a woman on a beach"),
        ("a man flying through the air bicycle", "a man flying through the air"),
        ("a red bird sitting on top robin", "a red bird"),
        ("a man and a child playing beach", "a man and a child"),
        ("a man and a woman riding bicycle", "a man and a woman riding bicycle"),
        ("a dog in water", "a dog in water"),
        ("a dog", "a dog"),
    ],
)
def test_a_short_caption_has_a_whole_end(text, expected):
    assert wording(text, 7) == expected
    assert len(wording(text, 7).split()) <= 8


@pytest.mark.parametrize(
    "text",
    ["a man riding a horse in a field of grass", "two dogs standing next to each other", "a man in a suit and tie"],
)
def test_what_is_well_worded_stays(text):
    assert wording(text) == wording(text, 20) == text
