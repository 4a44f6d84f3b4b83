"""The 1,000 classes of ImageNet and what people call them."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from sightline.errors import DataError
from sightline.text import wordnet
from sightline.vision import concept_names as module
from sightline.vision.concept_names import CLASSES, imagenet_classes, name_senses, relations

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from build_imagenet_names import read_tree, rows


def test_the_table_is_what_the_tree_makes_of_the_synsets():
    synsets = [one.synset for one in imagenet_classes()]
    assert "\n".join(rows(synsets, read_tree())) + "\n" == module.IMAGENET_LIST.read_text("utf-8")


def test_classes_are_in_the_order_of_their_synsets():
    """As in ILSVRC 2012 and the weights of EfficientNet-Lite."""
    synsets = [one.synset for one in imagenet_classes()]
    assert len(synsets) == CLASSES
    assert all(one < other for one, other in pairwise(synsets))


@pytest.mark.parametrize(
    ("number", "chain"),
    [
        (207, ("dog", "animal")),  # golden retriever
        (60, ("snake", "reptile", "animal")),  # night snake
        (288, ("leopard", "spotted cat", "wild cat", "animal")),
        (437, ("lighthouse", "tower", "building")),
        (975, ("lake", "landscape")),
        (340, ("zebra", "animal")),
        (134, ("crane", "wading bird", "water bird", "bird", "animal")),
        (517, ("crane",)),
    ],
)
def test_names_are_those_that_people_say(number, chain):
    assert imagenet_classes()[number].chain == chain


def test_no_name_is_given_to_the_wrong_class():
    """WordNet agrees with nine of ten: one sense of a name of the chain is the class's synset or above it.

    Where it does not, people call a thing by its whole or its look (a lampshade is a lamp, a wok a frying pan).
    """
    agreed = 0
    for one in imagenet_classes():
        above = wordnet.ancestors(int("1" + one.synset[1:]))
        agreed += any(not above.isdisjoint(wordnet.senses(name, "n")) for name in one.chain)
    assert agreed >= 0.9 * CLASSES


def test_one_kind_stands_below_one_other():
    """Names form a forest, with the exception of the two cranes, which are never above anything."""
    above: dict[str, set[tuple[str, ...]]] = {}
    for one in imagenet_classes():
        for place, name in enumerate(one.chain):
            above.setdefault(name, set()).add(one.chain[place + 1 :])
    assert [name for name, chains in above.items() if len(chains) > 1] == ["crane"]


@pytest.mark.parametrize(
    ("text", "said"), [("animal\n    dog 0\n", "depth"), ("animal 0\n  dog 0-2\n", "class 0 is named twice")]
)
def test_a_wrong_tree_is_refused(tmp_path, text, said):
    path = tmp_path / "tree.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=said):
        read_tree(path)


def test_a_class_without_a_name_is_refused():
    with pytest.raises(DataError, match="999 named classes"):
        rows([f"n{number}" for number in range(CLASSES)], dict.fromkeys(range(CLASSES - 1), ("dog",)))


def test_a_broken_line_of_the_table_is_named(tmp_path, monkeypatch):
    path = tmp_path / "names.tsv"
    path.write_text("0\tn01440764\tfish\tanimal\n2\tn01484850\tshark\tfish\n")
    monkeypatch.setattr(module, "IMAGENET_LIST", path)
    with pytest.raises(DataError, match="line 2"):
        imagenet_classes.__wrapped__()


def test_a_name_of_classes_means_what_they_are_whatever_the_word_means_first():
    names = ("person", "animal", "tiger", "skunk", "crane", "punching bag", "printer", "snake", "cobra")
    implied, _ = relations(names)
    of = {name: {names[other] for other in row.nonzero()[0]} - {name} for name, row in zip(names, implied, strict=True)}
    assert of["tiger"] == of["skunk"] == {"animal"}  # a fierce person, and a mean one, by their first senses
    assert "person" not in set().union(*of.values())
    assert of["snake"] == {"animal"}
    assert name_senses("tiger") == [(102129604, True)]
