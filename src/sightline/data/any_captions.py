"""Captions in whatever format they come."""

from __future__ import annotations

from pathlib import Path

from sightline.data import captions_csv, captions_jsonl
from sightline.data.clipscore import read as read_by_id
from sightline.data.convert import read_captions
from sightline.data.format import Probe
from sightline.data.inspect import identify
from sightline.data.records import CaptionSet
from sightline.errors import DataError, UnknownFormatError

TABLES = {captions_csv.FORMAT.name: captions_csv.read, captions_jsonl.FORMAT.name: captions_jsonl.read}


def any_captions(path: Path, split: str | None = None, *, beside: bool = True) -> CaptionSet:
    """The captions of a file, or of one split of it; a JSON object that no format claims is read as id to caption(s).

    With `beside`, the photos that a table names must lie beside it.
    """
    try:
        found = identify(path)
    except UnknownFormatError:
        if Probe(path).json_start != "{":
            raise
        return read_by_id(path)
    if found.captions is None:
        raise DataError(f"{found.name} holds no captions", where=path, fix="give a file of captions")
    if not beside and split is None and found.name in TABLES:
        return TABLES[found.name](path, check_files=False)
    return read_captions(found, path, split)
