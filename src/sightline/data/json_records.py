"""JSON records with checked fields: an error names the file, the record, and what was expected there."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sightline.data.records import Problems
from sightline.errors import CountError, DataError, DuplicateRecordError, NonFiniteError
from sightline.files import PathLike, open_bytes, open_text, read_json

T = TypeVar("T")

_ID_KEYS = ("id", "image_id", "cocoid", "imgid", "file_path", "image")
_CHUNK = 1 << 20  # bytes looked through at a time
_SIDE = 1 << 31  # no picture is that wide


class Record:
    """One JSON object and its place in the file. Every getter checks the type and says where a wrong one is."""

    __slots__ = ("index", "list_name", "path", "value")

    def __init__(self, value: Any, path: PathLike, list_name: str = "", index: int | str | None = None) -> None:
        self.value: dict[str, Any] = value
        self.path, self.list_name, self.index = path, list_name, index
        if not isinstance(value, dict):
            raise self.error(f"an object {{…}} was expected, not {describe(value)}")

    def __str__(self) -> str:
        return self.where

    @property
    def where(self) -> str:
        """File, list and position, with the record's id where it has one."""
        if self.index is None:
            return str(self.path)
        fields = self.value if isinstance(self.value, dict) else {}
        key = next((key for key in _ID_KEYS if isinstance(fields.get(key), int | str)), None)
        id = "" if key is None else f" ({key} {fields[key]})"
        return f"{self.path}, {self.list_name}[{self.index!r}]{id}"

    def error(self, what: str, fix: str | None = None) -> DataError:
        return DataError(what, where=self.where, fix=fix)

    def has(self, key: str) -> bool:
        """Whether `key` is present and not null."""
        return self.value.get(key) is not None

    def text(self, key: str) -> str:
        text = self.value.get(key)
        if not isinstance(text, str):
            raise self._wrong(key, "text")
        return text if text.isascii() else self._unicode(text, key)

    def text_or_none(self, key: str) -> str | None:
        return self.text(key) if self.has(key) else None

    def integer(self, key: str) -> int:
        number = self.value.get(key)
        if type(number) is not int:  # not bool, which is an int to isinstance
            raise self._wrong(key, "a whole number")
        return number

    def identity(self, key: str) -> str:
        """The id under `key`, a number or text, as text."""
        id = self.value.get(key)
        if type(id) is int:
            return str(id)
        if not isinstance(id, str) or not id:
            raise self._wrong(key, "an id (a whole number or text)")
        return self._unicode(id, key)

    def items(self, key: str) -> list[Any]:
        items = self.value.get(key)
        if not isinstance(items, list):
            raise self._wrong(key, "a list")
        return items

    def texts(self, key: str) -> tuple[str, ...]:
        texts = self.items(key)
        for position, text in enumerate(texts):
            if not isinstance(text, str):
                raise self.error(f"{key!r}[{position}] must be text, not {describe(text)}")
            if not text.isascii():
                self._unicode(text, f"{key}[{position}]")
        return tuple(texts)

    def one_or_many(self, key: str) -> tuple[str, ...]:
        return self.texts(key) if isinstance(self.value.get(key), list) else (self.text(key),)

    def mapping(self, key: str) -> dict[str, Any]:
        mapping = self.value.get(key)
        if not isinstance(mapping, dict):
            raise self._wrong(key, "an object {…}")
        return mapping

    def each(self, key: str, problems: Problems, parse: Callable[[Record], T], name: str = "") -> list[T]:
        """`parse` of every record in the list under `key`, which messages call `name`."""
        return parse_each(self.items(key), self.path, name or key, problems, parse)

    def size(self) -> tuple[int, int] | None:
        """(`width`, `height`) in pixels, or None where the record has neither."""
        if not self.has("width") and not self.has("height"):
            return None
        width, height = self.integer("width"), self.integer("height")
        if not (0 < width < _SIDE and 0 < height < _SIDE):
            what = f"the image size is {str(width)[:20]}×{str(height)[:20]}"
            raise self.error(what, fix="store the real size in pixels")
        return width, height

    def _wrong(self, key: str, expected: str) -> DataError:
        if key not in self.value:
            return self.error(f"{key!r} is missing ({expected} was expected)", fix=f"add {key!r}")
        return self.error(f"{key!r} must be {expected}, not {describe(self.value[key])}")

    def _unicode(self, text: str, key: str) -> str:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            what = f"{key!r} holds half of a surrogate pair, which is not text: {text[:40]!a}"
            raise self.error(what, fix="write the file again as UTF-8") from None
        return text


