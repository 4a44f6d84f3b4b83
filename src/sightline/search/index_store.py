"""Where an index is, which engine keeps it, and which model made it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

from sightline.errors import ConfigError, DataError, MissingExtraError
from sightline.files import PathLike, cache_dir, fingerprint, lock, unwritable
from sightline.search import exact, lance
from sightline.search.engine import Engine
from sightline.search.exact import ExactIndex
from sightline.search.lance import LanceIndex
from sightline.vision.object_storage import is_address

if TYPE_CHECKING:  # PyTorch is imported only once there is an index
    from sightline.checkpoint.bundle import Bundle

NAME = ".sightline-index"
LANCE_FROM = 100_000  # photos: from here on, comparing every vector takes longer than people like to wait
LOCK, LEDGER, MOVING = "lock", "ledger.jsonl", ".moving"
ROWS_AT_ONCE = 1000  # that go from one engine to another

Kind = Literal["exact", "lance"]
_MODELS: WeakKeyDictionary[Bundle, str] = WeakKeyDictionary()  # names that were computed


def default_store() -> Path:
    """Where an index goes if no place is named: a hidden folder in the current one."""
    return Path.cwd() / NAME


def nearest_store() -> Path:
    """Where an index is looked for if no place is named: in the current folder, then in those above it."""
    stores = [folder / NAME for folder in default_store().parents]
    return next((store for store in stores if store.is_dir()), stores[0])


def engine_at(store: PathLike) -> Engine | None:
    """The engine of an index; None where there is none."""
    if is_address(store):
        return LanceIndex(store)
    folder = Path(store)
    if (folder / f"{lance.TABLE}.lance").exists():
        return LanceIndex(folder)
    return ExactIndex(folder) if (folder / exact.FILE).exists() else None


def open_index(store: PathLike) -> Engine:
    engine = engine_at(store)
    if engine is None or not engine.maker:
        fix = "make one with `sightline index FOLDER`"
        raise DataError("there is no photo index here", where=os.fspath(store), fix=fix)
    return engine


@contextlib.contextmanager
def hold_store(store: PathLike) -> Iterator[Path]:
    """Hold the store as its only writer; the folder is that of its ledger, which is on this machine in any case."""
    folder = cache_dir() / "indexes" / fingerprint(os.fspath(store)) if is_address(store) else Path(store)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOCK).touch()
    except OSError as error:
        raise unwritable(folder, error) from error
    with lock(folder / LOCK):
        yield folder


def engine_for(store: PathLike, photos: int, kind: Kind | None = None) -> Engine:
    """The engine to write with, whose store is held.

    An index of so many photos, those that it has counted in, that exact search is slow moves to LanceDB if that is
    installed, unless a `kind` of engine was asked for.
    """
    current = engine_at(store)
    if kind == "exact" and current is not None and current.kind == "lance":
        raise ConfigError("this index is one of LanceDB", where=os.fspath(store), fix="name another place with --store")
    if kind == "lance" and not lance.is_installed():
        raise MissingExtraError.of("lancedb", "search", "`--engine lance`")
    many = max(photos, 0 if current is None else len(current)) >= LANCE_FROM
    big = kind == "lance" or (kind is None and many and lance.is_installed())
    if isinstance(current, ExactIndex) and big:
        return _move(current, Path(store))
    if current is None:
        return LanceIndex(store) if big else ExactIndex(store)
    if current.kind == "lance" and not is_address(store):  # what a move that was killed at its end left
        (Path(store) / exact.FILE).unlink(missing_ok=True)
    return current


def _move(old: ExactIndex, folder: Path) -> Engine:
    """The same index in LanceDB. Killed half-way, the old one is still there."""
    shutil.rmtree(folder / MOVING, ignore_errors=True)
    new, paths = LanceIndex(folder / MOVING), sorted(old.states())
    new.clear(old.maker)
    for start in range(0, len(paths), ROWS_AT_ONCE):
        new.write(old.rows(paths[start : start + ROWS_AT_ONCE]))
    if paths:
        (folder / MOVING / f"{lance.TABLE}.lance").rename(folder / f"{lance.TABLE}.lance")
    old.path.unlink()
    shutil.rmtree(folder / MOVING, ignore_errors=True)
    return LanceIndex(folder)


def model_of(bundle: Bundle) -> str:
    """A short name for the vision model and the matcher of a bundle; captions may be of any captioner."""
    if bundle not in _MODELS:
        matcher = bundle.matcher
        if matcher is None:
            raise ConfigError("this model has no matcher, and cannot search", fix="use one that has")
        weights = (tensor.detach().float().cpu().numpy().tobytes() for tensor in matcher.model.state_dict().values())
        words = "\n".join(matcher.vocabulary)
        _MODELS[bundle] = fingerprint(bundle.vision.fingerprint(), matcher.text_rule, words, *weights)
    return _MODELS[bundle]
