"""A file of captions that came with a request: photos by name, and what it says about each."""

from __future__ import annotations

import tempfile
from pathlib import Path, PurePosixPath, PureWindowsPath

from sightline.data.any_captions import any_captions
from sightline.errors import DataError

SHORT = 50  # letters, of up to four bytes each


def captions_by_name(data: bytes, name: str) -> dict[str, list[str]]:
    """Captions by the name of their photo, without folders; by its id where a file gives no names."""
    told = name or "the captions"
    if b"\0" in data[:4096] or data[:2] == b"\x1f\x8b":  # unpacking could take any amount of memory
        raise DataError("this is no text", where=told, fix="send captions as text: JSON, CSV or lines")
    with tempfile.TemporaryDirectory(prefix="sightline-") as folder:
        path = Path(folder) / _named(base(name), data)
        path.write_bytes(data)
        try:
            found = any_captions(path, beside=False)
        except DataError as error:
            what, fix = (text.replace(str(path), told) for text in (error.what, error.fix or "check it"))
            raise type(error)(what, where=told, fix=fix) from error
    return {base(photo.file or photo.id): [s.text for s in photo.sentences] for photo in found}


def base(name: str) -> str:
    r"""The name of a file without its folders, whichever system wrote them.

    >>> base("a/b.jpg"), base("C:\\photos\\b.jpg"), base("..")
    ('b.jpg', 'b.jpg', '')
    """
    last = PureWindowsPath(PurePosixPath(name).name).name
    return "" if last in (".", "..") else last.replace("\0", "")


def _named(name: str, data: bytes) -> str:
    """A name that every disk takes, with an ending that tells what is in the file where it has none."""
    name = name[-SHORT:]
    if "." in name:
        return name
    return f"{name or 'captions'}.{'json' if data.lstrip()[:1] in (b'{', b'[') else 'csv'}"
