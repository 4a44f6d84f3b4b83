"""The index of up to some hundred thousand photos: one SQLite file, every vector compared.

A search multiplies all vectors with the query's at once. They are read at the first search of a process and stay in
memory; later searches read only what was added since. Every batch is one transaction, so that a reader sees whole
batches, and a kill loses at most the one being written.
"""

import contextlib
import sqlite3
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sightline.errors import DataError
from sightline.files import PathLike, existing_path
from sightline.scene import Array
from sightline.search.engine import Candidate, Row, RowState

FILE = "photos.sqlite"
PATIENCE = 60.0  # seconds that a reader or the writer waits for the other's transaction
K1, B = 1.2, 0.75  # of BM25
AT_ONCE = 500  # values in one query: older versions of SQLite take at most 999
TABLES = """
CREATE TABLE state (name TEXT PRIMARY KEY, value);
CREATE TABLE photos (id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, root TEXT NOT NULL,
    bytes INTEGER NOT NULL, changed INTEGER NOT NULL, content TEXT NOT NULL,
    width INTEGER NOT NULL, height INTEGER NOT NULL, caption TEXT, words INTEGER NOT NULL);
CREATE TABLE vectors (id INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE words (word TEXT, id INTEGER, count INTEGER NOT NULL, among INTEGER NOT NULL,
    PRIMARY KEY (word, id)) WITHOUT ROWID;
CREATE INDEX words_of ON words (id);
CREATE TABLE concepts (id INTEGER PRIMARY KEY, names TEXT NOT NULL);
INSERT INTO state VALUES ('layout', 1), ('maker', ''), ('version', 0);
"""
CONCEPTS = "CREATE TABLE IF NOT EXISTS concepts (id INTEGER PRIMARY KEY, names TEXT NOT NULL)"  # an index may lack it
BY_ID = ("photos", "vectors", "words", "concepts")


