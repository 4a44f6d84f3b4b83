"""Names of regions: COCO's classes and what people say, and what one name tells about the others."""

import numpy as np
import pytest

from sightline.data.boxes_jsonl import COCO_80
from sightline.data.entities import read_classes
from sightline.errors import DataError
from sightline.text import wordnet
from sightline.vision import concept_names as module
from sightline.vision.concept_names import ALIASES, NOT_THINGS, SINGULARS, concept_names, name_of, relations

NAMES = concept_names()


@pytest.fixture(scope="module")
def tables():
    return relations(NAMES)


def rows(table, name):
    return {NAMES[place] for place in np.flatnonzero(table[NAMES.index(name)])}


def test_the_list_is_what_its_rule_makes_of_classes_and_heads():
    plurals = {"glass": "glasses"} | {name: f"{name}s" for name in SINGULARS - {"glass"}}
    things = (plurals.get(head, ALIASES.get(head, head)) for head in read_classes() if head not in NOT_THINGS)
    assert tuple(dict.fromkeys((*COCO_80, *things))) == NAMES
    assert len(set(NAMES)) == len(NAMES)


def test_cocos_classes_keep_their_numbers():
    assert NAMES[:80] == COCO_80


def test_only_heads_that_exist_are_dropped_or_renamed():
    heads = set(read_classes())
    assert heads >= NOT_THINGS | SINGULARS
    assert (NOT_THINGS & set(NAMES)) == {"orange"}  # the fruit is COCO's
    assert set(ALIASES.values()) <= set(NAMES)


@pytest.mark.parametrize(
    ("phrase", "name"),
    [
        ("two big brown dogs", "dog"),
        ("a Hot Dog", "hot dog"),
        ("traffic lights", "traffic light"),
        ("bright lights", "light"),
        ("a man 's glasses", "glasses"),
        ("a glass", None),
        ("glass", None),
        ("a white T-shirt", "shirt"),
        ("blond-hair", "hair"),
        ("ski", "skis"),
        ("people", "people"),
        ("someone", "person"),
        ("orange", None),
        ("a juicy thing", None),
    ],
)
def test_a_phrase_is_called_by_the_longest_name_it_ends_with(phrase, name):
    assert name_of(phrase.split(), NAMES) == name


def test_a_name_implies_itself_its_synonyms_and_what_it_is_a_kind_of(tables):
    implied, _ = tables
    assert implied.diagonal().all()
    assert rows(implied, "man") == {"man", "person", "male", "adult"}
    assert rows(implied, "puppy") == {"puppy", "dog", "animal"}
    assert rows(implied, "kid") == {"kid", "child", "person"}
    assert rows(implied, "bicycle") == {"bicycle", "bike", "vehicle"}
    assert rows(implied, "hoodie") == {"hoodie", "sweatshirt", "sweater", "clothing"}


def test_kinds_of_a_thing_are_left_open_and_are_never_implied(tables):
    implied, undecided = tables
    assert {"man", "woman", "boy", "people", "rider", "crowd"} <= rows(undecided, "person")
    assert rows(undecided, "bike") == {"bicycle", "motorcycle", "motorbike"}
    assert rows(undecided, "dog") == {"puppy", "greyhound", "poodle", "shepherd", "retriever", "terrier", "collie"}
    assert not (implied & undecided).any()
    assert (undecided | implied | ~(implied | undecided).T).all()  # what may be both ways round may be either way


def test_sex_and_age_exclude_each_other_and_what_people_do_does_not(tables):
    implied, undecided = tables
    maybe = implied | undecided
    for one, other in (("man", "woman"), ("boy", "girl"), ("man", "child"), ("man", "dog"), ("rider", "horse")):
        assert other not in rows(maybe, one)
        assert one not in rows(maybe, other)
    for one, other in (("man", "rider"), ("boy", "child"), ("woman", "crowd"), ("girl", "woman")):
        assert other in rows(undecided, one)


def test_relations_hold_wherever_wordnet_says_so(tables):
    """The naive reading of WordNet: where a name has one sense of its own, its ancestors decide."""
    implied, _ = tables
    single = {n: k[0] for n, k in module._meanings().items() if len(k) == 1 and not k[0].startswith("<")}
    for a, key in single.items():
        above = wordnet.ancestors(module._synset(key))
        for b, other in single.items():
            assert implied[NAMES.index(a), NAMES.index(b)] == (module._synset(other) in above)


def test_every_sense_of_the_list_is_in_wordnet():
    for name in NAMES:
        assert module.name_senses(name), name


def test_names_outside_of_the_list_mean_their_first_sense_or_nothing():
    implied, undecided = relations(("zebu", "animal", "qwertz"))
    assert implied.tolist() == [[True, True, False], [False, True, False], [False, False, True]]
    assert undecided.tolist() == [[False, False, False], [True, False, False], [False, False, False]]


@pytest.mark.parametrize("line", ["dog\n", "dog\t\n"])
def test_a_line_without_a_sense_is_refused(line, tmp_path, monkeypatch):
    (tmp_path / "names.tsv").write_text("cat\tcat.1\n" + line)
    monkeypatch.setattr(module, "LIST", tmp_path / "names.tsv")
    with pytest.raises(DataError, match="line 2: not a name and its senses"):
        module._meanings.__wrapped__()


@pytest.mark.parametrize("key", ["dog.99", "dog.0", "dog", "qwertz.1", "dog.x"])
def test_a_sense_that_wordnet_has_not_is_refused(key):
    with pytest.raises(DataError, match="no noun sense of WordNet"):
        module._synset(key)
