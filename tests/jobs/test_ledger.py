"""The log of captions: what it holds, and what it makes of damage."""

from pathlib import Path

import pytest

from sightline.caption import PhotoCaption
from sightline.jobs.job_photos import id_of
from sightline.jobs.ledger import CaptionLog, FileLedger, FileRecord


def said(path, *words):
    return PhotoCaption(words, -1.0, (), str(path), (4, 3))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "hidden" / "captions.jsonl"


def test_captions_are_there_again_later_and_the_last_holds(path, tmp_path):
    photo = tmp_path / "ü\n.jpg"
    with CaptionLog(path, "made") as log:
        log.add(said(photo, "a", "dog"), "mark")
        log.add(said(photo, "a", "cat"))
        log.add(said("relative.jpg", "two", "cats"))
        assert log[str(photo)]["caption"] == "a cat"
    with CaptionLog(path, "made") as log:
        assert list(log) == [str(photo), str(Path.cwd() / "relative.jpg")]
        assert log[str(photo)]["caption"] == "a cat"
        assert log[id_of("relative.jpg")] == said("relative.jpg", "two", "cats").to_json()
        assert (log.mark(str(photo)), len(log)) == ("", 2)


def test_dropped_captions_are_gone_and_their_names_stay_theirs(path, tmp_path):
    one, other = tmp_path / "a" / "x.jpg", tmp_path / "b" / "x.png"
    with CaptionLog(path, "made") as log:
        log.add(said(one, "a"))
        log.add(said(other, "b"))
        log.drop([str(one), "nobody"])
    with CaptionLog(path, "made") as log:
        assert list(log) == [str(other)]
        log.add(said(one, "c"))
        assert (log.name(str(one)), log.name(str(other))) == ("x", "x-2")


def test_captions_of_another_making_are_forgotten(path, tmp_path):
    with CaptionLog(path, "made") as log:
        log.add(said(tmp_path / "x.jpg", "a"))
    with CaptionLog(path, "otherwise") as log:
        assert (len(log), log.forgot) == (0, 1)
    with CaptionLog(path, "otherwise") as log:
        assert (len(log), log.forgot) == (0, 0)


def test_cut_and_damaged_lines_count_for_nothing(path, tmp_path):
    with CaptionLog(path, "made") as log:
        for name in "abc":
            log.add(said(tmp_path / f"{name}.jpg", name))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"b"', b'"x"'), lines[3][:-9]]))
    with CaptionLog(path, "made") as log:
        assert list(log) == [str(tmp_path / "a.jpg")]
        log.add(said(tmp_path / "c.jpg", "c"))
    with CaptionLog(path, "made") as log:
        assert [log[id]["caption"] for id in log] == ["a", "c"]


def test_a_file_is_sightlines_own_from_its_record_on_until_it_is_not_there(path, tmp_path):
    (tmp_path / "mine.jpg").touch()
    (tmp_path / "old.csv").touch()
    with FileLedger(path, tmp_path) as own:
        assert not own.has_lines
    with FileLedger(path, tmp_path) as own:  # nothing was adopted before a kill
        assert not own.has_lines
        own.adopt({"old.csv": FileRecord()})
    with FileLedger(path, tmp_path) as own:
        assert own.has_lines
        assert not own.is_foreign("old.csv")
    (tmp_path / "old.csv").unlink()
    with FileLedger(path, tmp_path) as own:
        own.record("drawn.jpg", "photo.jpg", "mark")
        own.record("captions.csv")
        assert [own.is_foreign(name) for name in ("mine.jpg", "drawn.jpg", "no.jpg")] == [True, False, False]
    (tmp_path / "drawn.jpg").touch()
    with FileLedger(path, tmp_path) as own:
        assert list(own) == ["drawn.jpg"]
        assert own["drawn.jpg"] == FileRecord("photo.jpg", "mark")
    with FileLedger(path, tmp_path) as own:
        (tmp_path / "captions.csv").touch()  # by somebody else
        assert own.is_foreign("captions.csv")
