"""An index follows its folder: new, changed, moved, copied and deleted photos, and no photo looked at twice."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from search_samples import NAMES, Eyes, bring, paint
from sightline.errors import ConfigError, DataError, MissingExtraError
from sightline.scene import Concept
from sightline.search import lance
from sightline.search import sync as syncing
from sightline.search.exact import FILE, ExactIndex
from sightline.search.query import engine_at

RED, GREEN, BLUE, DEEP_BLUE = (250, 9, 9), (9, 250, 9), (9, 9, 250), (3, 3, 200)
NEEDS_LANCE = pytest.mark.skipif(not lance.is_installed(), reason="LanceDB is not installed")


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, colour in zip(NAMES, (RED, GREEN, BLUE), strict=True):
        paint(tmp_path / "photos" / f"{name}.png", colour)
    return tmp_path / "photos"


@pytest.fixture(params=["exact", pytest.param("lance", marks=NEEDS_LANCE)])
def kind(request):
    return request.param


def held(at: Path) -> dict[str, str | None]:
    """Names of the photos of an index below the folder of their own, with their captions."""
    index = engine_at(at)
    return {Path(row.path).name: row.caption for row in index.rows(list(index.states()))}


def nearest(at: Path, axis: int) -> str:
    vector = np.zeros(3)
    vector[axis] = 1
    return Path(max(engine_at(at).find(vector, [], 9), key=lambda found: found.cosine).path).name


def test_a_folder_is_indexed_and_found_by_its_vectors(folder, tmp_path, kind):
    report, seen = bring(folder, tmp_path / "store", engine=kind)
    assert (report.photos, report.made, report.kept, report.total, report.engine) == (3, 3, 0, 3, kind)
    assert sorted(seen) == ["blue.png", "green.png", "red.png"]
    assert [nearest(tmp_path / "store", axis) for axis in range(3)] == ["red.png", "green.png", "blue.png"]
    (row,) = engine_at(tmp_path / "store").rows([f"{folder}/red.png"])
    assert (row.root, row.size, row.caption) == (str(folder), (8, 6), "a red wall")


def test_only_what_is_new_or_changed_is_looked_at(folder, tmp_path, kind):
    bring(folder, tmp_path / "store", engine=kind)
    report, seen = bring(folder, tmp_path / "store")
    assert (report.made, report.kept, seen) == (0, 3, [])
    paint(folder / "red.png", DEEP_BLUE)
    os.utime(folder / "red.png", ns=(1, 1))  # even back in time
    paint(folder / "deep" / "new.png", GREEN, (5, 5))
    report, seen = bring(folder, tmp_path / "store")
    assert (report.made, report.kept, sorted(seen)) == (2, 2, ["new.png", "red.png"])
    assert held(tmp_path / "store")["red.png"] == "a blue wall"


def test_moved_touched_and_copied_photos_are_not_looked_at_again(folder, tmp_path, kind):
    bring(folder, tmp_path / "store", engine=kind)
    (folder / "deep").mkdir()
    (folder / "red.png").rename(folder / "deep" / "crimson.png")
    os.utime(folder / "green.png", ns=(5, 5))
    (folder / "copy.png").write_bytes((folder / "blue.png").read_bytes())
    report, seen = bring(folder, tmp_path / "store")
    assert seen == []
    assert (report.photos, report.made, report.kept, report.gone, report.total) == (4, 1, 3, 0, 4)
    assert (report.copied, report.moved) == (1, 2)
    assert held(tmp_path / "store") == {
        "crimson.png": "a red wall",
        "green.png": "a green wall",
        "blue.png": "a blue wall",
        "copy.png": "a blue wall",
    }
    assert bring(folder, tmp_path / "store")[0].moved == 0


def test_of_a_photo_that_became_two_one_has_moved_and_one_is_a_copy(folder, tmp_path):
    bring(folder, tmp_path / "store")
    (folder / "one.png").write_bytes((folder / "red.png").read_bytes())
    (folder / "red.png").rename(folder / "two.png")
    report, seen = bring(folder, tmp_path / "store")
    assert (report.made, report.kept, report.copied, report.moved, report.gone, seen) == (1, 3, 1, 1, 0, [])
    assert held(tmp_path / "store")["one.png"] == held(tmp_path / "store")["two.png"] == "a red wall"


def test_a_photo_whose_old_name_another_photo_took_has_moved(folder, tmp_path):
    bring(folder, tmp_path / "store")
    (folder / "red.png").rename(folder / "crimson.png")
    paint(folder / "red.png", DEEP_BLUE, (7, 7))
    report, seen = bring(folder, tmp_path / "store")
    assert (report.made, report.copied, report.moved, seen) == (1, 0, 1, ["red.png"])


def test_a_touched_photo_that_has_a_copy_is_not_new(folder, tmp_path):
    (folder / "copy.png").write_bytes((folder / "blue.png").read_bytes())
    bring(folder, tmp_path / "store")
    for name in ("blue.png", "copy.png"):
        os.utime(folder / name, ns=(5, 5))
    report, seen = bring(folder, tmp_path / "store")
    assert (report.made, report.kept, report.copied, report.moved, seen) == (0, 4, 0, 2, [])


def test_photos_that_swap_their_names_swap_their_rows(folder, tmp_path):
    bring(folder, tmp_path / "store")
    (folder / "red.png").rename(folder / "x.png")
    (folder / "blue.png").rename(folder / "red.png")
    (folder / "x.png").rename(folder / "blue.png")
    os.utime(folder / "red.png", ns=(5, 5))
    os.utime(folder / "blue.png", ns=(6, 6))
    bring(folder, tmp_path / "store")
    assert held(tmp_path / "store")["red.png"] == "a blue wall"
    assert held(tmp_path / "store")["blue.png"] == "a red wall"


def test_a_folder_that_moved_as_a_whole_is_known(folder, tmp_path):
    bring(folder, tmp_path / "store")
    folder.rename(tmp_path / "elsewhere")
    report, seen = bring(tmp_path / "elsewhere", tmp_path / "store")
    assert (report.moved, report.total, seen) == (3, 3, [])


def test_deleted_photos_are_no_longer_found(folder, tmp_path, kind):
    bring(folder, tmp_path / "store", engine=kind)
    (folder / "green.png").unlink()
    report, _ = bring(folder, tmp_path / "store")
    assert (report.gone, report.total) == (1, 2)
    assert set(held(tmp_path / "store")) == {"red.png", "blue.png"}


def test_an_empty_folder_does_not_empty_the_index_by_accident(folder, tmp_path):
    bring(folder, tmp_path / "store")
    for photo in folder.iterdir():
        photo.unlink()
    with pytest.raises(DataError, match="the index has 3 of them"):
        bring(folder, tmp_path / "store")
    assert len(held(tmp_path / "store")) == 3
    assert bring(folder, tmp_path / "store", force=True)[0].total == 0


def test_a_folder_that_cannot_be_read_keeps_its_photos(folder, tmp_path, monkeypatch):
    paint(folder / "locked" / "a.png", RED, (9, 9))
    bring(folder, tmp_path / "store")
    scandir = os.scandir

    def refusing(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    report, _ = bring(folder, tmp_path / "store")
    assert (report.gone, report.total) == (0, 4)
    assert "cannot be read" in str(report.bad[0])


def test_several_folders_live_in_one_store_and_leave_each_other_alone(folder, tmp_path):
    paint(tmp_path / "photos-more" / "white.png", (200, 210, 200))
    bring(folder, tmp_path / "store")
    report, seen = bring(tmp_path / "photos-more", tmp_path / "store")
    assert (report.total, report.gone, seen) == (4, 0, ["white.png"])
    paint(folder / "deep" / "a.png", GREEN, (3, 3))
    bring(folder, tmp_path / "store")
    report, seen = bring(folder / "deep", tmp_path / "store")  # inside of what is indexed
    assert (report.kept, report.total, seen) == (1, 5, [])


def test_bad_files_stop_nothing_and_are_told_once(folder, tmp_path):
    (folder / "bad.png").write_text("<html>404</html>")
    report, _ = bring(folder, tmp_path / "store")
    assert (report.made, len(report.bad), len(report.news)) == (3, 1, 1)
    report, _ = bring(folder, tmp_path / "store")
    assert (report.kept, len(report.bad), len(report.news)) == (3, 1, 0)


def test_a_name_that_is_no_text_is_told_once(folder, tmp_path):
    shutil.copy(folder / "red.png", os.fsencode(folder) + b"/caf\xe9.png")
    for news in (1, 0):
        report, _ = bring(folder, tmp_path / "store")
        assert (report.total, len(report.bad), len(report.news)) == (3, 1, news)


def test_a_photo_that_goes_bad_is_no_longer_found(folder, tmp_path):
    bring(folder, tmp_path / "store")
    (folder / "red.png").write_text("no more")
    report, _ = bring(folder, tmp_path / "store")
    assert (len(report.bad), report.total) == (1, 2)


@pytest.mark.parametrize("name", ["zwei\nZeilen.png", 'it\'s 100% "so".png', "größe 😀.png"])
def test_weird_names_are_names(folder, tmp_path, kind, name):
    paint(folder / name, RED, (30, 30))
    bring(folder, tmp_path / "store", engine=kind)
    assert name in held(tmp_path / "store")
    (folder / name).unlink()
    assert bring(folder, tmp_path / "store")[0].gone == 1


def test_photos_indexed_without_captions_get_them_when_they_are_asked_for(folder, tmp_path):
    bring(folder, tmp_path / "store", captions=False)
    assert set(held(tmp_path / "store").values()) == {None}
    assert bring(folder, tmp_path / "store")[0].made == 3
    assert None not in held(tmp_path / "store").values()
    report, seen = bring(folder, tmp_path / "store", captions=False)
    assert (report.kept, seen) == (3, [])


def test_another_model_is_refused_and_force_begins_again(folder, tmp_path, kind):
    paint(tmp_path / "other" / "white.png", (200, 210, 200))
    bring(tmp_path / "other", tmp_path / "store", engine=kind)
    bring(folder, tmp_path / "store")
    with pytest.raises(ConfigError, match="another model"):
        bring(folder, tmp_path / "store", maker="you")
    assert bring(folder, tmp_path / "store", force=True)[0].total == 4
    report, seen = bring(folder, tmp_path / "store", maker="you", force=True)
    assert (report.made, report.total, len(seen)) == (3, 3, 3)
    assert engine_at(tmp_path / "store").maker == "you"


def test_a_photo_that_changes_while_it_is_looked_at_is_looked_at_again(folder, tmp_path):
    class Slow(Eyes):
        def __call__(self, photos):
            paint(folder / "red.png", DEEP_BLUE)
            os.utime(folder / "red.png", ns=(9, 9))
            return super().__call__(photos)

    bring(folder, tmp_path / "store", Slow())
    assert held(tmp_path / "store")["red.png"] == "a red wall"
    _, seen = bring(folder, tmp_path / "store")
    assert seen == ["red.png"]
    assert held(tmp_path / "store")["red.png"] == "a blue wall"


class Dying(Eyes):
    """Kills its process at the fourth batch."""

    def __call__(self, photos):
        if len(self.seen) >= 6:
            os._exit(9)
        return super().__call__(photos)


def index_and_die(folder: Path, at: Path, kind: str) -> None:
    ExactIndex.batch = lance.LanceIndex.batch = 2
    bring(folder, at, Dying(), engine=kind)


def test_killed_half_way_no_more_than_a_batch_is_done_again(tmp_path, kind):
    for number in range(12):
        paint(tmp_path / "photos" / f"{number:02}.png", (number * 20, 9, 9))
    spawn = multiprocessing.get_context("spawn")
    child = spawn.Process(target=index_and_die, args=(tmp_path / "photos", tmp_path / "store", kind))
    child.start()
    child.join()
    assert child.exitcode == 9
    assert len(held(tmp_path / "store")) == 6
    report, seen = bring(tmp_path / "photos", tmp_path / "store")
    assert (report.made, report.kept, report.total) == (6, 6, 12)
    assert seen == [f"{number:02}.png" for number in range(6, 12)]


def test_interrupted_it_keeps_what_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(ExactIndex, "batch", 2)

    class Interrupted(Eyes):
        def __call__(self, photos):
            if self.seen:
                raise KeyboardInterrupt
            return super().__call__(photos)

    for number in range(5):
        paint(tmp_path / "photos" / f"{number}.png", (number * 20, 9, 9))
    with pytest.raises(KeyboardInterrupt):
        bring(tmp_path / "photos", tmp_path / "store", Interrupted())
    assert len(held(tmp_path / "store")) == 2
    assert bring(tmp_path / "photos", tmp_path / "store")[0].made == 3


def test_two_writers_at_once_are_refused(folder, tmp_path):
    with syncing.hold_store(tmp_path / "store"), pytest.raises(DataError, match="another process is writing"):
        bring(folder, tmp_path / "store")


@NEEDS_LANCE
def test_an_index_that_grows_big_moves_to_lancedb_with_all_it_knows(folder, tmp_path, monkeypatch):
    assert bring(folder, tmp_path / "store")[0].engine == "exact"
    monkeypatch.setattr(syncing, "LANCE_FROM", 4)
    paint(folder / "new.png", GREEN, (5, 5))
    report, seen = bring(folder, tmp_path / "store")
    assert (report.engine, report.kept, seen) == ("lance", 3, ["new.png"])
    assert not (tmp_path / "store" / FILE).exists()
    assert nearest(tmp_path / "store", 2) == "blue.png"
    paint(tmp_path / "few" / "one.png", RED, (7, 7))
    monkeypatch.setattr(syncing, "LANCE_FROM", 100)
    bring(folder, tmp_path / "other")
    monkeypatch.setattr(syncing, "LANCE_FROM", 4)
    assert bring(tmp_path / "few", tmp_path / "other")[0].engine == "lance"  # by what it has of other folders
    with pytest.raises(ConfigError, match="one of LanceDB"):
        bring(folder, tmp_path / "store", engine="exact")


@NEEDS_LANCE
def test_an_index_moves_to_lancedb_when_that_is_asked_for(folder, tmp_path):
    bring(folder, tmp_path / "store")
    report, seen = bring(folder, tmp_path / "store", engine="lance")
    assert (report.engine, report.kept, seen) == ("lance", 3, [])


@NEEDS_LANCE
def test_a_move_that_was_killed_is_done_again_or_finished(folder, tmp_path):
    bring(folder, tmp_path / "store")
    (tmp_path / "store" / syncing.MOVING / "photos.lance").mkdir(parents=True)  # killed while rows were copied
    assert engine_at(tmp_path / "store").kind == "exact"
    old = (tmp_path / "store" / FILE).read_bytes()
    assert bring(folder, tmp_path / "store", engine="lance")[0].kept == 3
    (tmp_path / "store" / FILE).write_bytes(old)  # killed before the old file was removed
    report, seen = bring(folder, tmp_path / "store")
    assert (report.engine, report.kept, seen) == ("lance", 3, [])
    assert not (tmp_path / "store" / FILE).exists()


def test_without_lancedb_big_folders_stay_exact_and_asking_for_it_is_told(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(lance, "is_installed", lambda: False)
    monkeypatch.setattr(syncing, "LANCE_FROM", 1)
    assert bring(folder, tmp_path / "store")[0].engine == "exact"
    with pytest.raises(MissingExtraError, match=r"sightline\[search\]"):
        bring(folder, tmp_path / "store", engine="lance")


def test_a_folder_without_photos_makes_an_empty_index(tmp_path):
    (tmp_path / "photos").mkdir()
    report, _ = bring(tmp_path / "photos", tmp_path / "store")
    assert (report.photos, report.total) == (0, 0)
    assert len(ExactIndex(tmp_path / "store")) == 0


def test_a_place_that_cannot_be_written_is_told(folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        bring(folder, tmp_path / "file" / "store")


def test_a_photo_that_moves_keeps_its_concepts(tmp_path):
    class Naming(Eyes):
        def _look(self, photo):
            looked = super()._look(photo)
            seen = (Concept("lighthouse", 0.9), Concept("sea", 0.3))
            return replace(looked, caption=replace(looked.caption, concepts=seen))

    paint(tmp_path / "photos" / "a.png", (255, 0, 0))
    bring(tmp_path / "photos", tmp_path / "store", Naming())
    (tmp_path / "photos" / "a.png").rename(tmp_path / "photos" / "b.png")
    bring(tmp_path / "photos", tmp_path / "store", Naming())
    (kept,) = ExactIndex(tmp_path / "store").rows([(tmp_path / "photos" / "b.png").as_posix()])
    assert kept.concepts == ("lighthouse",)  # of the sea it was not sure
