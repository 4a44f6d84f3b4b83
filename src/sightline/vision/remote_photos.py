"""Photos that are no files of their own, by name: objects on storage, and rows of parquet files."""

from __future__ import annotations

import io
import os
from typing import IO

from sightline.files import PathLike
from sightline.vision.object_storage import Mark, is_address, mark_at, read_address
from sightline.vision.parquet_photos import row_named, table_at


def open_elsewhere(path: PathLike) -> IO[bytes] | None:
    """The bytes of a photo on object storage, or in a parquet file; None where the name leads to neither."""
    if (named := row_named(path)) is not None:
        file, name = named
        return io.BytesIO(table_at(file).read(name))
    return read_address(os.fspath(path)) if is_address(path) else None


def mark_elsewhere(path: PathLike) -> Mark | None:
    """What tells such a photo from its later versions: of a row, the mark of its file. None where there is none."""
    if (named := row_named(path)) is not None:
        return mark_at(named[0])
    return mark_at(path) if is_address(path) else None
