"""Photos in a parquet file: their bytes beside an id, or their paths.

A photo whose bytes are in the file is called as if the file were a folder: `photos.parquet/cat.jpg` is the row of the
id `cat.jpg`. Files that Hugging Face datasets writes (`image` with `bytes` and `path`) are read as they are.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from sightline.errors import DataError, DuplicateRecordError, SightlineError, library
from sightline.files import PathLike
from sightline.vision.object_storage import Mark, is_address, mark_at, open_address, storage_error

SUFFIX = ".parquet"
PICTURES = ("image", "bytes", "photo", "picture", "img", "jpg", "data")
IDS = ("id", "image_id", "key", "__key__", "name", "file_name", "filename", "path", "file", "filepath")
PATHS = ("path", "file", "file_name", "filename", "filepath", "image_path", "image", "photo", "uri")
AT_ONCE = 32  # rows that are read together
GROUPS_IN_MEMORY = 4  # of so many rows each, for rows that are asked for late
BUFFER = 1 << 20  # bytes


def is_table(path: PathLike) -> bool:
    text = os.fspath(path)
    return text.lower().endswith(SUFFIX) and (is_address(text) or not Path(text).is_dir())


def split_row_path(path: PathLike) -> tuple[str, str] | None:
    """The parquet file and the id that a path such as photos.parquet/cat.jpg names; None if it names none."""
    text = os.fspath(path)
    at = text.lower().rfind(f"{SUFFIX}/")
    if at < 0:
        return None
    file = text[: at + len(SUFFIX)]
    return (file, text[len(file) + 1 :]) if is_address(file) or Path(file).is_file() else None


def table_at(file: str) -> PhotoTable:
    """A parquet file, opened once; a local one again when it has changed."""
    return _open_table(file, None if is_address(file) else mark_at(file))


@functools.lru_cache(maxsize=4)
def _open_table(file: str, mark: Mark | None) -> PhotoTable:
    return PhotoTable(file)


class PhotoTable:
    """The photos of a parquet file, which are read as they are asked for; rows best in their order.

    `holds_bytes` tells whether the photos themselves are in it, or only their paths.
    """

    def __init__(self, file: str) -> None:
        pa = library("pyarrow", "search", "reading parquet files")
        from pyarrow import parquet

        self.where = file
        with _damage(file):
            try:
                # page by page: files of few, huge row groups are common, and need not fit into memory
                self._file = parquet.ParquetFile(open_address(file), buffer_size=BUFFER, pre_buffer=False)
            except pa.ArrowInvalid as error:
                raise DataError("this is no parquet file", where=file, fix="write or copy it again") from error
            kinds = _columns(self._file.schema_arrow)
        self._picture_column = _choose_column(kinds["bytes"], PICTURES)
        self.holds_bytes = self._picture_column is not None
        if self.holds_bytes:
            name_column = _choose_column(kinds["text"] + kinds["number"], IDS)
        else:
            name_column = _choose_column(kinds["text"], PATHS)
        if name_column is None:
            columns = ", ".join(self._file.schema_arrow.names) or "none"
            wanted = "an id (id, name, …)" if self.holds_bytes else "paths (path, …) or pictures (image, …)"
            raise DataError(f"of its columns ({columns}), none has {wanted}", where=file, fix="rename the column")
        self._name_column = name_column
        counts = [self._file.metadata.row_group(group).num_rows for group in range(self._file.num_row_groups)]
        self._starts = list(itertools.accumulate(counts, initial=0))  # the first row of each row group
        self._lock = threading.Lock()
        self._cells: OrderedDict[int, Any] = OrderedDict()  # pictures of some rows, by the first of them
        self._batches: Iterator[tuple[int, Any]] = iter(())  # the rest of the row group that is read
        self._group, self._next = -1, 0  # that row group, and the first row of it that is still to come

    @functools.cached_property
    def texts(self) -> list[str | None]:
        """The ids, or the paths, of all rows."""
        with self._lock, _damage(self.where):
            column = self._file.read(columns=[self._name_column]).column(0).combine_chunks()
            return [None if value is None else str(value) for value in _innermost(column).to_pylist()]

    @functools.cached_property
    def names(self) -> dict[str, int]:
        """The rows by the names of their photos, in order; ids that cannot be names are left out (`problems`)."""
        return self._named_rows[0]

    @property
    def problems(self) -> list[SightlineError]:
        """Why rows are left out."""
        return self._named_rows[1]

    @functools.cached_property
    def _named_rows(self) -> tuple[dict[str, int], list[SightlineError]]:
        names, problems = dict[str, int](), list[SightlineError]()
        for row, text in enumerate(self.texts):
            name, where = PurePosixPath(text or ""), f"{self.where}, row {row}"
            if not name.name or name.is_absolute() or ".." in name.parts:
                problems.append(DataError(f"the id {text!r} cannot be a name", where=where, fix="give it another"))
            elif names.setdefault(str(name), row) != row:
                problems.append(DuplicateRecordError(f"the id {text!r} is there twice", where=where, fix="remove one"))
        return names, problems

    def read(self, name: str) -> bytes:
        """The bytes of the photo of this name."""
        row = self.names.get(name)
        if row is None:
            raise DataError(f"there is no photo {name!r}", where=self.where, fix="check the name")
        with self._lock, _damage(self.where):
            cell = self._cell(row)
        if cell is None:
            raise DataError("this row has no picture", where=f"{self.where}/{name}", fix="leave it out")
        return bytes(cell)

    def _cell(self, row: int) -> bytes | None:
        """The picture of a row. Rows that are asked for in order are read in one go."""
        start = next((first for first, cells in self._cells.items() if first <= row < first + len(cells)), None)
        if start is None:
            group = bisect_right(self._starts, row) - 1
            if group != self._group or row < self._next:
                self._batches, self._group = self._read_group(group), group
            for start, cells in self._batches:
                self._cells[start] = cells
                self._next = start + len(cells)
                if len(self._cells) > GROUPS_IN_MEMORY:
                    self._cells.popitem(last=False)
                if row < self._next:
                    break
            else:  # the reading of its row group has ended before it, in an error
                fix = "write or copy it again"
                raise DataError("the file is damaged before this row", where=f"{self.where}, row {row}", fix=fix)
        assert start is not None
        picture: bytes | None = self._cells[start][row - start].as_py()
        return picture

    def _read_group(self, group: int) -> Iterator[tuple[int, Any]]:
        """The pictures of a row group, some at a time, each with the number of its first row."""
        first = self._starts[group]
        for batch in self._file.iter_batches(AT_ONCE, row_groups=[group], columns=[self._picture_column]):
            yield first, _innermost(batch.column(0))
            first += batch.num_rows


@contextlib.contextmanager
def _damage(file: str) -> Iterator[None]:
    """What Arrow complains of in a damaged file, as an error that says where."""
    import pyarrow as pa

    with storage_error(file):
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:  # text that is no UTF-8 is a ValueError
            if isinstance(error, OSError) and (error.errno is not None or is_address(file)):
                raise
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise DataError(f"it is damaged ({reason})", where=file, fix="write or copy it again") from error


def _columns(schema: Any) -> dict[str, list[str]]:
    """The columns that hold bytes, text and whole numbers; fields within them by `column.field`."""
    import pyarrow as pa

    types = [(column.name, column.type) for column in schema]
    for name, kind in list(types):
        if pa.types.is_struct(kind):
            types += [(f"{name}.{field.name}", field.type) for field in kind]
    columns: dict[str, list[str]] = {"bytes": [], "text": [], "number": []}
    for name, kind in types:
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            columns["bytes"].append(name)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            columns["text"].append(name)
        elif pa.types.is_integer(kind):
            columns["number"].append(name)
    return columns


def _choose_column(columns: list[str], usual: tuple[str, ...]) -> str | None:
    """The column that is called most usually; of one that is called unusually, there may be only one."""
    matches = [column for word in usual for column in columns if word in column.lower().split(".")]
    plain = [column for column in matches if "." not in column]
    return next(iter(plain or matches), columns[0] if len(columns) == 1 else None)


def _innermost(column: Any) -> Any:
    """What is within a column of one field."""
    import pyarrow as pa

    return column.field(0) if pa.types.is_struct(column.type) else column


def open_elsewhere(path: PathLike) -> IO[bytes] | None:
    """The bytes of a photo on object storage, or in a parquet file; None where the name leads to neither."""
    if (row := split_row_path(path)) is not None:
        file, name = row
        return io.BytesIO(table_at(file).read(name))
    if not is_address(path):
        return None
    with storage_error(path), open_address(path) as stored:
        return io.BytesIO(stored.read())


def mark_elsewhere(path: PathLike) -> Mark | None:
    """The mark of such a photo, of a row that of its file; None if there is no such photo."""
    if (row := split_row_path(path)) is not None:
        return mark_at(row[0])
    return mark_at(path) if is_address(path) else None
