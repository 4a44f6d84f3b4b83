"""One annotation file of Flickr30k Entities: the photo's original size, and the boxes of each chain."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple
from xml.etree import ElementTree

from sightline.errors import BoxError, DataError, TruncatedError

PixelBox = tuple[int, int, int, int]


class Annotation(NamedTuple):
    """Size in pixels, boxes per chain (counted from 0), chains without a box, chains that are the scene."""

    size: tuple[int, int]
    boxes: dict[str, tuple[PixelBox, ...]]
    no_box: frozenset[str]
    scene: frozenset[str]


def parse_annotation(text: str, where: str) -> Annotation:
    """Read the VOC-like xml. Its boxes count pixels from 1; ours from 0."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        kind = TruncatedError if not text.rstrip().endswith("</annotation>") else DataError
        raise kind(f"not valid XML: {error}", where=where, fix="copy or download it again") from error
    size = root.find("size")
    if size is None:
        raise DataError("`size` is missing", where=where)
    width, height = _number(size, "width", where), _number(size, "height", where)
    boxes: defaultdict[str, list[PixelBox]] = defaultdict(list)
    flagged: dict[str, set[str]] = {"nobndbox": set(), "scene": set()}
    for position, thing in enumerate(root.findall("object")):
        place = f"{where}, object {position}"
        chains = [(name.text or "").strip() for name in thing.findall("name")]
        if not all(chains) or not chains:
            raise DataError("an object has no chain in `name`", where=place)
        drawn = thing.find("bndbox")
        if drawn is not None:
            box = _box(drawn, (width, height), place)
            for chain in chains:
                boxes[chain].append(box)
            continue
        flags = [flag for flag in flagged if (thing.findtext(flag) or "").strip() == "1"]
        if not flags:
            raise DataError("an object has neither `bndbox` nor `nobndbox` nor `scene`", where=place)
        for flag in flags:
            flagged[flag].update(chains)
    held = {chain: tuple(found) for chain, found in boxes.items()}
    return Annotation((width, height), held, frozenset(flagged["nobndbox"]), frozenset(flagged["scene"]))


def _box(drawn: ElementTree.Element, size: tuple[int, int], where: str) -> PixelBox:
    x1, y1, x2, y2 = (_number(drawn, side, where) - 1 for side in ("xmin", "ymin", "xmax", "ymax"))
    if not (0 <= x1 <= x2 < size[0] and 0 <= y1 <= y2 < size[1]):
        raise BoxError(
            f"the box {x1 + 1} {y1 + 1} {x2 + 1} {y2 + 1} (counted from 1) is not inside the {size[0]}×{size[1]} photo",
            where=where,
            fix="boxes are xmin ymin xmax ymax in pixels of the original photo, counted from 1",
        )
    return x1, y1, x2, y2


def _number(element: ElementTree.Element, tag: str, where: str) -> int:
    text = element.findtext(tag)
    try:
        return int(text or "")
    except ValueError:
        what = f"`{tag}` is missing" if text is None else f"`{tag}` is {text!r}, a whole number was expected"
        raise DataError(what, where=where) from None
