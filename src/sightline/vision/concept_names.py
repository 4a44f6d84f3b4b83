"""What a region may be called, COCO's 80 classes and what people say about photos, and what a whole photo may be.

`concept_names.tsv` has a line for each name, whose place is its id: the name, a tab, and what it means in WordNet, so
that names of the same thing do not compete. `bird.1` is the first noun sense of *bird*; several senses are separated by
commas; `<pullover.1` is a kind of pullover that WordNet does not know. COCO's classes come first, in their order. The
others are the heads of the phrases of Flickr30k Entities in the training photos (`data/entities_classes.tsv`), without
those that name nothing one could point at.

And what people call the 1,000 classes of ImageNet (ILSVRC 2012), in the order of EfficientNet-Lite's outputs.
`imagenet_names.tsv` has a line for each: its number, its WordNet 3.0 synset, the name that people say (a breed of dog
is a dog, a night snake a snake), and what that is a kind of, from the most specific: a leopard is a spotted cat, a wild
cat, an animal. Names form a forest: whatever has a name has one chain above it. `tools/build_imagenet_names.py` writes
the table.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sightline.errors import DataError
from sightline.files import open_text
from sightline.text import wordnet
from sightline.text.lemmas import lemma

Table = npt.NDArray[np.bool_]
LIST = Path(__file__).parent / "concept_names.tsv"

NOT_THINGS = frozenset(
    "black white red blue brown orange pink yellow green purple color "  # a man in red: his clothes, whichever
    "one something others other some two number lot group item object "  # whatever it is
    "top back outside outdoors indoors open left right behind way edge corner area spot surface midair range "  # where
    "night day sunset rain "  # when
    "game race turn stunt event party competition match play show ride shot flip wheelie handstand look "  # doings
    "smile soccer tennis hockey display art "
    "picture photo photograph view scene landscape room kitchen market subway city traffic "  # the whole picture
    "structure equipment machine line lap".split()  # so vague that nearly everything is one
)
# What the plural of these means is another thing: "glasses" are worn.
SINGULARS = frozenset("glass headphone jean overall rapid rollerblade short trunk".split())
ALIASES = {"bikers": "biker", "cellphone": "cell phone", "racquet": "racket", "ski": "skis", "someone": "person"}


@cache
def concept_names() -> tuple[str, ...]:
    """The names that come with Sightline."""
    return tuple(_meanings())


@cache
def _meanings() -> dict[str, tuple[str, ...]]:
    meanings: dict[str, tuple[str, ...]] = {}
    with open_text(LIST) as file:
        for number, line in enumerate(file, 1):
            name, tab, senses = line.rstrip("\n").partition("\t")
            if not tab or not senses:
                where = f"{LIST}, line {number}"
                raise DataError("not a name and its senses", where=where, fix="write name<TAB>word.1")
            meanings[name] = tuple(senses.split(","))
    return meanings


def name_of(words: Sequence[str], names: Container[str]) -> str | None:
    """The name among `names` that a noun phrase ends with, the longest; None where it is none of them.

    >>> [name_of(phrase.split(), concept_names()) for phrase in ("two Hot dogs", "a big dog", "a man in orange")]
    ['hot dog', 'dog', None]
    """
    lower = [word.lower() for word in words]
    for count in (2, 1):
        if len(lower) < count:
            continue
        *before, last = lower[-count:]
        for form in _forms(last):
            phrase = " ".join([*before, form])
            name = ALIASES.get(phrase, phrase)
            if name in names and phrase not in NOT_THINGS and name not in SINGULARS:
                return name
    return None


def _forms(noun: str) -> Iterator[str]:
    yield noun
    yield lemma(noun, "n")
    yield noun.rpartition("-")[2]  # T-shirt, blond-hair


def relations(names: Sequence[str]) -> tuple[Table, Table]:
    """What a name says about the others: (K, K) `implied` and (K, K) `open`.

    Of a thing called a, `implied[a]` are the names it surely has too: a itself, its synonyms, and what WordNet says it
    is a kind of (a man is a person). `open[a]` are those that it may have or not: kinds of a (a person may be a man),
    what only one of several senses says (a bike may be a bicycle), and what else people are called (a man may be a
    rider, and never a woman or a child). It has none of all others.

    >>> implied, open = relations(("person", "man", "woman", "dog"))
    >>> implied.astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
    >>> open.astype(int).tolist()
    [[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    """
    senses = [name_senses(name) for name in names]
    above = [[wordnet.ancestors(synset) for synset, _ in readings] for readings in senses]
    names_of: dict[int, set[int]] = {}  # of each synset, the places of the names that mean it exactly
    for place, readings in enumerate(senses):
        for synset, exact in readings:
            if exact:
                names_of.setdefault(synset, set()).add(place)
    implied = np.eye(len(names), dtype=np.bool_)
    possible = np.zeros_like(implied)  # what at least one sense of a name says
    for place, ancestors in enumerate(above):
        by_sense = [set().union(*(names_of[synset] for synset in own & names_of.keys())) for own in ancestors]
        possible[place, list(set().union(*by_sense))] = True
        implied[place, list(set.intersection(*by_sense) if by_sense else ())] = True
    undecided = possible | possible.T | _same_person(above, senses)
    return implied, undecided & ~implied


def _same_person(above: Sequence[Sequence[frozenset[int]]], senses: Sequence[Sequence[tuple[int, bool]]]) -> Table:
    """(K, K) whether two names of people, or of groups of them, may be the same one's: sex and age do not differ."""

    def surely(key: str) -> Table:
        kind = _synset(key)
        by_name = [bool(readings) and all(kind in ancestors for ancestors in readings) for readings in above]
        return np.array(by_name, dtype=np.bool_)

    person = _synset("person.1")
    groups = [any(wordnet.lexfile(synset) == "noun.group" for synset, _ in readings) for readings in senses]
    persons = [any(person in ancestors for ancestors in readings) for readings in above]
    human = np.logical_or(groups, persons)
    differ = surely("male.2")[:, None] & surely("female.2") | surely("adult.1")[:, None] & surely("juvenile.1")
    return human[:, None] & human & ~(differ | differ.T)


def name_senses(name: str) -> list[tuple[int, bool]]:
    """The synsets of a name, and whether each is its own or that of which it is a kind; none where WordNet has none.

    A name of ImageNet's classes is what they are, whatever else the word means first: to WordNet a tiger is a person.
    """
    keys = _meanings().get(name)
    if keys is None and (classes := _classes_of_names().get(name)):
        common = frozenset.intersection(*map(wordnet.ancestors, classes))
        own = [synset for synset in wordnet.senses(name, "n") if synset in common]
        return [(own[0], True)] if own else [(synset, len(classes) == 1) for synset in classes]
    keys = keys or ((f"{name}.1",) if wordnet.has(name, "n") else ())
    return [(_synset(key.removeprefix("<")), not key.startswith("<")) for key in keys]


def _synset(key: str) -> int:
    word, _, number = key.rpartition(".")
    senses = wordnet.senses(word, "n")
    if not number.isdecimal() or not 1 <= int(number) <= len(senses):
        raise DataError(f"{key!r} is no noun sense of WordNet", where=LIST, fix="write word.1")
    return senses[int(number) - 1]


IMAGENET_LIST = Path(__file__).parent / "imagenet_names.tsv"
CLASSES = 1000  # of ImageNet's challenge (ILSVRC 2012)


@dataclass(frozen=True)
class ImageNetClass:
    """One class."""

    synset: str  # of WordNet 3.0, as `n02128385`
    chain: tuple[str, ...]  # the name people say, and then what it is a kind of, from the most specific

    @property
    def name(self) -> str:
        return self.chain[0]


@cache
def imagenet_classes() -> tuple[ImageNetClass, ...]:
    """The classes in their order.

    >>> imagenet_classes()[288]
    ImageNetClass(synset='n02128385', chain=('leopard', 'spotted cat', 'wild cat', 'animal'))
    """
    classes = []
    with open_text(IMAGENET_LIST) as file:
        for number, line in enumerate(file):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 4 or fields[0] != str(number):
                what, where = "not a class, its synset, its name and its kinds", f"{IMAGENET_LIST}, line {number + 1}"
                raise DataError(what, where=where, fix="write it with tools/build_imagenet_names.py")
            _, synset, name, kinds = fields
            classes.append(ImageNetClass(synset, (name, *filter(None, kinds.split(", ")))))
    return tuple(classes)


@cache
def class_names() -> frozenset[str]:
    """What people call the classes, without what these are kinds of."""
    return frozenset(each.name for each in imagenet_classes())


@cache
def imagenet_chains() -> dict[str, tuple[str, ...]]:
    """Each name of a class, and of a kind of class, with itself and what it is a kind of, from the most specific.

    >>> imagenet_chains()["spotted cat"]
    ('spotted cat', 'wild cat', 'animal')
    """
    chains = [each.chain for each in imagenet_classes()]
    return {chain[place]: chain[place:] for chain in chains for place in range(len(chain))}


@cache
def _classes_of_names() -> dict[str, list[int]]:
    """The synsets of the classes that a name is the name of, or a kind of."""
    synsets: dict[str, list[int]] = {}
    for each in imagenet_classes():
        for name in each.chain:
            synsets.setdefault(name, []).append(int(f"1{each.synset[1:]}"))
    return synsets
