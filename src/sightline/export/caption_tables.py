"""Captions as JSON has them (`PhotoCaption.to_json`), and what is made of it: tables, lines, a page. numpy only."""

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sightline.caption import PhotoCaption, WordTrace
from sightline.files import PathLike
from sightline.scene import Box, Concept
from sightline.web_page import PAGE_END, page_start

CaptionJson = dict[str, Any]  # PhotoCaption.to_json()
COLUMNS = ("path", "caption", "confidence", "low_confidence", "objects")
BETWEEN = "; "  # objects of one cell
_STYLE = """
main { max-width: 1400px; }
ul { list-style: none; margin: 0; padding: 0; display: grid; gap: 20px; }
ul { grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); }
figure { height: 100%; }
img { display: block; width: 100%; height: 240px; object-fit: cover; background: var(--line); }
figcaption { padding: 12px 16px 14px; overflow-wrap: anywhere; }
small { display: block; color: var(--soft); margin-top: 4px; }
a { color: inherit; }
a:focus-visible { outline: 3px solid #4c8dff; outline-offset: 2px; }
@media print { li { break-inside: avoid; } }
"""


def caption_of(record: CaptionJson) -> PhotoCaption:
    """The caption that `record` tells of; log-probabilities of words and attention are not in it."""
    size = (int(record["size"][0]), int(record["size"][1]))
    words = record["words"]
    concepts = (Concept(one["name"], one["score"], _normalised(one["box"], size)) for one in record["concepts"])
    return PhotoCaption(
        tuple(word["word"] for word in words),
        log_prob=record["log_prob"],
        trace=tuple(_trace(word, size) for word in words),
        path=record["path"],
        size=size,
        confidence=record["confidence"],
        low_confidence=record["low_confidence"],
        concepts=tuple(concepts),
        warning=record.get("warning", ""),
    )


def sentence(caption: str) -> str:
    """A caption as people write it, which screen readers read best: with a capital and a full stop.

    >>> sentence("a man rides a horse")
    'A man rides a horse.'
    """
    return f"{caption[:1].upper()}{caption[1:]}." if caption else ""


def _trace(word: dict[str, Any], size: tuple[int, int]) -> WordTrace:
    further = (_normalised(box, size) for box in word.get("boxes", [])[1:])  # older captions have only `box`
    others = tuple(box for box in further if box is not None)
    return WordTrace(box=_normalised(word["box"], size), score=word["score"], others=others)


def _normalised(box: list[float] | None, size: tuple[int, int]) -> Box | None:
    if box is None:
        return None
    x1, y1, x2, y2 = (min(1.0, max(0.0, v / max(1, side))) for v, side in zip(box, (*size, *size), strict=True))
    return x1, y1, x2, y2


def csv_lines(captions: Iterable[CaptionJson], pictures: bool = False) -> Iterator[str]:
    """A header, and a row for each photo; `objects` are the names of what is seen, the surest first.

    With `pictures` there is a column of where the picture of each is, from the table's folder on. No cell is a formula.
    """
    yield _csv_row((*COLUMNS, "picture") if pictures else COLUMNS)
    for record in captions:
        low = "true" if record["low_confidence"] else "false"
        objects = BETWEEN.join(concept["name"] for concept in record["concepts"])
        picture = (_no_formula(record.get("picture", "")),) if pictures else ()
        path = _no_formula(record["path"])
        yield _csv_row((path, record["caption"], record["confidence"], low, objects, *picture))


def json_lines(captions: Iterable[CaptionJson]) -> Iterator[str]:
    """An object a line; a name with a line break does not break the line."""
    for record in captions:
        yield json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def json_array(captions: Iterable[CaptionJson]) -> Iterator[str]:
    """One array, an object a line. What stops the captions is raised once the array is whole."""
    between, error = "[", None
    try:
        for record in captions:
            yield between + json.dumps(record, ensure_ascii=False, allow_nan=False)
            between = ",\n "
    except GeneratorExit:
        raise
    except BaseException as stop:  # also SystemExit, by which a signal ends the command
        error = stop
    yield "[]\n" if between == "[" else "]\n"
    if error is not None:
        raise error


TABLES: dict[str, Callable[[Iterable[CaptionJson]], Iterator[str]]] = {
    "csv": csv_lines,
    "jsonl": json_lines,
    "json": json_array,
}


def _no_formula(path: str) -> str:
    """The same path in other words where a spreadsheet would run it, such as that of a photo named =1+1.jpg."""
    return f"./{path}" if path.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else path


def _csv_row(values: Iterable[object]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(values)
    return buffer.getvalue()


def box_table(words: Sequence[CaptionJson], none: str = "no word points at a box", indent: str = "  ") -> str:
    """A line for each box that `words` of a caption's JSON point at: where it is in pixels, and how sure a word is."""
    pointing = [word for word in words if word["box"] is not None]
    if not pointing:
        return indent + none
    width = max(len(word["word"]) for word in pointing)
    lines = []
    for word in pointing:
        first, *others = (" ".join(f"{round(v):>5}" for v in box) for box in word["boxes"])
        lines.append(f"{indent}{word['word']:<{width}}  {first}  {word['score']:.2f}")
        lines += [f"{indent}{'':<{width}}  {box}" for box in others]
    return "\n".join(lines)


def html_page(captions: Iterable[CaptionJson], folder: PathLike) -> Iterator[str]:
    """A page for a folder: photos, each with its caption as alternative text, piece by piece. No request leaves it."""
    yield page_start("Captions", _STYLE) + "<ul>\n"
    for record in captions:
        yield _figure(record, link(record["path"], folder))
    yield "</ul>\n" + PAGE_END


def link(path: PathLike, folder: PathLike) -> str:
    """Where a photo is from a folder: a relative address, or a file's where there is none (another Windows drive)."""
    photo = os.path.abspath(path)  # noqa: PTH100 - links are not followed: the photo is where people see it
    try:
        way = Path(os.path.relpath(photo, os.path.abspath(folder))).as_posix()  # noqa: PTH100
    except ValueError:
        return Path(photo).as_uri()
    return quote(way if "/" in way else f"./{way}")  # a colon in a bare name would begin an address


def _figure(record: CaptionJson, address: str) -> str:
    width, height = record["size"]
    text, name = escape(sentence(record["caption"])), escape(Path(record["path"]).name)
    unsure = "<small>The model is not sure of this.</small>" if record["low_confidence"] else ""
    return (
        f'<li><figure><a href="{escape(address)}"><img src="{escape(address)}" alt="{text}" loading="lazy" '
        f'decoding="async" width="{width}" height="{height}"></a>'
        f"<figcaption>{text}{unsure}<small>{name}</small></figcaption></figure></li>\n"
    )
