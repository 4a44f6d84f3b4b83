"""Rows in, rows out, the nearest found: the same of both engines, while others write."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest

from search_samples import row, unit_vectors
from sightline.errors import DataError, MissingExtraError
from sightline.search import lance
from sightline.search.engine import RowState, keywords
from sightline.search.exact import FILE, ExactIndex
from sightline.search.lance import LanceIndex

WEIRD = ["it's.jpg", 'say "hi" %_;--.jpg', "zwei\nZeilen.jpg", "größe 😀.jpg", "a\\b.jpg", " .jpg"]
NEEDS_LANCE = pytest.mark.skipif(not lance.is_installed(), reason="LanceDB is not installed")


@pytest.fixture(params=["exact", pytest.param("lance", marks=NEEDS_LANCE)])
def engine(request, tmp_path):
    made = ExactIndex(tmp_path / "store") if request.param == "exact" else LanceIndex(tmp_path / "store")
    made.clear("me")
    return made


def again(engine):
    """The same index, opened by somebody else."""
    return type(engine)(engine.path.parent if engine.kind == "exact" else engine.place)


def test_what_is_written_is_read_whole(engine):
    rows = [row("a.jpg", [1, 2, 3, 4], "a dog"), row("b.jpg", [4, 3, 2, 1], None, mark=(5, 2**60), size=(1, 2))]
    engine.write(rows)
    found = {one.path: one for one in again(engine).rows(["/photos/a.jpg", "/photos/b.jpg", "/photos/none.jpg"])}
    assert len(found) == 2
    for one in rows:
        other = found[one.path]
        np.testing.assert_array_equal(other.vector, one.vector)
        for name in ("root", "mark", "content", "size", "caption"):
            assert getattr(other, name) == getattr(one, name)
    assert again(engine).maker == "me"
    assert again(engine).states() == {
        "/photos/a.jpg": RowState((100, 7), "c-a.jpg", True),
        "/photos/b.jpg": RowState((5, 2**60), "c-b.jpg", False),
    }


def test_concepts_are_kept_and_found_beside_the_caption(engine):
    engine.write(
        [
            row("a.jpg", [1, 0, 0, 0], "a tall building", concepts=("lighthouse", "wild cat")),
            row("b.jpg", [0, 1, 0, 0], "a cat", concepts=("cat",)),
            row("c.jpg", [0, 0, 1, 0], "a dog"),
        ]
    )
    kept = {one.path: one.concepts for one in again(engine).rows([f"/photos/{name}.jpg" for name in "abc"])}
    assert kept == {"/photos/a.jpg": ("lighthouse", "wild cat"), "/photos/b.jpg": ("cat",), "/photos/c.jpg": ()}
    vector = np.array([0, 0, 1, 0], np.float32)
    said = {one.path: one.bm25 for one in again(engine).find(vector, keywords("a lighthouse"), 3)}
    assert said["/photos/a.jpg"] > 0 == said["/photos/b.jpg"] == said["/photos/c.jpg"]
    cats = {one.path: one.bm25 for one in again(engine).find(vector, keywords("cats"), 3)}
    assert cats["/photos/a.jpg"] > 0 < cats["/photos/b.jpg"]
    engine.write([], ["/photos/a.jpg"])
    assert not [one for one in again(engine).find(vector, keywords("lighthouse"), 3) if one.bm25 > 0]


def test_an_index_from_before_concepts_is_read_and_written_to(tmp_path):
    engine = ExactIndex(tmp_path)
    engine.clear("me")
    engine.write([row("a.jpg", [1, 0], "a dog")])
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("DROP TABLE concepts")
    (old,) = again(engine).rows(["/photos/a.jpg"])
    assert (old.caption, old.concepts) == ("a dog", ())
    assert [one.path for one in again(engine).find(np.array([1, 0], np.float32), ["dog"], 3)] == ["/photos/a.jpg"]
    again(engine).write([row("b.jpg", [0, 1], None, concepts=("lighthouse",))])
    kept = {one.path: one.concepts for one in again(engine).rows(["/photos/a.jpg", "/photos/b.jpg"])}
    assert kept == {"/photos/a.jpg": (), "/photos/b.jpg": ("lighthouse",)}


@NEEDS_LANCE
def test_a_table_from_before_concepts_is_read_and_written_to(tmp_path, monkeypatch):
    kinds = lance._schema

    def before(width, maker):
        schema = kinds(width, maker)
        return schema.remove(schema.get_field_index("concepts")).with_metadata(schema.metadata)

    monkeypatch.setattr(lance, "_schema", before)
    engine = LanceIndex(tmp_path)
    engine.clear("me")
    engine.write([row("a.jpg", [1, 0], "a dog")])
    monkeypatch.undo()
    again(engine).write([row("b.jpg", [0, 1], "a tower", concepts=("lighthouse",))])
    rows = {one.path: (one.caption, one.concepts) for one in again(engine).rows(["/photos/a.jpg", "/photos/b.jpg"])}
    assert rows == {"/photos/a.jpg": ("a dog", ()), "/photos/b.jpg": ("a tower", ())}
    said = again(engine).find(np.array([1, 0], np.float32), ["lighthouse"], 3)
    assert [one.path for one in said if one.bm25 > 0] == ["/photos/b.jpg"]


def test_names_of_any_kind_are_kept_found_and_dropped(engine):
    engine.write([row(name, vector) for name, vector in zip(WEIRD, unit_vectors(len(WEIRD), 8, 0), strict=True)])
    paths = [f"/photos/{name}" for name in WEIRD]
    assert sorted(one.path for one in engine.rows(paths)) == sorted(paths)
    assert sorted(one.path for one in engine.find(np.ones(8) / 8**0.5, [], 10)) == sorted(paths)
    for left, path in enumerate(reversed(paths)):
        engine.write([], [path])
        assert len(engine) == len(paths) - left - 1


def test_the_nearest_are_those_of_a_plain_product(engine):
    vectors, queries = unit_vectors(300, 16, 1), unit_vectors(5, 16, 2)
    for start in range(0, 300, 100):
        engine.write([row(f"{i:03}.jpg", vectors[i]) for i in range(start, start + 100)])
    engine.tidy()
    for query in queries:
        products = vectors @ query
        found = sorted(engine.find(query, [], 7), key=lambda one: -one.cosine)
        assert [one.path for one in found] == [f"/photos/{i:03}.jpg" for i in np.argsort(-products)[:7]]
        np.testing.assert_allclose([one.cosine for one in found], np.sort(products)[::-1][:7], atol=1e-5)


def test_a_row_that_is_replaced_is_found_where_it_is_now(engine):
    engine.write([row("a.jpg", [1, 0], "a cat"), row("b.jpg", [0, 1], "a dog")])
    assert engine.find(np.array([1.0, 0.0]), [], 1)[0].path == "/photos/a.jpg"
    engine.write([row("a.jpg", [-1, 0], "a horse")], ["/photos/a.jpg", "/photos/nothing.jpg"])
    assert len(engine) == 2
    best = max(engine.find(np.array([-1.0, 0.0]), [], 2), key=lambda one: one.cosine)
    assert (best.path, best.caption) == ("/photos/a.jpg", "a horse")
    assert best.cosine == pytest.approx(1)


def test_captions_are_found_by_their_words_far_from_the_vector(engine):
    vectors = unit_vectors(60, 8, 3)
    said = ["a man on a horse" if i == 41 else "two dogs run" if i % 2 else None for i in range(60)]
    engine.write([row(f"{i}.jpg", vectors[i], said[i]) for i in range(60)])
    engine.tidy()
    far = -vectors[41]
    found = {one.path: one for one in engine.find(far, keywords("the men's horses"), 3)}
    hit = found["/photos/41.jpg"]
    assert hit.bm25 > 0
    assert hit.cosine == pytest.approx(-1, abs=1e-5)
    assert hit.bm25 == max(one.bm25 for one in found.values())
    assert 3 <= len(found) <= 6
    assert all(one.bm25 == 0 for one in engine.find(far, keywords("zebra"), 3))
    dogs = [one for one in engine.find(far, keywords("a running dog"), 4) if one.bm25 > 0]
    assert len(dogs) >= 4
    assert {one.caption for one in dogs} == {"two dogs run"}


def test_the_nearest_get_the_score_of_their_captions_also_where_others_say_more(engine):
    engine.write([row(f"{i}.jpg", [1, i + 1], "a dog, a dog and a dog") for i in range(9)])
    engine.write([row("here.jpg", [1, 0], "a dog"), row("silent.jpg", [1, 0.1])])
    engine.tidy()
    found = {one.path: one.bm25 for one in engine.find(np.array([1.0, 0.0]), ["dog"], 2)}
    assert found["/photos/here.jpg"] > 0
    assert found["/photos/silent.jpg"] == 0
    assert len(found) == 4


def test_new_captions_are_found_before_anything_is_tidied(engine):
    engine.write([row("a.jpg", [1, 0], "a cat")])
    engine.tidy()
    engine.write([row("b.jpg", [0, 1], "a zebra")])
    found = {one.path: one.bm25 for one in again(engine).find(np.array([1.0, 0.0]), ["zebra"], 1)}
    assert found["/photos/b.jpg"] > 0


def test_clear_begins_again_with_vectors_of_another_width(engine):
    reader = again(engine)
    engine.write([row("a.jpg", [1, 0, 0], "a cat")])
    engine.tidy()
    assert len(reader.find(np.array([1.0, 0.0, 0.0]), ["cat"], 5)) == 1
    engine.clear("you")
    assert len(engine) == len(reader) == 0
    engine.write([row("b.jpg", [1, 0], "a dog")])
    for index in (engine, reader, again(engine)):
        assert index.maker == "you"
        (found,) = index.find(np.array([1.0, 0.0]), ["dog"], 5)
        assert (found.path, found.bm25 > 0) == ("/photos/b.jpg", True)
        assert found.cosine == pytest.approx(1)


def test_an_empty_index_finds_nothing(tmp_path):
    empty = ExactIndex(tmp_path)
    empty.clear("me")
    assert empty.find(np.ones(4), ["dog"], 5) == []
    assert empty.states() == {}


def test_a_reader_sees_whole_batches_while_a_writer_adds(engine):
    """Batches are of ten photos of one direction each; a reader in another thread never sees a part of one."""
    stop, problems, counts = threading.Event(), list[str](), list[int]()
    engine.write([row(f"first-{i}.jpg", [1, 0, 0]) for i in range(10)])

    def read():
        reader = again(engine)
        while not stop.is_set():
            found = reader.find(np.array([1.0, 0.0, 0.0]), [], 1000)
            counts.append(len(found))
            if len(found) % 10:
                problems.append(f"{len(found)} photos")

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for number in range(12):
            engine.write([row(f"{number}-{i}.jpg", [1, number, 0]) for i in range(10)])
    finally:
        stop.set()
        thread.join()
    assert problems == []
    assert counts == sorted(counts)
    assert len(again(engine).find(np.array([1.0, 0.0, 0.0]), [], 1000)) == 130


def test_a_reader_that_stays_sees_what_is_dropped_and_added(engine):
    reader, axes = again(engine), np.eye(4, dtype=np.float32)
    engine.write([row(f"{i}.jpg", axes[i]) for i in range(3)])
    assert len(reader.find(axes[0], [], 9)) == 3
    engine.write([row("3.jpg", axes[3])], ["/photos/1.jpg"])
    near = {one.path: round(one.cosine, 3) for one in reader.find(axes[3], [], 9)}
    assert near == {"/photos/0.jpg": 0, "/photos/2.jpg": 0, "/photos/3.jpg": 1}


def killed_while_writing(folder: Path) -> None:
    index = ExactIndex(folder)
    with index._writing() as db:
        db.execute("PRAGMA cache_size = 1")  # so that unfinished pages are in the file already
        db.execute("DELETE FROM photos")
        db.executemany("INSERT INTO vectors VALUES (?, ?)", ((1000 + i, bytes(4096)) for i in range(500)))
        os._exit(9)


def test_killed_in_a_transaction_it_is_as_it_was_before(tmp_path):
    index = ExactIndex(tmp_path)
    index.write([row(f"{i}.jpg", [1, i]) for i in range(5)])
    child = multiprocessing.get_context("spawn").Process(target=killed_while_writing, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == 9
    assert (tmp_path / f"{FILE}-journal").exists()
    assert len(ExactIndex(tmp_path).find(np.array([1.0, 0.0]), [], 9)) == 5


def test_a_store_that_nobody_may_write_to_can_be_searched(tmp_path):
    index = ExactIndex(tmp_path / "store")
    index.write([row("a.jpg", [1, 0])])
    (tmp_path / "store" / FILE).chmod(0o444)
    (tmp_path / "store").chmod(0o555)
    try:
        assert len(ExactIndex(tmp_path / "store").find(np.array([1.0, 0.0]), [], 9)) == 1
    finally:
        (tmp_path / "store").chmod(0o755)


def test_a_damaged_file_is_told(tmp_path):
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    with pytest.raises(DataError, match="cannot be used"):
        ExactIndex(tmp_path).states()
    with pytest.raises(DataError, match="no such file"):
        ExactIndex(tmp_path / "nowhere").find(np.ones(2), [], 1)


def test_bm25_is_that_of_the_formula(tmp_path):
    index = ExactIndex(tmp_path)
    said = ["a dog and a dog", "a dog on a big beach", "a cat", None]
    index.write([row(f"{i}.jpg", [1, i], text) for i, text in enumerate(said)])
    found = {one.path: one.bm25 for one in index.find(np.array([1.0, 0.0]), ["dog", "beach", "dog"], 9)}
    idf = {word: np.log(1 + (3 - n + 0.5) / (n + 0.5)) for word, n in (("dog", 2), ("beach", 1))}
    length = {0: 2, 1: 3, 2: 1}

    def weight(count, i):
        return count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length[i] / 2))

    assert found["/photos/0.jpg"] == pytest.approx(idf["dog"] * weight(2, 0))
    assert found["/photos/1.jpg"] == pytest.approx(idf["dog"] * weight(1, 1) + idf["beach"] * weight(1, 1))
    assert found["/photos/2.jpg"] == found["/photos/3.jpg"] == 0


@NEEDS_LANCE
def test_the_approximate_index_finds_nearly_all_and_also_what_came_after_it(tmp_path, monkeypatch):
    centres = unit_vectors(50, 32, 4)
    spread = unit_vectors(3000, 32, 5)
    vectors = centres[np.arange(3000) % 50] + 0.7 * spread
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    monkeypatch.setattr(lance, "ANN_FROM", 1000)
    index = LanceIndex(tmp_path)
    index.clear("me")
    index.write([row(f"{i}.jpg", vectors[i]) for i in range(2800)])
    index.tidy()
    index.write([row(f"{i}.jpg", vectors[i]) for i in range(2800, 3000)])
    plan = index._opened().search(vectors[0]).distance_type("l2").limit(3).explain_plan()
    assert "ANN" in plan
    names = [one.name for one in index._opened().list_indices() if one.columns == ["vector"]]
    assert names == ["cells_2800"]
    right = 0
    for i in (7, 77, 2900, 2999):
        true = {f"/photos/{j}.jpg" for j in np.argsort(-(vectors @ vectors[i]))[:10]}
        assert {one.path for one in index.find(vectors[i], [], 10, exact=True)} == true
        near = {one.path for one in index.find(vectors[i], [], 10, exact=False)}
        assert f"/photos/{i}.jpg" in near
        right += len(true & near)
    assert right >= 36


@NEEDS_LANCE
def test_cells_are_made_anew_once_there_are_four_times_as_many_rows(tmp_path, monkeypatch):
    vectors = unit_vectors(2000, 16, 6)
    monkeypatch.setattr(lance, "ANN_FROM", 400)
    index = LanceIndex(tmp_path)
    index.clear("me")
    made = []
    for start, end in ((0, 300), (300, 400), (400, 1500), (1500, 2000)):
        index.write([row(f"{i}.jpg", vectors[i]) for i in range(start, end)])
        index.tidy()
        made.append([one.name for one in index._opened().list_indices() if one.columns == ["vector"]])
    assert made == [[], ["cells_400"], ["cells_400"], ["cells_2000"]]
    assert index.find(vectors[7], [], 1)[0].cosine == pytest.approx(1, abs=1e-5)


@NEEDS_LANCE
def test_cells_stay_small_and_pieces_few_however_often_rows_join(tmp_path, monkeypatch):
    monkeypatch.setattr(lance, "PIECES", 3)
    vectors = unit_vectors(1900, 16, 7)
    monkeypatch.setattr(lance, "ANN_FROM", 1000)
    index = LanceIndex(tmp_path)
    index.clear("me")
    for start, end in ((0, 1000), *((at, at + 100) for at in range(1000, 1900, 100))):
        index.write([row(f"{i}.jpg", vectors[i]) for i in range(start, end)])
        index.tidy()
        (cells,) = [one for one in index._opened().list_indices() if one.columns == ["vector"]]
        assert index._opened().index_stats(cells.name).num_indices <= 4
        search = index._opened().search(vectors[0]).distance_type("l2").limit(5).nprobes(1)
        (compared,) = re.findall(r"index_comparisons=(\d+)", search.analyze_plan().partition("ANNIvfPartition")[0])
        assert int(compared) < end / 4
    assert cells.name != "cells_1000"


def test_exact_search_has_no_approximate_index(tmp_path):
    with pytest.raises(DataError, match="no approximate search"):
        ExactIndex(tmp_path).find(np.ones(2), [], 1, exact=False)


def test_without_lancedb_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "lancedb", None)
    assert not lance.is_installed()
    with pytest.raises(MissingExtraError, match=r"sightline\[search\]"):
        len(LanceIndex(tmp_path))


def test_a_photo_that_the_index_lost_is_told(tmp_path):
    index = ExactIndex(tmp_path)
    index.write([row("a.jpg", [1, 0])])
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("DELETE FROM photos")
    with pytest.raises(DataError, match="cannot be used"):
        ExactIndex(tmp_path).find(np.array([1.0, 0.0]), [], 9)


@NEEDS_LANCE
def test_a_damaged_table_is_told(tmp_path):
    index = LanceIndex(tmp_path)
    index.clear("me")
    index.write([row("a.jpg", [1, 0])])
    shutil.rmtree(tmp_path / "photos.lance" / "data")
    with pytest.raises(DataError, match="cannot be used"):
        LanceIndex(tmp_path).states()


def test_sqlite_knows_what_is_needed():
    assert sqlite3.sqlite_version_info >= (3, 8, 2)  # tables without rowid
