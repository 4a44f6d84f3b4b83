"""Tell what a file or folder is, what it holds and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sightline.data.format import Format, Probe, Report
from sightline.data.formats import FORMATS
from sightline.errors import DataError, UnknownFormatError
from sightline.files import PathLike, existing

_DEPTH = 4


def identify(path: PathLike) -> Format:
    """The format of `path`, or an UnknownFormatError that tells what it looks like."""
    probe = Probe(existing(path))
    found = _match(probe)
    if found is None:
        raise UnknownFormatError(
            f"{_looks_like(probe)}, in no format Sightline reads",
            where=path,
            fix="`sightline data formats` lists the formats",
        )
    return found


def inspect(path: PathLike) -> Iterator[Report]:
    """Reports on a file or folder; a folder in no format of its own gives the reports of what is inside it."""
    yield from _inspect(existing(path), _DEPTH)


def _inspect(path: Path, depth: int) -> Iterator[Report]:
    probe = Probe(path)
    found = _match(probe)
    if found is not None:
        try:
            yield found.inspect(path)
        except DataError as error:  # so broken that counting was not possible
            yield Report(str(path), found.name, found.about, problems=(str(error),), problem_count=1)
    elif probe.is_folder and depth and probe.entries:
        for name in probe.entries:
            yield from _inspect(path / name, depth - 1)
    else:
        yield Report(str(path), "unknown", f"{_looks_like(probe)}, in no format Sightline reads")


def _match(probe: Probe) -> Format | None:
    return next((format for format in FORMATS if format.matches(probe)), None)


def _looks_like(probe: Probe) -> str:
    """A few words on a file that no format claims."""
    if probe.is_folder:
        return f"a folder of {len(probe.entries)} entries" if probe.entries else "an empty folder"
    if probe.path.stat().st_size == 0:
        return "an empty file"
    if isinstance(probe.json, dict):
        return f"a JSON object with the keys {', '.join(list(map(str, probe.json))[:6])}"
    if isinstance(probe.json, list):
        return f"a JSON list of {len(probe.json)} items"
    return "a binary file" if probe.text is None else "a text file"