class ExactIndex:
    """The rows that one model made, in a folder, which is made by the first `write` or `clear`.

    `LanceIndex` does the same. Many may read while one writes; readers see whole batches.
    """

    kind, batch = "exact", 32  # rows that are best written together

    def __init__(self, folder: PathLike) -> None:
        self.path = Path(folder) / FILE
        self._matrix = _Matrix()
        self._turn = threading.Lock()

    @property
    def maker(self) -> str:
        """The fingerprint of the model that made the rows; "" while there are none."""
        if not self.path.exists():
            return ""
        with self._reading() as db:
            return str(_state(db, "maker"))

    def __len__(self) -> int:
        counts = self._select_all("SELECT count(*) FROM photos")
        return int(counts[0][0]) if counts else 0

    def states(self) -> dict[str, RowState]:
        rows = self._select_all("SELECT path, bytes, changed, content, caption IS NOT NULL FROM photos")
        return {path: RowState((size, time), content, bool(captioned)) for path, size, time, content, captioned in rows}

    def _select_all(self, query: str) -> list[Any]:
        """All rows of a query; none where there is no file yet."""
        if not self.path.exists():
            return []
        with self._reading() as db:
            return db.execute(query).fetchall()

    def rows(self, paths: Collection[str]) -> list[Row]:
        rows: list[Row] = []
        columns = "path, root, bytes, changed, content, width, height, caption, vector"
        with self._reading() as db:
            has_concepts = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'concepts'").fetchone()
            names, join = ("names", "LEFT JOIN concepts USING (id)") if has_concepts else ("NULL", "")
            query = f"SELECT {columns}, {names} FROM photos JOIN vectors USING (id) {join} WHERE path IN "
            for path, root, size, time, content, width, height, caption, blob, listed in _select_in(db, query, paths):
                vector, concepts = np.frombuffer(blob, np.float32), tuple(listed.split("\n")) if listed else ()
                rows.append(Row(path, root, (size, time), content, (width, height), vector, caption, concepts))
        return rows

    def write(self, add: Sequence[Row], drop: Collection[str] = ()) -> None:
        """Drop the photos of some paths, and add rows of paths that are then not there; return when that is safe."""
        if not add and not drop:
            return
        with self._writing() as db:
            ids = [id for (id,) in _select_in(db, "SELECT id FROM photos WHERE path IN ", drop)]
            for table in BY_ID:
                db.executemany(f"DELETE FROM {table} WHERE id = ?", ((id,) for id in ids))
            for row in add:
                _insert(db, row)

    def clear(self, maker: str) -> None:
        """Drop everything, for rows of another model."""
        with self._writing() as db:
            for table in BY_ID:
                db.execute(f"DELETE FROM {table}")
            db.execute("UPDATE state SET value = ? WHERE name = 'maker'", (maker,))

    def tidy(self) -> None:
        """Make searching fast after much was written: nothing has to be done here."""

    def find(self, vector: Array, words: Sequence[str], count: int, exact: bool | None = None) -> list[Candidate]:
        """The `count` photos nearest to a vector of length 1, and the `count` whose `keywords` are most of some words.

        A photo of both kinds is there once. `exact` compares every vector; False uses the approximate index.
        """
        if exact is False:
            fix = "leave out --ann, or index with `--engine lance`"
            raise DataError("this index has no approximate search", where=self.path.parent, fix=fix)
        with self._turn, self._reading() as db:
            self._matrix.refresh(db)
            if not len(self._matrix.ids):
                return []
            cosines = self._matrix.vectors @ vector.astype(np.float32)  # (n,)
            bm25 = self._matrix.bm25(db, words)
            chosen = np.union1d(_best(cosines, count), _best(bm25, count, least=1e-9))
            ids = self._matrix.ids[chosen].tolist()
            rows = _select_in(db, "SELECT id, path, caption FROM photos WHERE id IN ", ids)
            photos = {id: (path, caption) for id, path, caption in rows}
            scores = zip(ids, cosines[chosen].tolist(), bm25[chosen].tolist(), strict=True)
            return [Candidate(*photos[id], cosine, text_score) for id, cosine, text_score in scores]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        existing_path(self.path)
        with self._clear_errors(), contextlib.closing(self._open()) as db:
            db.execute("BEGIN")
            _refuse_foreign(db)
            yield db

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._clear_errors():
            if not self.path.exists():
                self._create()
        with self._clear_errors(), contextlib.closing(self._connect("rw")) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute(CONCEPTS)
            yield db
            db.execute("UPDATE state SET value = value + 1 WHERE name = 'version'")
            db.execute("COMMIT")

    def _create(self) -> None:
        """A file with empty tables: whole when others see it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(f".{FILE}.new")
        new.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(new)) as db:
            db.executescript(TABLES)
        new.replace(self.path)

    def _open(self) -> sqlite3.Connection:
        """A connection to read by: read-write, so that SQLite can clear what a killed writer left, else read-only."""
        db = self._connect("rw")
        try:
            db.execute("SELECT 1 FROM state")
        except sqlite3.OperationalError:
            db.close()
            db = self._connect("ro")
        return db

    def _connect(self, mode: str) -> sqlite3.Connection:
        name = f"{self.path.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(name, uri=True, timeout=PATIENCE, isolation_level=None)

    @contextlib.contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, LookupError, TypeError, ValueError) as error:  # the latter on rows that are nonsense
            fix = "check the disk; if the file is damaged, remove it and index again"
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                fix = "make room there and run the same command again; what is indexed is kept"
            raise DataError(f"the index cannot be used ({error or 'damaged'})", where=self.path, fix=fix) from error


class _Matrix:
    """All vectors, the shortest way to compare them; and what BM25 needs to know of all captions."""

    def __init__(self) -> None:
        self.version, self.ids, self.vectors = -1, np.zeros(0, np.int64), np.zeros((0, 0), np.float32)
        self._captions, self._mean_words = 0, 1.0

    def refresh(self, db: sqlite3.Connection) -> None:
        """Read what has changed since the last time; ids are never used twice."""
        version = int(_state(db, "version"))
        if version == self.version:
            return
        ids = np.array([id for (id,) in db.execute("SELECT id FROM photos ORDER BY id")], np.int64)
        stay = np.isin(self.ids, ids)
        last = int(self.ids[-1]) if len(self.ids) else 0
        blobs = [blob for (blob,) in db.execute("SELECT vector FROM vectors WHERE id > ? ORDER BY id", (last,))]
        parts = [self.vectors if stay.all() else self.vectors[stay]] if stay.any() else []
        if blobs:
            parts.append(np.frombuffer(b"".join(blobs), np.float32).reshape(len(blobs), -1))
        self.vectors = np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)
        if len(self.vectors) != len(ids):
            raise sqlite3.DatabaseError(f"it has {len(ids):,} photos and {len(self.vectors):,} vectors")
        self.ids, self.version = ids, version
        captions, words = db.execute("SELECT count(*), avg(words) FROM photos WHERE caption IS NOT NULL").fetchone()
        self._captions, self._mean_words = captions, words or 1.0

    def bm25(self, db: sqlite3.Connection, words: Sequence[str]) -> Array:
        """(n,) of every caption: rare words weigh more (Robertson and Zaragoza 2009, idf as in Lucene)."""
        scores: Array = np.zeros(len(self.ids), np.float32)
        query = "SELECT id, count, among FROM words WHERE word = ?"
        for word in dict.fromkeys(words):
            table = np.array(db.execute(query, (word,)).fetchall(), np.int64).reshape(-1, 3)
            rows, counts, lengths = np.searchsorted(self.ids, table[:, 0]), table[:, 1], table[:, 2]
            idf = float(np.log1p((self._captions - len(table) + 0.5) / (len(table) + 0.5)))
            scores[rows] += idf * (counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths / self._mean_words)))
        return scores


def _best(scores: Array, count: int, least: float = -np.inf) -> Any:
    """Where the `count` greatest scores are, of those that reach `least`."""
    chosen = np.argpartition(-scores, count - 1)[:count] if len(scores) > count else np.arange(len(scores))
    return chosen[scores[chosen] >= least]


def _insert(db: sqlite3.Connection, row: Row) -> None:
    counts = Counter(row.keywords())
    values = (None, row.path, row.root, *row.mark, row.content, *row.size, row.caption, counts.total())
    id = db.execute("INSERT INTO photos VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values).lastrowid
    db.execute("INSERT INTO vectors VALUES (?, ?)", (id, np.ascontiguousarray(row.vector, np.float32).tobytes()))
    words = ((word, id, count, counts.total()) for word, count in counts.items())
    db.executemany("INSERT INTO words VALUES (?, ?, ?, ?)", words)
    if row.concepts:
        db.execute("INSERT INTO concepts VALUES (?, ?)", (id, "\n".join(row.concepts)))


def _select_in(db: sqlite3.Connection, query: str, values: Collection[Any]) -> Iterator[Any]:
    """The rows of a query that ends in `IN`, for any number of values."""
    listed = list(values)
    for start in range(0, len(listed), AT_ONCE):
        some = listed[start : start + AT_ONCE]
        yield from db.execute(f"{query} ({','.join('?' * len(some))})", some)


def _state(db: sqlite3.Connection, name: str) -> Any:
    row = db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"it has no {name}")
    return row[0]


def _refuse_foreign(db: sqlite3.Connection) -> None:
    """Refuse a file with views, triggers or computed columns: reading a row would run them, perhaps without end."""
    ours = {" ".join(text.split()) for text in TABLES.split(";")}
    for (text,) in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"):
        if " ".join(str(text).split()) not in ours:
            raise sqlite3.DatabaseError("it holds something that Sightline did not write")
