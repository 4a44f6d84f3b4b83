"""Write `src/sightline/vision/imagenet_names.tsv`: what people call the 1,000 classes of ImageNet.

    pip download --no-deps timm && unzip timm-*.whl 'timm/data/_info/*' -d /tmp/timm
    python tools/build_imagenet_names.py /tmp/timm/timm/data/_info/imagenet_synsets.txt

The argument lists the WordNet synsets of the classes, one a line, in the order of the weights' outputs. Names and what
they are kinds of are written by hand in `imagenet_tree.txt`.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from sightline.errors import DataError
from sightline.files import write_text
from sightline.vision.concept_names import CLASSES, IMAGENET_LIST

TREE = Path(__file__).parent / "imagenet_tree.txt"
INDENT = 2
NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")


def read_tree(path: Path = TREE) -> dict[int, tuple[str, ...]]:
    """Class to its name and what that is a kind of, most specific first."""
    chains: dict[int, tuple[str, ...]] = {}
    above: list[str] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        depth, rest = divmod(len(line) - len(line.lstrip()), INDENT)
        name, classes = _name_and_classes(line)
        if rest or depth > len(above) or not name:
            raise DataError("not a name at a known depth", where=f"{path}, line {number}", fix="indent by two spaces")
        above = [*above[:depth], name]
        for index in classes:
            if index in chains:
                raise DataError(f"class {index} is named twice", where=f"{path}, line {number}", fix="name it once")
            chains[index] = tuple(reversed(above))
    return chains


def _name_and_classes(line: str) -> tuple[str, list[int]]:
    words, classes = line.split(), list[int]()
    while words and (found := NUMBERS.fullmatch(words[-1])):
        first, last = found.groups()
        classes += range(int(first), int(last or first) + 1)
        words.pop()
    return " ".join(words), classes


def rows(synsets: list[str], chains: dict[int, tuple[str, ...]]) -> list[str]:
    """The lines of the table."""
    if len(set(synsets)) != CLASSES or set(chains) != set(range(CLASSES)):
        raise DataError(
            f"{len(synsets)} synsets and {len(chains)} named classes", where=TREE, fix=f"give {CLASSES} of each"
        )
    return [
        "\t".join((str(index), synset, chains[index][0], ", ".join(chains[index][1:])))
        for index, synset in enumerate(synsets)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("synsets", type=Path)
    synsets = parser.parse_args().synsets.read_text("utf-8").split()
    write_text(IMAGENET_LIST, "\n".join(rows(synsets, read_tree())) + "\n")
    print(f"wrote {IMAGENET_LIST}")


if __name__ == "__main__":
    main()
