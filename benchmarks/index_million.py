"""An index of a million photos in LanceDB: how long it takes to build, how big it is, how fast and how right it finds.

    python benchmarks/index_million.py [--vectors 1000000] [--queries 200] [--folder DIR] [--json]

Vectors are of 256 numbers and length 1, drawn around 1,000 centres with a fixed seed; two of one centre have a cosine
of about one half. Queries are drawn alike and are not in the index. They go through the same engine as those of
`sightline search --vectors-only --ann`, one after the other, in one process that has opened the index before; right is
what comparing every vector gives. Then the same queries again and again, while a thread adds 256 photos a second as
`sightline index` would; each batch is looked for as soon as it is written.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from sightline.scene import Array
from sightline.search import lance
from sightline.search.engine import Row
from sightline.search.lance import LanceIndex
from sightline.search.sync import TIDY

WIDTH, CENTRES, SEED, HITS = 256, 1000, 20, 10
PIECE = 20_000  # rows that are written at once while the index is built
ROUNDS = 10  # times that all queries are asked while photos are added
PAUSE = 1.0  # seconds between batches that are added while queries run


class Source:
    """Vectors around centres, the same at every run."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(SEED)
        self._centres = self._rng.standard_normal((CENTRES, WIDTH), dtype=np.float32)

    def draw(self, count: int) -> Array:
        """(count, WIDTH) vectors of length 1."""
        found: Array = np.empty((count, WIDTH), np.float32)
        for start in range(0, count, PIECE):
            piece = found[start : start + PIECE]
            piece[:] = self._centres[self._rng.integers(0, CENTRES, len(piece))]
            piece += self._rng.standard_normal(piece.shape, dtype=np.float32)
            piece /= np.linalg.norm(piece, axis=1, keepdims=True)
        return found


def rows(vectors: Array, first: int) -> list[Row]:
    return [
        Row(f"/photos/{n:08}.jpg", "/photos", (1_000_000, n), f"{n:032x}", (640, 480), vector)
        for n, vector in enumerate(vectors, first)
    ]


def number(path: str) -> int:
    return int(Path(path).stem)


def right(vectors: Array, queries: Array) -> list[list[int]]:
    """The nearest of every query, by comparing all."""
    scores = np.concatenate([vectors[start : start + PIECE] @ queries.T for start in range(0, len(vectors), PIECE)])
    nearest = np.argpartition(-scores, HITS, axis=0)[:HITS]
    order = np.argsort(-np.take_along_axis(scores, nearest, 0), axis=0)
    sorted_: list[list[int]] = np.take_along_axis(nearest, order, 0).T.tolist()
    return sorted_


def build(folder: Path, vectors: Array) -> dict[str, float]:
    index, began = LanceIndex(folder), time.perf_counter()
    index.clear("benchmark")
    for start in range(0, len(vectors), PIECE):
        index.write(rows(vectors[start : start + PIECE], start))
    written = time.perf_counter()
    index.tidy()
    tidied = time.perf_counter()
    return {
        "write_s": written - began,
        "tidy_s": tidied - written,
        "gigabytes": gigabytes(folder),
        "gigabytes_of_vectors": vectors.nbytes / 1e9,
    }


def gigabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e9


def measure(index: LanceIndex, queries: Array, truth: list[list[int]], known: int, exact: bool = False) -> Any:
    """Times and recall; photos that came after the first `known` take the places of the last right ones."""
    spent, found_right, places = [], 0, 0
    for query, nearest in zip(queries, truth, strict=True):
        began = time.perf_counter()
        found = index.find(query, [], HITS, exact)
        spent.append(time.perf_counter() - began)
        old = {number(one.path) for one in found} & set(range(known))
        found_right, places = found_right + len(old & set(nearest[: len(old)])), places + len(old)
    p50, p95 = np.quantile(spent, [0.5, 0.95]) * 1000
    return {"p50_ms": float(p50), "p95_ms": float(p95), "recall_at_10": found_right / places, "queries": len(queries)}


class Adding(threading.Thread):
    """Photos that come while others search; each batch has to be found at once."""

    def __init__(self, folder: Path, vectors: Array, first: int) -> None:
        super().__init__()
        self._index, self._vectors, self._first = LanceIndex(folder), vectors, first
        self.added, self.found, self.checked = 0, 0, 0
        self.stop = threading.Event()

    def run(self) -> None:
        """Add until told to stop."""
        size = self._index.batch
        while not self.stop.wait(PAUSE) and self.added + size <= len(self._vectors):
            batch = self._vectors[self.added : self.added + size]
            self._index.write(rows(batch, self._first + self.added))
            (best,) = self._index.find(batch[-1], [], 1)
            self.checked += 1
            self.added += size
            self.found += number(best.path) == self._first + self.added - 1
            if self.checked % TIDY == 0:
                self._index.tidy()


def run(folder: Path, count: int, queries: int) -> dict[str, Any]:
    source = Source()
    vectors, asked = source.draw(count), source.draw(queries)
    more = source.draw(min(count // 4, 50_000))
    truth = right(vectors, asked)
    told: dict[str, Any] = {"vectors": count, "width": WIDTH, "centres": CENTRES, "build": build(folder, vectors)}
    index = LanceIndex(folder)
    index.find(asked[0], [], HITS)  # a process opens the index once
    told["ann"] = measure(index, asked, truth, count)
    told["exact"] = measure(index, asked[:20], truth[:20], count, exact=True)
    adding = Adding(folder, more, count)
    adding.start()
    try:
        told["ann while adding"] = measure(index, np.tile(asked, (ROUNDS, 1)), truth * ROUNDS, count)
    finally:
        adding.stop.set()
        adding.join()
    told["added"] = {"photos": adding.added, "batches": adding.checked, "found_at_once": adding.found}
    began = time.perf_counter()
    LanceIndex(folder).tidy()
    told["tidy_after_s"] = time.perf_counter() - began
    told["ann after"] = measure(index, asked, truth, count)
    warnings.simplefilter("ignore")  # of LanceDB: no reader may be there
    lance.STAY = timedelta(0)  # old versions, which stay for readers for a while, are no part of the size
    LanceIndex(folder).tidy()
    told["gigabytes_at_last"] = gigabytes(folder)
    return told


def show(told: dict[str, Any]) -> None:
    built, added = told["build"], told["added"]
    print(f"{told['vectors']:,} vectors of {told['width']} numbers around {told['centres']:,} centres")
    print(f"built in {built['write_s'] + built['tidy_s']:.0f} s ({built['write_s']:.0f} s of it written)", end="")
    print(f", {built['gigabytes']:.2f} GB on disk ({built['gigabytes_of_vectors']:.2f} GB are the vectors)")
    for name in ("ann", "exact", "ann while adding", "ann after"):
        t = told[name]
        times = f"p50 {t['p50_ms']:7.1f} ms   p95 {t['p95_ms']:7.1f} ms"
        print(f"{name:18}{times}   recall@10 {t['recall_at_10']:.3f}   {t['queries']} queries")
    print(
        f"{added['photos']:,} photos added meanwhile, {added['found_at_once']} of {added['batches']} batches found",
        end="",
    )
    print(f" at once; tidied in {told['tidy_after_s']:.0f} s")
    print(f"{told['gigabytes_at_last']:.2f} GB on disk once old versions are gone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="where to work (default: the system's temporary folder)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sightline-", dir=options.folder))
    try:
        told = run(folder, options.vectors, options.queries)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(told, indent=2)) if options.json else show(told)


if __name__ == "__main__":
    main()
