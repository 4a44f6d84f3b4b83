"""Machine-made boxes, a line per image: `["id", [[class, score, x1, y1, x2, y2], …]]`, classes COCO-80, thousandths."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.caption_format import line_of, mostly, record_format
from sightline.data.format import Summary
from sightline.data.json_records import describe, is_finite, is_number, parse_line
from sightline.data.records import STRICT, Problems
from sightline.errors import BoxError, CountError, DataError, DuplicateRecordError, MissingRecordError, NonFiniteError
from sightline.files import open_text
from sightline.scene import Array, Concept, Scene

COCO_80 = tuple(
    (
        "person|bicycle|car|motorcycle|airplane|bus|train|truck|boat|traffic light|fire hydrant|stop sign|"
        "parking meter|bench|bird|cat|dog|horse|sheep|cow|elephant|bear|zebra|giraffe|backpack|umbrella|handbag|"
        "tie|suitcase|frisbee|skis|snowboard|sports ball|kite|baseball bat|baseball glove|skateboard|surfboard|"
        "tennis racket|bottle|wine glass|cup|fork|knife|spoon|bowl|banana|apple|sandwich|orange|broccoli|carrot|"
        "hot dog|pizza|donut|cake|chair|couch|potted plant|bed|dining table|toilet|tv|laptop|mouse|remote|"
        "keyboard|cell phone|microwave|oven|toaster|sink|refrigerator|book|clock|vase|scissors|teddy bear|"
        "hair drier|toothbrush"
    ).split("|")
)

_LINE = re.compile(r'\s*\[\s*("[^"]*"|\d+)\s*,\s*\[\s*[\[\]]')


class MachineBoxes:
    """Boxes by image id; scenes with boxes, scores and concepts are made when asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._numbers = array("f")
        self._ends = [0]
        self._index: dict[str, int] = {}

    def add(self, id: str, rows: list[list[float]]) -> None:
        self._index[id] = len(self._index)
        self._numbers.extend(chain.from_iterable(rows))
        self._ends.append(self._ends[-1] + len(rows))

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, id: object) -> bool:
        return id in self._index

    def __iter__(self) -> Iterator[Scene]:
        return (self[id] for id in self._index)

    def __getitem__(self, id: str) -> Scene:
        if id not in self._index:
            raise MissingRecordError(f"no image {id} among the {len(self)} here", where=self.path)
        rows = self.rows(id)
        rows = rows[np.argsort(-rows[:, 1], kind="stable")]
        boxes = (rows[:, 2:] / np.float32(1000)).astype(np.float32)
        concepts = tuple(
            Concept(COCO_80[int(kind)], float(score), (float(x1), float(y1), float(x2), float(y2)))
            for kind, score, (x1, y1, x2, y2) in zip(rows[:, 0], rows[:, 1], boxes, strict=True)
        )
        return Scene(id, boxes, rows[:, 1], concepts=concepts, source=str(self.path))

    def ids(self) -> Sequence[str]:
        return list(self._index)

    def rows(self, id: str) -> Array:
        """(n, 6) float32: class, score and box in thousandths, in file order."""
        position = self._index[id]
        start, end = self._ends[position], self._ends[position + 1]
        return np.frombuffer(self._numbers, np.float32)[6 * start : 6 * end].reshape(-1, 6).copy()

    def box_count(self) -> int:
        return self._ends[-1]


def read(path: Path, problems: Problems = STRICT) -> MachineBoxes:
    found = MachineBoxes(path)
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            with problems:
                id, rows = _parse(line, line_of(path, number))
                if id in found:
                    raise DuplicateRecordError(f"image {id} appears twice", where=line_of(path, number))
                found.add(id, rows)
    return found


def _count(boxes: MachineBoxes) -> Summary:
    empty = sum(one == other for one, other in pairwise(boxes._ends))
    return {"photos": len(boxes), "boxes": boxes.box_count()}, [f"{empty} photos have no box"] if empty else []


def _parse(line: str, where: str) -> tuple[str, list[list[float]]]:
    value = parse_line(line, where)
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], list):
        raise DataError(f'a list of an id and its boxes was expected, ["id", […]], not {describe(value)}', where=where)
    id, rows = value
    if not isinstance(id, str | int) or isinstance(id, bool) or id == "":
        raise DataError(f"the id must be text or a whole number, not {describe(id)}", where=where)
    for position, row in enumerate(rows):
        _check(row, f"{where} (image {id}, box {position})")
    return str(id), rows


def _check(row: Any, where: str) -> None:
    if not isinstance(row, list) or not all(map(is_number, row)):
        raise DataError(f"a box must be a list of six numbers, not {describe(row)}", where=where)
    if len(row) != 6:
        raise CountError(f"a box must have six numbers (class, score, x1, y1, x2, y2), not {len(row)}", where=where)
    if not all(map(is_finite, row)):
        raise NonFiniteError(f"the box is {str(row)[:80]}", where=where, fix="run the detector again on this image")
    kind, score, x1, y1, x2, y2 = row
    if kind not in range(len(COCO_80)):
        raise DataError(f"class {kind} is not one of COCO's 80, counted from 0", where=where)
    if not 0 <= score <= 1:
        raise DataError(f"the score {score} is not between 0 and 1", where=where)
    if not (0 <= x1 <= x2 <= 1000 and 0 <= y1 <= y2 <= 1000):
        fix = "write x1 y1 x2 y2 in thousandths of the width and height"
        raise BoxError(f"the box is {row[2:]}", where=where, fix=fix)


FORMAT = record_format(
    "boxes-jsonl",
    "Machine-made COCO-80 boxes, a line of JSON per image, in thousandths",
    lambda probe: probe.json_start == "[" and mostly(probe.lines, _LINE.match),
    read,
    _count,
    scenes=read,
)