def describe(value: Any) -> str:
    """What a JSON value is, for messages."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return ("the text " if isinstance(value, str) else "the number ") + repr(value)[:40]


def check_numbers(value: Any, names: Sequence[str], what: str, where: str) -> list[float]:
    """`value` as a list of as many finite numbers as there are `names`, or an error that calls it `what`."""
    expected = f"{what} must be a list of {len(names)} numbers ({', '.join(names)})"
    if not isinstance(value, list) or not all(type(number) in (int, float) for number in value):
        raise DataError(f"{expected}, not {describe(value)}", where=where)
    if len(value) != len(names):
        raise CountError(f"{expected}, not {len(value)}", where=where)
    try:
        numbers = [float(number) for number in value]
    except OverflowError:  # whole numbers of JSON have no limit
        numbers = [math.inf]
    if not all(map(math.isfinite, numbers)):
        raise NonFiniteError(f"{what} is {str(value)[:80]}", where=where, fix="write finite numbers")
    return numbers


def parse_each(
    values: list[Any] | dict[str, Any], path: PathLike, list_name: str, problems: Problems, parse: Callable[[Record], T]
) -> list[T]:
    """`parse` of every record; one that raises a DataError is reported (so: raised, or noted and left out)."""
    parsed = []
    for index, value in values.items() if isinstance(values, dict) else enumerate(values):
        try:  # which costs nothing, while `with problems` does: records come by the million
            parsed.append(parse(Record(value, path, list_name, index)))
        except DataError as error:
            problems.report(error)
    return parsed


def read_each(path: Path, problems: Problems, parse: Callable[[Record], T], list_name: str = "") -> list[T]:
    """`parse_each` of the records in the JSON list that a file holds."""
    return parse_each(read_list(path), path, list_name, problems, parse)


def read_list(path: Path) -> list[Any]:
    value = read_json(path)
    if not isinstance(value, list):
        raise DataError(f"a JSON list […] was expected, not {describe(value)}", where=path)
    return value


def read_object(path: Path) -> Record:
    return Record(read_json(path), path)


def report_repeated_keys(path: Path, problems: Problems) -> None:
    """Report keys that one object of a valid JSON file holds twice; plain parsing would silently keep the last."""

    def check(pairs: list[tuple[str, Any]]) -> None:
        for key, count in Counter(key for key, _ in pairs).items():
            if count > 1:
                what = f"the key {key!r} appears twice"
                problems.report(DuplicateRecordError(what, where=path, fix="merge the two entries"))

    with open_text(path) as file:
        json.loads(file.read(), object_pairs_hook=check)


def first_key(path: Path, *keys: str) -> str | None:
    """Whichever of `keys` occurs first in a JSON file as `"key":`, found without parsing; works on cut files too."""
    pattern = re.compile(b'"(' + b"|".join(re.escape(key.encode()) for key in keys) + rb')"\s*:')
    tail = b""
    try:
        with open_bytes(path) as file:
            while chunk := file.read(_CHUNK):
                if match := pattern.search(tail + chunk):
                    return match[1].decode()
                tail = chunk[-256:]
    except DataError:
        return None
    return None


def json_id(id: str) -> int | str:
    """An id as files hold it: a number where the text is a plain one, so that `7` and `007` stay apart."""
    return int(id) if id.isascii() and id.isdigit() and len(id) < 20 and (id == "0" or id[0] != "0") else id
