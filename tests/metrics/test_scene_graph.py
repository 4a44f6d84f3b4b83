"""Scene graphs of captions against tuples written by hand, and properties of the parser."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.metrics.scene_graph import SceneGraph, parse, parse_all, parse_with_tags

# caption, and its tuples: object, object/attribute, subject/relation/object
GRAPHS = [
    # objects, attributes, counts
    ("a dog", "dog"),
    ("a large black dog", "dog, dog/large, dog/black"),
    ("two small dogs", "dog, dog/two, dog/small"),
    ("2 small dogs", "dog, dog/two, dog/small"),
    ("a black and white cat", "cat, cat/black, cat/white"),
    ("a very tall building", "building, building/tall"),
    ("a parked car", "car, car/park"),
    ("an orange shirt", "shirt, shirt/orange"),
    ("the cat is black", "cat, cat/black"),
    ("the cat is black and white", "cat, cat/black, cat/white"),
    ("a city street", "street, city, street/city"),
    ("tables chairs and lamps", "table, chair, lamp"),
    ("a salad with chopped carrots", "salad, carrot, carrot/chop, salad/with/carrot"),
    # compounds are one object
    ("a red fire hydrant", "fire hydrant, fire hydrant/red"),
    ("a man holding a tennis racket", "man, tennis racket, man/hold/tennis racket"),
    ("two brown teddy bears", "teddy bear, teddy bear/two, teddy bear/brown"),
    ("a baseball player swinging a bat", "baseball player, bat, baseball player/swing/bat"),
    ("a hot dog on a plate", "hot dog, plate, hot dog/on/plate"),
    ("a living room with a couch", "living room, couch, living room/with/couch"),
    ("a young man", "man, man/young"),
    ("a dirt bike rider", "rider, dirt bike, rider/dirt bike"),
    # prepositions
    ("a man in a boat", "man, boat, man/in/boat"),
    ("a cat on top of a car", "cat, car, cat/on/car"),
    ("a bike next to a bench", "bike, bench, bike/next to/bench"),
    ("a truck in front of a house", "truck, house, truck/in front of/house"),
    ("a bird in the middle of a lake", "bird, lake, bird/in/lake"),
    ("a table with a lamp and a book", "table, lamp, book, table/with/lamp, table/with/book"),
    # verbs
    ("a man riding a wave", "man, wave, man/ride/wave"),
    ("a man rides a wave", "man, wave, man/ride/wave"),
    ("a man is riding a wave on a surfboard", "man, wave, surfboard, man/ride/wave, man/on/surfboard"),
    ("a dog running", "dog, dog/run"),
    ("a dog is running through the snow", "dog, snow, dog/run, dog/through/snow"),
    ("a young girl standing on top of a court", "girl, court, girl/young, girl/stand, girl/on/court"),
    ("a woman looking at a phone", "woman, phone, woman/look, woman/at/phone"),
    ("a man picking up a ball", "man, ball, man/pick up/ball"),
    ("a boy trying to catch a ball", "boy, ball, boy/catch/ball"),
    ("a man in a red shirt riding a horse", "man, shirt, horse, shirt/red, man/in/shirt, man/ride/horse"),
    ("a man watching a dog catching a frisbee", "man, dog, frisbee, man/watch/dog, dog/catch/frisbee"),
    ("a table with a cat sitting on it", "table, cat, cat/sit, table/with/cat"),
    ("a pizza eaten by a man", "pizza, man, man/eat/pizza"),
    ("a car parked by a tree", "car, tree, car/by/tree"),
    ("a pizza topped with cheese", "pizza, cheese, pizza/top, pizza/with/cheese"),
    # conjunctions
    ("a man and a woman riding horses", "man, woman, horse, man/ride/horse, woman/ride/horse"),
    ("a man a woman and a dog on a beach", "man, woman, dog, beach, man/on/beach, woman/on/beach, dog/on/beach"),
    ("a man riding a horse and a woman holding a dog", "man, horse, woman, dog, man/ride/horse, woman/hold/dog"),
    ("a woman in a hat and a man in a suit", "woman, hat, man, suit, woman/in/hat, man/in/suit"),
    ("a man standing and holding a cup", "man, cup, man/stand, man/hold/cup"),
    # possessives, existentials, relative clauses, pronouns
    ("a man 's hat", "man, hat, man/have/hat"),
    ("there is a dog in the yard", "dog, yard, dog/in/yard"),
    ("a dog that is black", "dog, dog/black"),
    ("a dog that is wearing a hat", "dog, hat, dog/wear/hat"),
    ("a man holds a bat while he watches the ball", "man, bat, ball, man/hold/bat, man/watch/ball"),
    ("giraffes standing next to each other", "giraffe, giraffe/stand"),
    # quantities and pictures
    ("a couple of dogs on a bed", "dog, bed, dog/two, dog/on/bed"),
    ("a pair of shoes", "shoe"),
    ("a piece of cake on a plate", "cake, plate, cake/on/plate"),
    ("a group of people walking", "people, group, people/group, people/walk"),
    ("a picture of a cat", "cat"),
    ("a close up of a pizza", "pizza"),
]  # fmt: skip


def tuples(text: str) -> set[tuple[str, ...]]:
    return {tuple(item.strip().split("/")) for item in text.split(",")}


@pytest.mark.parametrize(("caption", "expected"), GRAPHS, ids=[caption for caption, _ in GRAPHS])
def test_a_caption_gives_the_tuples_written_by_hand(caption: str, expected: str) -> None:
    assert set(parse(caption.split()).tuples()) == tuples(expected)


def test_the_tags_decide_what_a_word_is() -> None:
    words = "a man 's riding".split()
    assert parse_with_tags(words, ["DT", "NN", "POS", "VBG"]).tuples() == [("man",), ("man", "ride")]
    assert parse_with_tags(["swings"], ["NNS"]).tuples() == [("swing",)]
    assert parse_with_tags(["swings"], ["VBZ"]).tuples() == []


def test_a_participle_is_said_of_who_can_do_it() -> None:
    tags = "DT NN IN DT NN VBG DT NN".split()
    assert ("man", "hold", "ball") in parse_with_tags("a man in a hat holding a ball".split(), tags).relations
    assert ("dog", "hold", "ball") in parse_with_tags("a car near a dog holding a ball".split(), tags).relations


def test_tuples_stand_in_order_objects_attributes_relations() -> None:
    graph = SceneGraph(("dog", "bed"), (("dog", "black"),), (("dog", "on", "bed"),))
    assert graph.tuples() == [("dog",), ("bed",), ("dog", "black"), ("dog", "on", "bed")]


def test_a_batch_gives_what_single_captions_give() -> None:
    captions = [caption for caption, _ in GRAPHS]
    assert parse_all(captions) == {caption: parse(caption.split()) for caption in captions}


def test_no_words_no_tuples() -> None:
    assert parse([]).tuples() == []
    assert parse_all([""])[""].tuples() == []


WORDS = st.sampled_from(
    "a the dog man men wave riding rides is parked of and that there he 's to on in group couple by black two while "
    "very each other trying have been café 東京 🐕 -lrb- 1/2 3".split()
)


@given(st.lists(WORDS, max_size=25))
def test_any_words_give_a_graph_whose_tuples_speak_of_its_objects(words: list[str]) -> None:
    graph = parse(words)
    objects = set(graph.objects)
    assert {thing for thing, _ in graph.attributes} <= objects
    assert {thing for subject, _, other in graph.relations for thing in (subject, other)} <= objects
    assert len(set(graph.tuples())) == len(graph.tuples())


@given(st.text(max_size=60))
def test_any_text_is_parsed(text: str) -> None:
    parse(text.split())


@pytest.mark.parametrize("pattern", ["black", "and", "try to", "a dog of", "man 's", "is", "dog", "riding a wave on"])
def test_thousands_of_words_are_parsed_in_time(pattern: str) -> None:
    words = (pattern.split() * 3000)[:3000]
    start = time.process_time()
    parse(words)
    assert time.process_time() - start < 5
