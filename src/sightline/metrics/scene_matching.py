"""Which tuples of two scene graphs say the same, and several graphs merged into one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from sightline.metrics.scene_graph import SceneGraph, SceneTuple
from sightline.metrics.scene_words import general_name
from sightline.text import wordnet
from sightline.text.wordnet import REMEMBERED

Match = tuple[SceneTuple, SceneTuple]


def same_object(a: str, b: str) -> bool:
    """Whether two objects are the same string, share a noun synset, or one is the other's general name.

    The last is for compounds, which are one object here: a *tennis court* is matched by *court*, not by *clay court*.
    """
    if a == b or not _senses(a).isdisjoint(_senses(b)):
        return True
    return (" " in a and general_name(a) == b) or (" " in b and general_name(b) == a)


def same_word(a: str, b: str) -> bool:
    """Whether two attributes or relations are the same string or share a synset of any part of speech."""
    return a == b or not _meanings(a).isdisjoint(_meanings(b))


@lru_cache(REMEMBERED)
def _senses(noun: str) -> frozenset[int]:
    return wordnet.synsets(noun, "n")


@lru_cache(REMEMBERED)
def _meanings(word: str) -> frozenset[int]:
    return wordnet.synsets(word)


def same_tuple(a: SceneTuple, b: SceneTuple) -> bool:
    """Whether two tuples of one kind agree in every position."""
    if len(a) != len(b) or not same_object(a[0], b[0]):
        return False
    if len(a) == 3:
        return same_object(a[2], b[2]) and same_word(a[1], b[1])
    return len(a) == 1 or same_word(a[1], b[1])


def merge_graphs(graphs: Iterable[SceneGraph]) -> SceneGraph:
    """One graph of several: an object joins the first it matches, and what is said of both is said once.

    No two tuples of a merged graph match each other, so a caption agrees fully with itself.
    """
    name: dict[str, str] = {}  # of each object, the object it joined
    objects: list[str] = []
    attributes: dict[str, list[str]] = {}
    relations: dict[tuple[str, str], list[str]] = {}
    for graph in graphs:
        for thing in graph.objects:
            if thing not in name:
                name[thing] = next((known for known in objects if same_object(thing, known)), thing)
                if name[thing] is thing:
                    objects.append(thing)
        for thing, attribute in graph.attributes:
            _add(attributes.setdefault(name[thing], []), attribute)
        for subject, relation, thing in graph.relations:
            if name[subject] != name[thing]:
                _add(relations.setdefault((name[subject], name[thing]), []), relation)
    return SceneGraph(
        tuple(objects),
        tuple((thing, attribute) for thing, those in attributes.items() for attribute in those),
        tuple((subject, relation, thing) for (subject, thing), those in relations.items() for relation in those),
    )


def _add(words: list[str], word: str) -> None:
    if not any(same_word(word, known) for known in words):
        words.append(word)


def first_hits(said: Sequence[SceneTuple], heard: Sequence[SceneTuple]) -> list[Match]:
    """Give each tuple said, in order, the first tuple heard that matches it and is not taken yet."""
    left = list(heard)
    found: list[Match] = []
    for one in said:
        for place, other in enumerate(left):
            if same_tuple(one, other):
                found.append((one, other))
                del left[place]
                break
    return found
