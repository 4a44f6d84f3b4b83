"""Captions as JSON tells them (`PhotoCaption.to_json`), from which every format is written; as tables, and back.

numpy only.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from sightline.caption import PhotoCaption, WordTrace
from sightline.scene import Box, Concept

CaptionJson = dict[str, Any]  # PhotoCaption.to_json()
COLUMNS = ("path", "caption", "confidence", "low_confidence", "objects")
BETWEEN = "; "  # objects of one cell


def caption_of(told: CaptionJson) -> PhotoCaption:
    """The caption that `told` tells of; log-probabilities of words and attention are not in it."""
    size = (int(told["size"][0]), int(told["size"][1]))
    words = told["words"]
    return PhotoCaption(
        tuple(word["word"] for word in words),
        told["log_prob"],
        tuple(_trace(word, size) for word in words),
        told["path"],
        size,
        told["confidence"],
        told["low_confidence"],
        tuple(Concept(one["name"], one["score"], _normalised(one["box"], size)) for one in told["concepts"]),
    )


def sentence(caption: str) -> str:
    """A caption as people write it, which screen readers read best: with a capital and a full stop.

    >>> sentence("a man rides a horse")
    'A man rides a horse.'
    """
    return f"{caption[:1].upper()}{caption[1:]}." if caption else ""


def _trace(word: dict[str, Any], size: tuple[int, int]) -> WordTrace:
    further = word.get("boxes", [])[1:]  # captions of older versions have only `box`
    others = tuple(box for box in (_normalised(one, size) for one in further) if box is not None)
    return WordTrace(box=_normalised(word["box"], size), score=word["score"], others=others)


def _normalised(box: list[float] | None, size: tuple[int, int]) -> Box | None:
    if box is None:
        return None
    x1, y1, x2, y2 = (min(1.0, max(0.0, v / max(1, side))) for v, side in zip(box, (*size, *size), strict=True))
    return x1, y1, x2, y2


def csv_lines(captions: Iterable[CaptionJson]) -> Iterator[str]:
    """A header, and a row for each photo; `objects` are the names of what is seen, the surest first."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    yield _row(writer, buffer, COLUMNS)
    for told in captions:
        low = "true" if told["low_confidence"] else "false"
        objects = BETWEEN.join(concept["name"] for concept in told["concepts"])
        yield _row(writer, buffer, (told["path"], told["caption"], told["confidence"], low, objects))


def json_lines(captions: Iterable[CaptionJson]) -> Iterator[str]:
    """An object a line; a name with a line break does not break the line."""
    for told in captions:
        yield json.dumps(told, ensure_ascii=False, allow_nan=False) + "\n"


def json_array(captions: Iterable[CaptionJson]) -> Iterator[str]:
    """One array, an object a line."""
    between = "["
    for told in captions:
        yield between + json.dumps(told, ensure_ascii=False, allow_nan=False)
        between = ",\n "
    yield "[]\n" if between == "[" else "]\n"


def _row(writer: csv._writer, buffer: io.StringIO, values: Iterable[object]) -> str:  # type: ignore[name-defined]
    writer.writerow(values)
    row = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return row
