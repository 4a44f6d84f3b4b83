"""The index of a million photos and more: a LanceDB table in a folder or on object storage (extra `search`).

Vectors are searched by an approximate index once there are enough of them: k-means cells, in them a byte a dimension,
and the true distances of the best. Rows that are newer than it are compared one by one, and join it in `tidy`.
"""

import contextlib
import importlib.util
import os
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from sightline.errors import DataError, library
from sightline.files import PathLike
from sightline.scene import Array
from sightline.search.engine import Candidate, Row, RowState

TABLE = "photos"
AT_ONCE = 1000  # paths in one query
ANN_FROM = 20_000  # rows: below, comparing all is as fast
SAMPLED, ROUNDS = 32, 10  # of k-means: vectors for each cell, and how often they are assigned anew
PIECES = 20  # of the approximate index: each time that rows join it, they are a piece more, which is searched too
NPROBES, REFINED = 40, 50  # cells that are searched; candidates whose true distances are computed, at least
STAY = timedelta(minutes=5)  # of old versions, for readers that are slow
for _name in ("LANCEDB_LOG", "LANCE_LOG"):  # read when it is imported; its warnings are about its own affairs
    os.environ.setdefault(_name, "error")


def is_installed() -> bool:
    return importlib.util.find_spec("lancedb") is not None


