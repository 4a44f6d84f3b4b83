"""Files on object storage by address, such as s3://bucket/photos/cat.jpg, and local ones by path; needs pyarrow.

Keys, region and endpoint come from the environment (`AWS_…`), as for an index there.
"""

import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sightline.errors import DataError, library
from sightline.files import PathLike
from sightline.vision.find_photos import is_picture

Mark = tuple[int, int]  # bytes, and nanoseconds of the last change
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_address(path: PathLike) -> bool:
    """True for addresses such as s3://bucket/photos, which are not on this machine's disks."""
    return _ADDRESS.match(os.fspath(path)) is not None


def open_address(path: PathLike) -> Any:
    """An object or a local file, open for reading anywhere in it."""
    system, name = _place(path)
    return system.open_input_file(name)


def mark_at(path: PathLike) -> Mark | None:
    """The mark of an object, which changes when the object does; None if there is no such object."""
    with storage_error(path):
        system, name = _place(path)
        return _mark(system.get_file_info(name))


def pictures_at(address: str) -> list[tuple[str, Mark]]:
    """The object at an address, or everything below it that is called like a picture, by name, with their marks."""
    with storage_error(address):
        system, name = _place(address)
        if (mark := _mark(system.get_file_info(name))) is not None:
            return [(address, mark)]
        from pyarrow import fs

        objects = system.get_file_info(fs.FileSelector(name, recursive=True))
    scheme = address.partition("://")[0]
    pictures: list[tuple[list[str], str, Mark]] = []  # the parts of each path below `name`, by which they are sorted
    for info in objects:
        parts = info.path.removeprefix(f"{name}/").split("/")
        hidden = any(part.startswith(".") for part in parts)
        if (mark := _mark(info)) is not None and is_picture(parts[-1]) and not hidden:
            pictures.append((parts, f"{scheme}://{info.path}", mark))
    return [(path, mark) for _, path, mark in sorted(pictures)]


@contextmanager
def storage_error(path: PathLike) -> Iterator[None]:
    """What storage complains of, as an error that says where."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError("nothing is there", where=path, fix="check the name of the bucket and what follows") from error
    except OSError as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"this cannot be read ({reason})", where=path, fix="check keys, region and endpoint") from error


def _mark(info: Any) -> Mark | None:
    return (info.size, info.mtime_ns or 0) if info.is_file else None


def _place(path: PathLike) -> tuple[Any, str]:
    """The file system of a path, and the path's name in it."""
    library("pyarrow", "search", "reading from object storage and parquet files")
    from pyarrow import fs

    text = os.fspath(path)
    if not is_address(text):
        return fs.LocalFileSystem(), os.path.abspath(text)  # noqa: PTH100 - resolve would follow links
    scheme, _, name = text.partition("://")
    if scheme in ("http", "https"):
        raise DataError("this is a web address; nothing is downloaded", where=text, fix="save the picture first")
    if scheme not in ("s3", "gs"):
        raise DataError(f"photos cannot be read from {scheme}://", where=text, fix="use a folder, s3:// or gs://")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return _system(scheme, os.environ.get("AWS_ENDPOINT_URL"), region), name.rstrip("/")


@functools.lru_cache(maxsize=4)
def _system(scheme: str, endpoint: str | None, region: str | None) -> Any:
    from pyarrow import fs

    return fs.GcsFileSystem() if scheme == "gs" else fs.S3FileSystem(endpoint_override=endpoint, region=region)
