"""What people call the 1,000 classes of ImageNet (ILSVRC 2012), in the order of EfficientNet-Lite's outputs.

`imagenet_names.tsv` has a line for each class: its number, its WordNet 3.0 synset, the name that people say (a breed of
dog is a dog, a night snake a snake), and what that is a kind of, from the most specific: a leopard is a spotted cat, a
wild cat, an animal. Names form a forest: whatever has a name has one chain above it. `tools/build_imagenet_names.py`
writes the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sightline.errors import DataError
from sightline.files import open_text

LIST = Path(__file__).parent / "imagenet_names.tsv"
CLASSES = 1000  # of ImageNet's challenge (ILSVRC 2012)


@dataclass(frozen=True)
class ImageNetClass:
    """One class."""

    synset: str  # of WordNet 3.0, as `n02128385`
    chain: tuple[str, ...]  # the name people say, and then what it is a kind of, from the most specific

    @property
    def name(self) -> str:
        """What people say."""
        return self.chain[0]


@cache
def imagenet_classes() -> tuple[ImageNetClass, ...]:
    """The classes in their order.

    >>> imagenet_classes()[288]
    ImageNetClass(synset='n02128385', chain=('leopard', 'spotted cat', 'wild cat', 'animal'))
    """
    classes = []
    with open_text(LIST) as file:
        for number, line in enumerate(file):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 4 or fields[0] != str(number):
                what, where = "not a class, its synset, its name and its kinds", f"{LIST}, line {number + 1}"
                raise DataError(what, where=where, fix="write it with tools/build_imagenet_names.py")
            _, synset, name, kinds = fields
            classes.append(ImageNetClass(synset, (name, *filter(None, kinds.split(", ")))))
    return tuple(classes)


@cache
def imagenet_chains() -> dict[str, tuple[str, ...]]:
    """Each name of a class, and of a kind of class, with itself and what it is a kind of, from the most specific.

    >>> imagenet_chains()["spotted cat"]
    ('spotted cat', 'wild cat', 'animal')
    """
    chains = [each.chain for each in imagenet_classes()]
    return {chain[place]: chain[place:] for chain in chains for place in range(len(chain))}
