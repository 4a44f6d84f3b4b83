"""Read features or captions in whatever format they are, and convert them; every record is checked on the way."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sightline.data import caption_table
from sightline.data.format import Format, Probe
from sightline.data.formats import FORMATS, identify
from sightline.data.json_captions import read_clipscore
from sightline.data.photo_finder import PhotoFinder
from sightline.data.records import CaptionSet, SceneSource
from sightline.data.store_format import write_scenes as write_store
from sightline.errors import ConfigError, DataError, UnknownFormatError, about
from sightline.files import PathLike
from sightline.scene import Scene
from sightline.vision.store_layout import NAME as STORE

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
class ConvertReport:
    """What a conversion did."""

    source: str
    source_format: str
    destination: str
    destination_format: str
    kind: str  # "scenes" or "captions"
    records: int
    left_out: tuple[str, ...] = ()  # parts of the scenes that the destination's format does not hold


Progress = Callable[[SceneSource], Iterable[Scene]]


def convert(
    source: PathLike,
    destination: PathLike,
    to: str | None = None,
    *,
    split: str | None = None,
    dtype: str | None = None,
    progress: Progress = iter,
) -> ConvertReport:
    """Read `source` in whatever format it is and write `destination`.

    Features are converted if both formats hold features, else captions if both hold captions. `split` keeps the photos
    of one split; `dtype` is what a feature store holds, float16 or float32. `progress` wraps the scenes as they pass.
    """
    origin = identify(source)
    target = _target(Path(destination), to, origin)
    if origin.scenes is not None and target.write_scenes is not None:
        if split is None:
            scenes = origin.scenes(Path(source))
        elif origin.split_scenes is None:
            raise ConfigError(f"features in {origin.name} have no splits", where=source, fix="leave --split out")
        else:
            scenes = origin.split_scenes(Path(source), split)
        write = partial(write_store, dtype=dtype) if target.name == STORE else target.write_scenes
        lost: set[str] = set()
        written = write(Path(destination), _noting(progress(scenes), target.keeps, lost))
        kind, left_out = "scenes", tuple(sorted(lost))
    elif origin.captions is not None and target.write_captions is not None:
        written = target.write_captions(Path(destination), read_captions(origin, Path(source), split))
        kind, left_out = "captions", ()
    else:
        held = " and ".join(_kinds(origin.scenes, origin.captions)) or "neither features nor captions"
        taken = " or ".join(_kinds(target.write_scenes, target.write_captions))
        what = f"{origin.name} holds {held} and {target.name} can be written from {taken}"
        fix = "choose another format with --to; `sightline data formats` lists them"
        raise ConfigError(what, where=source, fix=fix)
    return ConvertReport(str(source), origin.name, str(destination), target.name, kind, written, left_out)


def _noting(scenes: Iterable[Scene], keeps: tuple[str, ...], lost: set[str]) -> Iterator[Scene]:
    """Pass scenes on, adding to `lost` the parts that will not be kept."""
    for scene in scenes:
        lost.update(set(scene.parts()).difference(keeps))
        yield scene


def any_captions(path: Path, split: str | None = None, *, images: Path | None = None) -> CaptionSet:
    """The captions of a file, or of one split of it.

    A JSON object that no format claims is read as id to caption(s), a JSON list as what `sightline caption` writes.
    `images` is where the photos of a table must be; their files are then relative to it, as `PhotoFinder` has it.
    """
    try:
        format = identify(path)
    except UnknownFormatError:
        opens = Probe(path).json_start
        if opens not in ("{", "["):
            raise
        return read_clipscore(path) if opens == "{" else caption_table.read(path)
    if format.captions is None:
        raise DataError(f"{format.name} holds no captions", where=path, fix="give a file of captions")
    captions = read_captions(format, path, split)
    if images is None or format not in caption_table.FORMATS:
        return captions
    finder = PhotoFinder(images)
    with about(path):
        return replace(captions, photos=tuple(replace(p, file=finder.require(p.file or p.id)) for p in captions))


def read_captions(origin: Format, source: Path, split: str | None) -> CaptionSet:
    assert origin.captions is not None
    if split is None:
        return origin.captions(source)
    if origin.split_captions is not None:
        return origin.split_captions(source, split)
    return origin.captions(source).split(split)


def _target(destination: Path, to: str | None, origin: Format) -> Format:
    suffix = Path(destination.name.lower().removesuffix(".gz")).suffix
    name = to or _BY_SUFFIX.get(suffix)
    if name is None and suffix == "" and origin.scenes is not None:
        name = STORE
    by_name = {format.name: format for format in FORMATS}
    writable = [n for n, f in by_name.items() if f.write_scenes or f.write_captions]
    if name is None:
        what = f"the name {destination.name} does not tell a format"
        raise ConfigError(what, fix=f"say --to with one of {', '.join(writable)}")
    if name not in writable:
        raise ConfigError(f"{name!r} cannot be written", fix=f"choose one of {', '.join(writable)}")
    return by_name[name]


def _kinds(features: object, captions: object) -> list[str]:
    return [kind for kind, there in (("features", features), ("captions", captions)) if there]


def refuse_overwrite(destination: Path, force: bool) -> None:
    if destination.is_file() and not force:
        raise DataError("this file exists already", where=destination, fix="choose another name, or say --force")
