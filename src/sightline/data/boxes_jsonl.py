"""Machine-made boxes, a line per image: `["id", [[class, score, x1, y1, x2, y2], …]]`, classes COCO-80, thousandths."""

import re
from pathlib import Path

import numpy as np

from sightline.data.caption_format import mostly, parse_unique_lines, record_format
from sightline.data.feature_source import FeatureSource
from sightline.data.format import Summary
from sightline.data.json_records import check_numbers, describe
from sightline.data.records import STRICT, Problems
from sightline.errors import BoxError, DataError, plural
from sightline.files import parse_json
from sightline.scene import Array, Concept, Scene
from sightline.vision.concept_names import concept_names

COCO_80 = concept_names()[:80]  # COCO's classes come first, in their order

_FIELDS = ("class", "score", "x1", "y1", "x2", "y2")
_LINE = re.compile(r'\s*\[\s*("[^"]*"|\d+)\s*,\s*\[\s*[\[\]]')


class MachineBoxes(FeatureSource):
    """Boxes by image id; scenes with boxes, scores and concepts are made when asked for."""

    def __init__(self, path: Path, rows: dict[str, Array]) -> None:
        super().__init__(path)
        self._rows = rows

    @property
    def index(self) -> dict[str, Array]:
        return self._rows

    def read(self, id: str) -> Scene:
        rows = self.rows(id)
        rows = rows[np.argsort(-rows[:, 1], kind="stable")]
        boxes = (rows[:, 2:] / np.float32(1000)).astype(np.float32)
        concepts = tuple(
            Concept(COCO_80[int(kind)], float(score), (float(x1), float(y1), float(x2), float(y2)))
            for kind, score, (x1, y1, x2, y2) in zip(rows[:, 0], rows[:, 1], boxes, strict=True)
        )
        return Scene(id, boxes, rows[:, 1], concepts=concepts, source=str(self.path))

    def rows(self, id: str) -> Array:
        """(n, 6) float32: class, score and box in thousandths, in file order."""
        return self._rows[id]

    def box_count(self) -> int:
        return sum(map(len, self._rows.values()))


def read(path: Path, problems: Problems = STRICT) -> MachineBoxes:
    return MachineBoxes(path, parse_unique_lines(path, problems, _parse))


def _parse(line: str, where: str) -> tuple[str, Array]:
    value = parse_json(line, where)
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], list):
        raise DataError(f'a list of an id and its boxes was expected, ["id", […]], not {describe(value)}', where=where)
    id, boxes = value
    if type(id) not in (str, int) or id == "":
        raise DataError(f"the id must be text or a whole number, not {describe(id)}", where=where)
    rows = []
    for position, box in enumerate(boxes):
        place = f"{where} (image {id}, box {position})"
        kind, score, x1, y1, x2, y2 = numbers = check_numbers(box, _FIELDS, "a box", place)
        if kind not in range(len(COCO_80)):
            raise DataError(f"class {kind:g} is not one of COCO's 80, counted from 0", where=place)
        if not 0 <= score <= 1:
            raise DataError(f"the score {score:g} is not between 0 and 1", where=place)
        if not (0 <= x1 <= x2 <= 1000 and 0 <= y1 <= y2 <= 1000):
            fix = "write x1 y1 x2 y2 in thousandths of the width and height"
            raise BoxError(f"the box is {box[2:]}", where=place, fix=fix)
        rows.append(numbers)
    return str(id), np.array(rows, np.float32).reshape(-1, len(_FIELDS))


def _count(boxes: MachineBoxes) -> Summary:
    empty = sum(len(boxes.rows(id)) == 0 for id in boxes.ids())
    notes = [f"{plural(empty, 'photo')} {'has' if empty == 1 else 'have'} no box"] if empty else []
    return {"photos": len(boxes), "boxes": boxes.box_count()}, notes


FORMAT = record_format(
    "boxes-jsonl",
    "Machine-made COCO-80 boxes, a line of JSON per image, in thousandths",
    lambda probe: probe.json_start == "[" and mostly(probe.lines, _LINE.match),
    read,
    _count,
    scenes=read,
)
