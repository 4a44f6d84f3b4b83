"""One resumable map over photos: nothing lost, nothing twice, bad files told once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.errors import ConfigError, CountError, DataError
from sightline.jobs.job import run, run_locally
from sightline.jobs.job_photos import GONE, mark_of, photos_below
from sightline.jobs.ledger import Entry, Ledger, RecordLog
from sightline.photo import Photo
from sightline.scene import Scene
from sightline.vision.feature_store import FeatureStore

RUN = "import sys; sys.path.insert(0, '..'); import test_job as t; t.work_slowly(sys.argv[1], sys.argv[2])"


class Kept:
    """A sink in memory that knows what happened to it."""

    def __init__(self) -> None:
        self.results: dict[str, float] = {}
        self.events: list[str] = []

    def __contains__(self, id: object) -> bool:
        return id in self.results

    def add(self, result: tuple[str, float]) -> None:
        assert result[0] not in self.results
        self.results[result[0]] = result[1]
        self.events.append(f"add {result[0]}")

    def drop(self, ids) -> None:
        for id in ids:
            if self.results.pop(id, None) is not None:
                self.events.append(f"drop {id}")

    def flush(self) -> None:
        self.events.append("flush")


def brightness(photos: list[Photo]) -> list[tuple[str, float]]:
    return [(photo.id, float(photo.pixels.mean())) for photo in photos]


def paint(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (level,) * 3).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(5):
        paint(tmp_path / "photos" / f"{number}.png", 10 * number)
    paint(tmp_path / "photos" / "more" / "5.png", 50)
    return tmp_path / "photos"


def go(folder: Path, sink: Kept, work=brightness, **options):
    photos, _ = photos_below(folder)
    with Ledger(folder.parent / "ledger.jsonl") as ledger:
        return run(photos, work, sink, ledger, **{"size": 4, "batch": 2, **options})


def test_results_come_in_order_and_each_batch_is_flushed(folder):
    sink = Kept()
    report = go(folder, sink, batch=4)
    assert list(sink.results) == ["0.png", "1.png", "2.png", "3.png", "4.png", "more/5.png"]
    assert list(sink.results.values()) == [0, 10, 20, 30, 40, 50]
    assert [event for event in sink.events if event == "flush"] == ["flush"] * 2
    assert sink.events[4] == "flush"
    assert (report.photos, report.made, report.kept, report.bad) == (6, 6, 0, [])


def test_work_gets_pixels_sizes_and_no_more_than_a_batch(folder):
    sizes = []

    def look(photos):
        sizes.append(len(photos))
        assert all(photo.pixels.shape == (4, 4, 3) and photo.size == (8, 6) for photo in photos)
        assert all(photo.path == folder / photo.id for photo in photos)
        return brightness(photos)

    go(folder, Kept(), look, batch=4)
    assert sizes == [4, 2]


def test_a_second_run_does_only_what_is_new_or_changed(folder):
    sink = Kept()
    go(folder, sink)
    sink.events.clear()
    assert go(folder, sink).kept == 6
    assert sink.events == []
    paint(folder / "2.png", 99)
    os.utime(folder / "2.png", ns=(1, 1))  # even back in time
    paint(folder / "9.png", 90)
    report = go(folder, sink)
    assert (report.made, report.kept) == (2, 5)
    assert sink.results["2.png"] == 99
    assert [event for event in sink.events if event != "flush"] == ["drop 2.png", "add 2.png", "add 9.png"]


def test_what_the_sink_has_lost_is_done_again(folder):
    sink = Kept()
    go(folder, sink)
    sink.drop(["3.png"])
    assert go(folder, sink).made == 1
    assert sink.results["3.png"] == 30


def test_what_is_in_the_sink_and_not_in_the_ledger_is_done_again_once(folder):
    sink = Kept()
    (folder.parent / "ledger.jsonl").touch()  # a run was killed before it wrote its first batch down
    sink.add(("1.png", -1.0))
    assert go(folder, sink).made == 6
    assert sink.results["1.png"] == 10
    assert go(folder, sink).made == 0


def test_a_new_ledger_believes_the_sink(folder):
    sink = Kept()
    sink.add(("1.png", -1.0))
    assert go(folder, sink).made == 5
    assert sink.results["1.png"] == -1
    paint(folder / "1.png", 200)
    assert go(folder, sink).made == 1
    assert sink.results["1.png"] == 200


def test_bad_photos_stop_nothing_and_are_told_once_unless_they_change(folder):
    (folder / "1.png").write_text("<html>404</html>")
    (folder / "3.png").write_bytes(b"")
    sink = Kept()
    report = go(folder, sink)
    assert list(sink.results) == ["0.png", "2.png", "4.png", "more/5.png"]
    assert [Path(error.where).name for error in report.bad] == ["1.png", "3.png"]
    assert report.news == report.bad
    again = go(folder, sink)
    assert (again.made, again.kept, len(again.bad), again.news) == (0, 4, 2, [])
    (folder / "3.png").write_bytes(b"GIF")
    changed = go(folder, sink)
    assert [Path(error.where).name for error in changed.news] == ["3.png"]
    assert len(changed.bad) == 2


def test_a_bad_photo_that_has_become_readable_without_changing_is_done(folder, monkeypatch):
    sink = Kept()
    monkeypatch.setenv("SIGHTLINE_MAX_PIXELS", "4")
    assert len(go(folder, sink).news) == 6
    monkeypatch.delenv("SIGHTLINE_MAX_PIXELS")
    assert go(folder, sink).made == 6


def test_a_photo_that_goes_bad_loses_its_result(folder):
    sink = Kept()
    go(folder, sink)
    (folder / "0.png").write_text("no more")
    assert len(go(folder, sink).news) == 1
    assert "0.png" not in sink


def test_progress_wraps_the_photos_that_wait(folder):
    seen = []

    def bar(paths):
        assert len(paths) == 6
        for path in paths:
            seen.append(path.name)
            yield path

    (folder / "0.png").write_text("bad")
    report = go(folder, Kept(), progress=bar)
    assert seen == ["0.png", "1.png", "2.png", "3.png", "4.png", "5.png"]
    assert [Path(error.where).name for error in report.bad] == ["0.png"]


def test_work_that_fails_keeps_the_batches_before(folder):
    sink, calls = Kept(), []

    def fail_later(photos):
        calls.append(len(photos))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return brightness(photos)

    with pytest.raises(KeyboardInterrupt):
        go(folder, sink, fail_later)
    assert len(sink.results) == 4
    assert go(folder, sink).kept == 4
    assert len(sink.results) == 6


def test_on_a_cpu_batches_are_worked_on_at_once_and_come_in_order(folder):
    torch.set_num_threads(2)
    both, threads = Barrier(2, timeout=30), []

    def work(photos: list[Photo]) -> list[tuple[str, float]]:
        if photos[0].id != "0.png":  # the first batch is alone
            both.wait()
        threads.append(torch.get_num_threads())
        return brightness(photos)

    sink = Kept()
    try:
        report = go(folder, sink, work, batch=2, executor=partial(run_locally, device="cpu"))
        assert (report.made, torch.get_num_threads(), threads) == (6, 2, [2, 1, 1])
    finally:
        torch.set_num_threads(1)
    assert list(sink.results) == ["0.png", "1.png", "2.png", "3.png", "4.png", "more/5.png"]


def test_with_a_model_that_is_loaded_the_first_batch_is_not_alone(folder):
    torch.set_num_threads(2)
    both = Barrier(2, timeout=30)

    def work(photos: list[Photo]) -> list[tuple[str, float]]:
        both.wait()
        return brightness(photos)

    sink = Kept()
    try:
        go(folder, sink, work, batch=3, executor=partial(run_locally, device="cpu", loaded=True))
    finally:
        torch.set_num_threads(1)
    assert list(sink.results) == ["0.png", "1.png", "2.png", "3.png", "4.png", "more/5.png"]


def test_work_that_fails_beside_other_work_keeps_the_batches_before(folder):
    torch.set_num_threads(2)

    def work(photos: list[Photo]) -> list[tuple[str, float]]:
        if photos[0].id == "3.png":
            raise ZeroDivisionError
        return brightness(photos)

    sink = Kept()
    try:
        with pytest.raises(ZeroDivisionError):
            go(folder, sink, work, batch=1, executor=partial(run_locally, device="cpu"))
    finally:
        torch.set_num_threads(1)
    assert list(sink.results) == ["0.png", "1.png", "2.png"]


def test_mistakes_are_told(folder):
    with pytest.raises(ConfigError, match="`batch` is 0"):
        go(folder, Kept(), batch=0)
    with pytest.raises(CountError, match="1 results of 2 photos"):
        go(folder, Kept(), lambda photos: brightness(photos[:1]))
    with pytest.raises(DataError, match="this is a file"):
        photos_below(folder / "0.png")


def test_a_file_that_is_gone_has_a_mark_that_no_file_has(tmp_path):
    assert mark_of(tmp_path / "nothing") == GONE
    (tmp_path / "empty").touch()
    assert mark_of(tmp_path / "empty") != GONE


def test_a_ledger_keeps_the_last_word_on_each_photo(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        assert ledger.is_new
        ledger.record({"é 1.jpg": Entry((3, 10**18)), "2.jpg": Entry((4, 5), "is empty")})
        ledger.record({"2.jpg": Entry((6, 7))})
        ledger.record({})
        assert ledger.get("2.jpg") == Entry((6, 7))
    assert path.read_bytes().count(b"\n") == 2
    with Ledger(path) as ledger:
        assert not ledger.is_new
        assert ledger.get("é 1.jpg") == Entry((3, 10**18))
        assert ledger.get("2.jpg") == Entry((6, 7))
        assert ledger.get("3.jpg") is None


def test_files_on_disk_keep_their_form(tmp_path):
    ledger_line = b'1c3a102a [["a b.jpg",12,1700000000000000000,""],["\\u00e9.jpg",0,5,"is empty"]]\n'
    audits_line = b'7f8f8f3c ["a.jpg#0123",[{"caption":"A dog.","flagged":0}]]\n'
    entries = {"a b.jpg": Entry((12, 17 * 10**17)), "é.jpg": Entry((0, 5), "is empty")}
    audits = [{"caption": "A dog.", "flagged": 0}]
    with Ledger(tmp_path / "ledger.jsonl") as ledger, RecordLog(tmp_path / "audits.log") as log:
        ledger.record(entries)
        log.add(("a.jpg#0123", audits))
    assert (tmp_path / "ledger.jsonl").read_bytes() == ledger_line
    assert (tmp_path / "audits.log").read_bytes() == audits_line
    with Ledger(tmp_path / "ledger.jsonl") as ledger, RecordLog(tmp_path / "audits.log") as log:
        assert {id: ledger.get(id) for id in entries} == entries
        assert log.records["a.jpg#0123"] == audits


def test_a_torn_or_damaged_line_counts_for_nothing_and_harms_no_other(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        for id in "abc":
            ledger.record({id: Entry((1, 2))})
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = lines[1].replace(b"b", b"x")
    for cut in range(len(lines[2])):
        path.write_bytes(lines[0] + damaged + lines[2][:cut])
        with Ledger(path) as ledger:
            assert [ledger.get(id) is not None for id in "abxc"] == [True, False, False, False]
            ledger.record({"d": Entry((3, 4))})
        with Ledger(path) as ledger:
            assert ledger.get("d") == Entry((3, 4))
            assert ledger.get("a") == Entry((1, 2))


def a_scene(id: str, level: float) -> Scene:
    return Scene(id, vector=np.full(300, level, np.float16), fingerprint="maker")


def test_a_store_forgets_dropped_scenes_and_takes_others_for_them(tmp_path):
    with FeatureStore.writer(tmp_path / "store", fingerprint="maker") as writer:
        for id in "abc":
            writer.add(a_scene(id, 1))
        before = (tmp_path / "store" / "index.jsonl").stat().st_ino
        writer.drop(["z"])
        assert (tmp_path / "store" / "index.jsonl").stat().st_ino == before
        writer.drop(iter(["b", "z", "b"]))
        assert "b" not in writer
        assert len(writer) == 2
        assert FeatureStore(tmp_path / "store").ids() == ("a", "c")
        writer.add(a_scene("b", 2))
    store = FeatureStore(tmp_path / "store")
    assert store.ids() == ("a", "c", "b")
    assert store["b"].vector[0] == 2
    assert store.verify() == {}


def scenes_of(photos: list[Photo]) -> list[Scene]:
    return [a_scene(photo.id, float(photo.pixels.mean())) for photo in photos]


def work_slowly(folder: str, store: str) -> None:
    """Go on with a job, telling of each batch that is safe; runs in a child process."""
    photos, _ = photos_below(folder)

    def told(batch: list[Photo]) -> list[Scene]:
        if len(done):
            print(json.dumps(done), flush=True)
        done[:] = [photo.id for photo in batch]
        return scenes_of(batch)

    done: list[str] = []
    with FeatureStore.writer(store, fingerprint="maker") as writer, Ledger(Path(store) / "ledger.jsonl") as ledger:
        run(photos, told, writer, ledger, size=4, batch=3)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
@pytest.mark.parametrize("seed", range(2))
def test_a_job_killed_again_and_again_loses_at_most_a_batch_and_doubles_nothing(tmp_path, seed):
    chance, folder, store = random.Random(seed), tmp_path / "photos", tmp_path / "store"
    for number in range(60):
        paint(folder / f"{number:02}.png", number)
    safe = set[str]()
    for _ in range(4):
        command = [sys.executable, "-c", RUN, str(folder), str(store)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent) as child:
            for _ in range(chance.randint(1, 3)):
                if line := child.stdout.readline():
                    safe.update(json.loads(line))
            time.sleep(chance.random() * 0.01)
            child.kill()
        held = FeatureStore(store)
        assert safe <= set(held.ids())
        assert held.verify() == {}
        paint(folder / f"{chance.randrange(10):02}.png", 99)  # and photos change in between
    work_slowly(str(folder), str(store))
    found = FeatureStore(store)
    assert sorted(found.ids()) == [f"{number:02}.png" for number in range(60)]
    for photo in photos_below(folder)[0]:
        with Image.open(photo.path) as image:
            assert found[photo.id].vector[0] == image.getpixel((0, 0))[0]
