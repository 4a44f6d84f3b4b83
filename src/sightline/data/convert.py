"""Convert features or captions between formats; every record is checked on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sightline.data.format import Format
from sightline.data.formats import FORMATS
from sightline.data.inspect import identify
from sightline.data.records import SceneSource
from sightline.errors import ConfigError, DataError
from sightline.files import PathLike
from sightline.scene import Scene

# What a destination's name says about its format; `--to` overrides it.
_BY_SUFFIX = {
    ".tsv": "bottom-up-tsv",
    ".hdf5": "m2-hdf5",
    ".h5": "m2-hdf5",
    ".lmdb": "lmdb",
    ".csv": "captions-csv",
    ".jsonl": "captions-jsonl",
}


@dataclass(frozen=True)
class Converted:
    """What a conversion did."""

    source: str
    source_format: str
    destination: str
    destination_format: str
    kind: str  # "scenes" or "captions"
    records: int


Progress = Callable[[Iterable[Scene], int], Iterable[Scene]]


def convert(
    source: PathLike,
    destination: PathLike,
    to: str | None = None,
    *,
    split: str | None = None,
    progress: Progress = lambda scenes, total: scenes,
) -> Converted:
    """Read `source` in whatever format it is and write `destination`.

    Features are converted if both formats hold features, else captions if both hold captions. `split` keeps the photos
    of one split. `progress` wraps the scenes as they pass.
    """
    origin = identify(source)
    target = _target(Path(destination), to, origin)
    if origin.scenes is not None and target.write_scenes is not None:
        scenes = _scenes(origin, Path(source), split)
        written = target.write_scenes(Path(destination), progress(iter(scenes), len(scenes)))
        kind = "scenes"
    elif origin.captions is not None and target.write_captions is not None:
        captions = origin.captions(Path(source))
        written = target.write_captions(Path(destination), captions.split(split) if split else captions)
        kind = "captions"
    else:
        raise ConfigError(
            f"{origin.name} holds {_holds(origin)} and {target.name} can be written from {_takes(target)}",
            where=source,
            fix="choose another format with --to; `sightline data formats` lists them",
        )
    return Converted(str(source), origin.name, str(destination), target.name, kind, written)


def _scenes(origin: Format, source: Path, split: str | None) -> SceneSource:
    if split is not None and origin.split_scenes is None:
        raise ConfigError(f"features in {origin.name} have no splits", where=source, fix="leave --split out")
    assert origin.scenes is not None
    return origin.scenes(source) if split is None or origin.split_scenes is None else origin.split_scenes(source, split)


def _target(destination: Path, to: str | None, origin: Format) -> Format:
    name = to or _BY_SUFFIX.get(destination.suffix)
    if name is None and destination.suffix == "" and origin.scenes is not None:
        name = "sightline-store"
    by_name = {format.name: format for format in FORMATS}
    writable = [n for n, f in by_name.items() if f.write_scenes or f.write_captions]
    if name is None:
        raise ConfigError(
            f"the name {destination.name} does not tell a format", fix=f"say --to with one of {', '.join(writable)}"
        )
    if name not in writable:
        raise ConfigError(f"{name!r} cannot be written", fix=f"choose one of {', '.join(writable)}")
    return by_name[name]


def _holds(format: Format) -> str:
    held = [kind for kind, read in (("features", format.scenes), ("captions", format.captions)) if read]
    return " and ".join(held) or "neither features nor captions"


def _takes(format: Format) -> str:
    taken = [k for k, write in (("features", format.write_scenes), ("captions", format.write_captions)) if write]
    return " or ".join(taken)


def refuse_existing(destination: Path, force: bool) -> None:
    """Refuse to write over a file that is there, unless `force`."""
    if destination.is_file() and not force:
        raise DataError("this file exists already", where=destination, fix="choose another name, or say --force")
