"""Captions in whatever format they come."""

from __future__ import annotations

from pathlib import Path

from sightline.data import captions_csv, captions_jsonl
from sightline.data.clipscore import read as read_by_id
from sightline.data.convert import read_captions
from sightline.data.format import Probe
from sightline.data.inspect import identify
from sightline.data.records import CaptionSet
from sightline.errors import DataError, MissingRecordError, UnknownFormatError

TABLES = {captions_csv.FORMAT.name: captions_csv.read, captions_jsonl.FORMAT.name: captions_jsonl.read}


def any_captions(
    path: Path, split: str | None = None, *, beside: bool = True, images: Path | None = None
) -> CaptionSet:
    """The captions of a file, or of one split of it.

    A JSON object that no format claims is read as id to caption(s), a JSON array as what `sightline caption` writes.

    Args:
        path: of the file.
        split: its name, for files that have splits.
        beside: the photos that a table names must lie beside it.
        images: they must lie in this folder instead.
    """
    try:
        found = identify(path)
    except UnknownFormatError:
        opens = Probe(path).json_start
        if opens not in ("{", "["):
            raise
        return read_by_id(path) if opens == "{" else captions_jsonl.read_array(path)
    if found.captions is None:
        raise DataError(f"{found.name} holds no captions", where=path, fix="give a file of captions")
    if split is not None or found.name not in TABLES or (beside and images is None):
        return read_captions(found, path, split)
    captions = TABLES[found.name](path, check_files=False)
    if images is not None:
        _check_photos(captions, images, path)
    return captions


def _check_photos(captions: CaptionSet, images: Path, path: Path) -> None:
    for photo in captions:
        if not (images / (photo.file or photo.id)).is_file():
            raise MissingRecordError(
                f"there is no photo {photo.file!r} in {images}",
                where=path,
                fix="names are relative to the folder of photos; correct the name, or remove the row",
            )