class LanceIndex:
    """What `ExactIndex` is, in a folder or at an address such as s3://bucket/name; the first `write` makes it."""

    kind, batch = "lance", 256

    def __init__(self, place: PathLike) -> None:
        self.place = os.fspath(place)
        self._maker, self._new = "", False  # of a table that the next write will make
        self._table: Any = None
        self._turn = threading.Lock()

    @property
    def maker(self) -> str:
        table = self._opened()
        if table is None or not table.count_rows():
            return self._maker
        return str((table.schema.metadata or {})[b"maker"].decode())

    def __len__(self) -> int:
        table = self._opened()
        return 0 if table is None else int(table.count_rows())

    def states(self) -> dict[str, RowState]:
        table = self._opened()
        if table is None:
            return {}
        with self._clear_errors():
            columns = table.search().select(["path", "bytes", "changed", "content", "captioned"]).to_arrow().columns
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return {path: RowState((size, time), content, captioned) for path, size, time, content, captioned in rows}

    def rows(self, paths: Collection[str]) -> list[Row]:
        table, rows = self._opened(), list[Row]()
        for condition in _path_in(paths) if table is not None else ():
            with self._clear_errors():
                records = table.search().where(condition).limit(AT_ONCE).to_arrow().to_pylist()
            rows += map(_row, records)
        return rows

    def write(self, add: Sequence[Row], drop: Collection[str] = ()) -> None:
        """Drop some photos, then add others: each all or nothing."""
        with self._clear_errors():
            table = self._opened()
            for condition in _path_in(drop) if table is not None else ():
                table.delete(condition)
            if add and (table is None or self._new):
                table = self._create(len(add[0].vector))
            if add:
                import pyarrow as pa

                table.add(pa.Table.from_pylist([_columns(row) for row in add], schema=table.schema))

    def clear(self, maker: str) -> None:
        """Drop everything, for rows of another model: the next write makes the table anew, and readers follow."""
        with self._clear_errors():
            if (table := self._opened()) is not None:
                table.delete("true")
        self._maker, self._new = maker, True

    def tidy(self) -> None:
        """Join what was written in pieces, and let the indices know of new rows."""
        table = self._opened()
        if table is None:
            return
        with self._clear_errors():
            rows, cells = table.count_rows(), [i.name for i in table.list_indices() if i.columns == ["vector"]]
            made_for = max((int(name.rpartition("_")[2]) for name in cells), default=0)
            pieces = sum(table.index_stats(name).num_indices for name in cells)
            if rows >= max(ANN_FROM, 4 * made_for) or pieces > PIECES:
                _make_cells(table, rows)
                for name in cells:
                    table.drop_index(name)
            table.optimize(cleanup_older_than=STAY)

    def find(self, vector: Array, words: Sequence[str], count: int, exact: bool | None = None) -> list[Candidate]:
        table = self._opened()
        if table is None:
            raise DataError("there is no index", where=self.place, fix="make one with `sightline index`")
        query, candidates = vector.astype(np.float32), dict[str, Candidate]()
        with self._clear_errors():
            nearest = table.search(query).distance_type("l2").limit(count).select(["path", "caption", "_distance"])
            refined = max(2, -(-REFINED // count))
            nearest = nearest.bypass_vector_index() if exact else nearest.nprobes(NPROBES).refine_factor(refined)
            for row in nearest.to_list():
                candidates[row["path"]] = Candidate(row["path"], row["caption"], 1 - row["_distance"] / 2)
            for row in self._search_words(table, words, count, candidates):
                cosine = float(np.asarray(row["vector"], np.float32) @ query)
                candidates[row["path"]] = Candidate(row["path"], row["caption"], cosine, row["_score"])
        return list(candidates.values())

    def _search_words(
        self, table: Any, words: Sequence[str], count: int, near: Collection[str]
    ) -> list[dict[str, Any]]:
        """The photos whose captions say most of some words; and of those near that say any."""
        rows = list[dict[str, Any]]()
        for condition in (None, *_path_in(near)) if words else ():
            query = table.search(" ".join(words), query_type="fts", fts_columns="words").limit(count)
            if condition is not None:
                query = query.where(condition, prefilter=True)
            rows += query.select(["path", "caption", "vector", "_score"]).to_list()
        return rows

    def _opened(self) -> Any:
        with self._turn, self._clear_errors():
            if self._table is None:
                place = self._connection()
                if TABLE in place.list_tables().tables:
                    self._table = place.open_table(TABLE)
            return self._table

    def _create(self, width: int) -> Any:
        from lancedb.index import FTS, BTree

        table = self._connection().create_table(TABLE, schema=_schema(width, self._maker), mode="overwrite")
        table.create_index("path", config=BTree())
        as_they_are = FTS(base_tokenizer="whitespace", stem=False, remove_stop_words=False, ascii_folding=False)
        table.create_index("words", config=as_they_are)
        self._table, self._new = table, False
        return table

    def _connection(self) -> Any:
        lancedb = library("lancedb", "search", f"the index in {self.place}")
        options = storage_options(os.environ) if "://" in self.place else None
        return lancedb.connect(self.place, storage_options=options, read_consistency_interval=timedelta(0))

    @contextlib.contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Turn LanceDB's exceptions, of many kinds and with long texts, into a DataError of one sentence."""
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            reason = re.search("<Message>(.*?)</Message>", str(error))  # of S3, inside much else
            what = reason[1] if reason else str(error).partition("\n")[0][:300]
            fix = "check that the place is there and may be written, and that its keys are in the environment"
            raise DataError(f"the index cannot be used ({what})", where=self.place, fix=fix) from error


def _make_cells(table: Any, rows: int) -> None:
    """The approximate index, named by how many rows its cells are made for; optimizing lets it grow, but not learn."""
    from lancedb.index import IvfSq

    # Of unit vectors, the nearest are those of the greatest product; k-means is made for distances. Cells are asked for
    # by their size: where LanceDB was given their number, optimizing joins them to cells of its own, far bigger, size.
    size = max(1, round(rows**0.5 / 2))
    cells = IvfSq(distance_type="l2", target_partition_size=size, sample_rate=SAMPLED, max_iterations=ROUNDS)
    table.create_index("vector", config=cells, name=f"cells_{rows}")


def _schema(width: int, maker: str) -> Any:
    """The table's columns; which model made the rows is written beside them."""
    import pyarrow as pa

    numbers = {name: pa.int64() for name in ("bytes", "changed", "width", "height")}
    texts = {name: pa.string() for name in ("path", "root", "content", "caption", "words", "concepts")}
    kinds = {**texts, **numbers, "captioned": pa.bool_(), "vector": pa.list_(pa.float32(), width)}
    return pa.schema(kinds.items(), metadata={"maker": maker})


def storage_options(environment: Mapping[str, str]) -> dict[str, str]:
    """The options of object storage, from the AWS_… variables that other tools read too.

    >>> storage_options({"AWS_ENDPOINT_URL": "http://localhost:9000", "HOME": "/root"})
    {'aws_endpoint': 'http://localhost:9000', 'allow_http': 'true'}
    """
    options = {name.lower(): value for name, value in environment.items() if name.startswith("AWS_")}
    if endpoint := options.pop("aws_endpoint_url", ""):
        options["aws_endpoint"] = endpoint
    if options.get("aws_endpoint", "").startswith("http://"):
        options["allow_http"] = "true"
    return options


def _path_in(paths: Iterable[str]) -> Iterator[str]:
    quoted = ["'" + path.replace("'", "''") + "'" for path in paths]
    for start in range(0, len(quoted), AT_ONCE):
        yield f"path IN ({', '.join(quoted[start : start + AT_ONCE])})"


def _row(record: Mapping[str, Any]) -> Row:
    concepts = record.get("concepts")  # a table from before lacks it
    return Row(
        path=record["path"],
        root=record["root"],
        mark=(record["bytes"], record["changed"]),
        content=record["content"],
        size=(record["width"], record["height"]),
        vector=np.asarray(record["vector"], np.float32),
        caption=record["caption"],
        concepts=tuple(concepts.split("\n")) if concepts else (),
    )


def _columns(row: Row) -> dict[str, Any]:
    return {
        "path": row.path,
        "root": row.root,
        "bytes": row.mark[0],
        "changed": row.mark[1],
        "content": row.content,
        "width": row.size[0],
        "height": row.size[1],
        "vector": row.vector.astype(np.float32),
        "caption": row.caption,
        "captioned": row.caption is not None,
        "words": " ".join(row.keywords()),
        "concepts": "\n".join(row.concepts),
    }
