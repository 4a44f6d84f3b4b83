"""Bring an index up to date with a folder of photos: the job behind `sightline index`.

It is the one resumable map (`sightline.jobs`) with an index as its sink. A row holds the mark of its photo, so that
what is in the index is done; the ledger only remembers which bad files were reported.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from sightline.errors import ConfigError, DataError, MissingExtraError, SightlineError
from sightline.files import PathLike, cache_dir, fingerprint, lock
from sightline.jobs.job import Executor, Report, run, run_locally
from sightline.jobs.job_photos import GONE, PhotoRef, id_of, mark_of, photos_below
from sightline.jobs.ledger import Ledger
from sightline.photo import Photo, PhotoEmbedding
from sightline.search import exact, lance
from sightline.search.engine import Row, RowState
from sightline.search.exact import ExactIndex
from sightline.search.lance import LanceIndex
from sightline.search.query import Engine, engine_at
from sightline.vision.object_storage import Mark, is_address
from sightline.vision.photo_reader import Progress

Kind = Literal["exact", "lance"]  # of engines
EmbedPhotos = Callable[[Sequence[Photo]], Sequence[PhotoEmbedding]]
ROWS_AT_ONCE = 1000  # that are written at once: of photos under new names, or of another engine
LEAST_CONCEPT_SCORE = 0.5  # the least score of a concept by which its photo is found
TIDY = 40  # batches from one tidying to the next
LANCE_FROM = 100_000  # photos: from here on, comparing every vector takes longer than people like to wait
LOCK, LEDGER, MOVING = "lock", "ledger.jsonl", ".moving"


@dataclass
class SyncReport(Report):
    """What a run did to the index.

    Attributes:
        copied: photos of `made` that are copies of others, which are still there: new, but not looked at again.
        moved: photos of `kept` that were known under another name, or were touched, and not looked at again.
        gone: photos that are no longer there, and were taken out.
        total: photos that the index has now, of this folder and others.
        engine: exact or lance.
    """

    copied: int = 0
    moved: int = 0
    gone: int = 0
    total: int = 0
    engine: str = ""


@dataclass
class _Plan:
    """What to do with photos."""

    embed: list[PhotoRef] = field(default_factory=list)  # new, or changed
    # Photos whose bytes are known, with the path of the row that knows them: moved, copied, or touched.
    known: list[tuple[PhotoRef, str]] = field(default_factory=list)
    copies: set[str] = field(default_factory=set)  # ids of those of `known` that are new: their source is still there
    gone: set[str] = field(default_factory=set)  # paths of rows whose files are no longer there
    kept: int = 0  # in the index as they are


def _plan(
    root: str,
    photos: Sequence[PhotoRef],
    problems: Sequence[SightlineError],
    rows: Mapping[str, RowState],
    *,
    captions: bool,
    again: bool,
) -> _Plan:
    """Compare the photos below a folder with an index; what is below folders that could not be read (`problems`) stays.

    A file is read only if one of the same length is in the index: it may be that one, under another name.
    """
    todo, listed = _Plan(), {photo.id for photo in photos}
    unread = tuple(f"{error.where}/" for error in problems if error.where)
    below = f"{root.rstrip('/')}/"
    missing = (path for path in rows if path.startswith(below) and path not in listed)
    todo.gone = {path for path in missing if not path.startswith(unread)}
    complete = {path: row for path, row in rows.items() if row.captioned or not captions}
    changed = {photo.id for photo in photos if photo.id in rows and rows[photo.id].mark != photo.mark}
    by_length, moved = dict[int, dict[str, str]](), set[str]()  # of files: paths by content; sources that have moved
    for path, row in complete.items():
        if row.content:
            by_length.setdefault(row.mark[0], {})[row.content] = path
    for photo in photos:
        if again:
            todo.embed.append(photo)
        elif photo.id in complete and complete[photo.id].mark == photo.mark:
            todo.kept += 1
        elif (known := by_length.get(photo.mark[0])) and (source := known.get(content_hash(photo.path))):
            exists = Path(source).exists()
            if photo.id not in rows and ((exists and source not in changed) or source in moved):
                todo.copies.add(photo.id)
            moved.add(source)
            todo.known.append((photo, source))
            if not exists:
                todo.gone.add(source)
        else:
            todo.embed.append(photo)
    return todo


def sync(
    folder: PathLike,
    store: PathLike,
    embed: EmbedPhotos,
    *,
    maker: str,
    size: int,
    captions: bool = True,
    engine: Kind | None = None,
    force: bool = False,
    progress: Progress = iter,
    executor: Executor = run_locally,
) -> SyncReport:
    """Index the photos below a folder: new and changed ones are looked at, moved ones renamed, missing ones dropped.

    What is not described here is as for `Pipeline.index`.

    Args:
        folder: of photos, and of folders of them; also an address such as s3://bucket/photos, or a parquet file.
        embed: gives the vectors, and captions where they are wanted, of photos that were read.
        maker: the fingerprint of the model (`sightline.search.query.model_of`).
        size: pixels of the squares that the model sees.
        captions: whether `embed` gives them; photos that were indexed without are then looked at again.
        executor: who looks at them: this process, or a cluster (`sightline.jobs.cluster`).
    """
    root = os.fspath(folder).rstrip("/") if is_address(folder) else Path(id_of(folder)).as_posix()
    listed, problems = photos_below(root)
    photos = [PhotoRef(_name(photo.path), photo.path, photo.mark) for photo in listed]
    with hold_store(store) as place:
        index = engine_for(store, len(photos), engine)
        made_by = index.maker
        if made_by and made_by != maker and not force:
            fix = "give that model with --model, name another place with --store, or begin again with --force"
            raise ConfigError("this index was made with another model", where=os.fspath(store), fix=fix)
        if made_by != maker:
            index.clear(maker)
        rows = index.states()
        todo = _plan(root, photos, problems, rows, captions=captions, again=force)
        if not photos and todo.gone and not force:
            fix = "check that the disk is there; if they are really gone, say so with --force"
            raise DataError(f"no photo is here, and the index has {len(todo.gone):,} of them", where=root, fix=fix)
        renamed = _write_known(index, root, todo)
        index.write((), todo.gone.union(rows.keys() & {photo.id for photo in todo.embed}))
        work = partial(make_rows, embed, root)
        sink = IndexSink(index, {photo.id: photo.mark for photo in todo.embed})
        with Ledger(place / LEDGER) as ledger:
            report = run(
                todo.embed,
                work,
                sink,
                ledger,
                size=size,
                batch=index.batch,
                progress=progress,
                executor=executor,
                problems=problems,
            )
        index.tidy()
        total = len(index)
    copied, moved = len(renamed & todo.copies), len(renamed - todo.copies)
    return SyncReport(
        photos=len(photos),
        made=report.made + copied,
        kept=todo.kept + moved,
        bad=report.bad,
        news=report.news,
        copied=copied,
        moved=moved,
        gone=len(todo.gone - {source for _, source in todo.known}),
        total=total,
        engine=index.kind,
    )


def make_rows(embed: EmbedPhotos, root: str, photos: Sequence[Photo]) -> list[Row]:
    """The rows of photos that were read, in their order; the sink knows their marks."""
    rows = []
    for photo, embedding in zip(photos, embed(photos), strict=True):
        row = Row(photo.id, root, GONE, content_hash(photo.path), embedding.size, embedding.vector)
        if (caption := embedding.caption) is not None:
            sure = (concept.name for concept in caption.concepts if concept.score >= LEAST_CONCEPT_SCORE)
            row = replace(row, caption=caption.text, concepts=tuple(dict.fromkeys(sure)))
        rows.append(row)
    return rows


class IndexSink:
    """Rows to an engine that has none of these photos, a batch at a time.

    `marks` are those of the photos when they were listed. The content of one that has changed since is not written
    down: the next run looks at it again.
    """

    def __init__(self, engine: Engine, marks: Mapping[str, Mark]) -> None:
        self._engine, self._marks, self._there = engine, marks, set[str]()
        self._waiting: list[Row] = []
        self._flushes = 0

    def __contains__(self, id: object) -> bool:
        return id in self._there

    def add(self, result: Row) -> None:
        mark = self._marks[result.path]
        content = result.content if mark_of(Path(result.path)) == mark else ""
        self._waiting.append(replace(result, mark=mark, content=content))
        self._there.add(result.path)

    def drop(self, ids: Iterable[str]) -> None:
        there = self._there.intersection(ids)
        self._waiting = [row for row in self._waiting if row.path not in there]
        self._engine.write((), there)
        self._there -= there

    def flush(self) -> None:
        """Write the rows that were added; now and then see that searching stays fast meanwhile."""
        self._engine.write(self._waiting)
        self._waiting, self._flushes = [], self._flushes + 1
        if self._flushes % TIDY == 0:
            self._engine.tidy()


def _write_known(index: Engine, root: str, todo: _Plan) -> set[str]:
    """Write rows of known bytes under the names they have now; return which."""
    written = set[str]()
    for start in range(0, len(todo.known), ROWS_AT_ONCE):
        some = todo.known[start : start + ROWS_AT_ONCE]
        rows = {row.path: row for row in index.rows({source for _, source in some})}
        new: list[Row] = []
        for photo, source in some:
            if source in rows:
                new.append(replace(rows[source], path=photo.id, root=root, mark=photo.mark))
            else:  # overwritten by one before: names swapped
                todo.embed.append(photo)
        index.write(new, {row.path for row in new} | (todo.gone & rows.keys()))
        written |= {row.path for row in new}
    return written


def _name(path: PathLike) -> str:
    return os.fspath(path) if is_address(path) else Path(path).as_posix()


def content_hash(path: PathLike) -> str:
    """32 hex digits of the bytes of a file, the same for a copy or a renamed file; "" where it cannot be read."""
    try:
        if Path(path).is_fifo():  # it would be waited for
            return ""
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError:  # gone since it was read, or no file of its own: reading it again would cost too much
        return ""


@contextlib.contextmanager
def hold_store(store: PathLike) -> Iterator[Path]:
    """Hold the store as its only writer; the folder is that of its ledger, which is on this machine in any case."""
    folder = cache_dir() / "indexes" / fingerprint(os.fspath(store)) if is_address(store) else Path(store)
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
