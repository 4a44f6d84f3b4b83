"""Names to photos: each once, in a stable order, and what cannot be found is told without stopping."""

import io
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.errors import DataError
from sightline.jobs.ledger import FileLedger
from sightline.vision.find_photos import SUFFIXES, find_photos, walk_folder

links = pytest.mark.skipif(not hasattr(os, "symlink") or os.name == "nt", reason="needs symbolic links")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of files that are called like photos, or not; what is in them does not matter here."""
    monkeypatch.chdir(tmp_path)
    for name in ("b.jpg", "a.PNG", "c/d.webp", "c/e/f.heic", "b/z.jpeg", "notes.txt", ".hidden.jpg", ".git/x.jpg"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return Path("photos")


ALL = ["photos/a.PNG", "photos/b/z.jpeg", "photos/b.jpg", "photos/c/d.webp", "photos/c/e/f.heic"]


def names(*sources):
    found = find_photos(sources)
    assert not found.problems
    return [path.as_posix() for path in found.photos]


def problems(*sources):
    return [str(error) for error in find_photos(sources).problems]


@pytest.fixture
def standard_input(monkeypatch):
    return lambda raw: monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))


def test_a_folder_is_walked_in_the_order_of_its_paths(folder):
    assert names(folder) == ALL
    assert walk_folder(folder).photos == sorted(map(Path, ALL))


@given(
    paths=st.sets(st.lists(st.sampled_from(["a", "b", "a.jpg", "ab", "A", "a-b"]), max_size=3).map(tuple), max_size=12)
)
def test_the_order_is_that_of_sorting_all_paths(tmp_path_factory, paths):
    top = tmp_path_factory.mktemp("tree")
    for parts in paths:
        path = top.joinpath(*(f"{part}.d" for part in parts), "x.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.with_name("a.png").touch()
    found = walk_folder(top).photos
    assert len(found) == 2 * len(paths)
    assert found == sorted(found)


@pytest.mark.parametrize(
    "suffix", [".avif", ".heic", ".heif", ".jfif", ".jpe", ".jpg", ".jpeg", ".tif", ".gif", ".bmp"]
)
def test_every_suffix_of_a_picture_is_known_in_any_case(tmp_path, suffix):
    (tmp_path / f"x{suffix.upper()}").touch()
    assert suffix in SUFFIXES
    assert len(walk_folder(tmp_path).photos) == 1


def test_a_file_that_is_named_is_taken_whatever_it_is_called(folder):
    assert names("photos/notes.txt", "photos/.hidden.jpg") == ["photos/notes.txt", "photos/.hidden.jpg"]


def test_a_hidden_folder_that_is_named_is_walked(folder):
    assert names("photos/.git") == ["photos/.git/x.jpg"]


def test_the_order_given_is_kept_and_everything_comes_once(folder):
    assert names(
        "photos/c", "photos/b.jpg", folder, "photos/../photos/b.jpg", folder.absolute(), "photos/c/d.webp"
    ) == [
        "photos/c/d.webp",
        "photos/c/e/f.heic",
        "photos/b.jpg",
        "photos/a.PNG",
        "photos/b/z.jpeg",
    ]


def test_patterns_find_files_and_folders(folder):
    assert names("photos/*.jpg") == ["photos/b.jpg"]
    assert names("photos/[bc]") == ["photos/b/z.jpeg", "photos/c/d.webp", "photos/c/e/f.heic"]
    assert names("photos/**/*.webp") == ["photos/c/d.webp"]
    assert names("photos/*") == ALL
    assert names(str(folder.absolute() / "?.jpg")) == [(folder.absolute() / "b.jpg").as_posix()]


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(folder):
    (folder / "[1].jpg").touch()
    assert names("photos/[1].jpg") == ["photos/[1].jpg"]


def test_a_list_names_files_and_folders_line_by_line(folder, standard_input):
    (folder / "ends with space .jpg").touch()
    standard_input(b"photos/b.jpg\r\n\nphotos/c\nphotos/ends with space .jpg")
    assert names("-") == [
        "photos/b.jpg",
        "photos/c/d.webp",
        "photos/c/e/f.heic",
        "photos/ends with space .jpg",
    ]


def test_a_list_may_be_separated_by_nul_bytes(folder, standard_input):
    (folder / "two\nlines.jpg").touch()
    standard_input(b"photos/two\nlines.jpg\0photos/b.jpg\0")
    assert names("-") == ["photos/two\nlines.jpg", "photos/b.jpg"]


def test_names_of_a_list_are_no_patterns(folder, standard_input):
    standard_input(b"photos/*.jpg\n")
    assert problems("-") == ["photos/*.jpg: no such file or folder. To fix: check the name; photos exists."]


def test_what_is_missing_is_told_and_the_rest_is_found(folder):
    found = find_photos(["photos/none.jpg", "photos/b.jpg", "*.none", "", "photos/b"])
    assert [path.as_posix() for path in found.photos] == ["photos/b.jpg", "photos/b/z.jpeg"]
    missing, nothing, empty = map(str, found.problems)
    assert missing.startswith("photos/none.jpg: no such file")
    assert nothing.startswith("*.none: nothing is called like this pattern")
    assert empty.startswith("a name is empty")


def test_a_name_that_the_system_refuses_is_told(folder):
    long = "a" * 5000
    found = find_photos([long, folder])
    assert len(found.photos) == len(ALL)
    assert [error.where for error in found.problems] == [long]


def test_one_folder_must_be_a_folder(folder):
    with pytest.raises(DataError, match="a folder was expected"):
        walk_folder("photos/b.jpg")
    with pytest.raises(DataError, match="no such"):
        walk_folder("photos/none")


def test_a_folder_called_minus_is_a_folder_where_a_folder_is_asked_for(folder):
    Path("-").mkdir()
    Path("-/x.jpg").touch()
    assert walk_folder("-").photos == [Path("-/x.jpg")]


@links
def test_pictures_that_captions_were_drawn_into_are_no_photos_where_sightline_wrote_them(folder):
    for place in ("c", "c/e"):
        (folder / place / "z é.captioned.jpg").touch()
    log = folder / "c" / ".sightline"
    log.mkdir()
    with FileLedger(log / "files.jsonl", folder / "c") as ledger:  # as `sightline caption --out` leaves it
        ledger.record("z é.captioned.jpg", "photos/z é.jpg")
    (folder / "c" / "mine.captioned.jpg").touch()
    assert names(folder / "c") == [
        "photos/c/d.webp", "photos/c/e/f.heic", "photos/c/e/z é.captioned.jpg", "photos/c/mine.captioned.jpg"
    ]  # fmt: skip
    assert names(folder / "c" / "z é.captioned.jpg") == ["photos/c/z é.captioned.jpg"]  # whoever names it means it


def test_links_to_folders_are_followed_and_circles_end(folder):
    elsewhere = Path("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "far.jpg").touch()
    (folder / "linked").symlink_to(elsewhere.absolute())
    (folder / "c" / "again").symlink_to(folder.absolute())
    (folder / "itself").symlink_to("itself")
    assert names(folder, "elsewhere") == [*ALL, "photos/linked/far.jpg"]


@links
def test_a_dead_link_called_like_a_photo_is_left_for_the_reader_to_tell(folder):
    (folder / "dead.jpg").symlink_to("nowhere.jpg")
    assert "photos/dead.jpg" in names(folder)


def test_a_folder_called_like_a_photo_is_walked(folder):
    (folder / "x.jpg").mkdir()
    (folder / "x.jpg" / "y.jpg").touch()
    assert "photos/x.jpg/y.jpg" in names(folder)


def test_a_folder_that_vanishes_or_is_closed_is_told(folder, monkeypatch):
    closed, scan = str(folder / "c"), os.scandir

    def refuse(path):  # permissions do not stop root, under which tests may run
        if str(path) == closed:
            raise PermissionError(13, "Permission denied", closed)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = walk_folder(folder)
    assert [path.as_posix() for path in found.photos] == ALL[:3]
    assert [str(error) for error in found.problems] == [
        "photos/c: this cannot be read (Permission denied). To fix: change its permissions, or leave it out."
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="names are text elsewhere")
def test_a_name_that_is_not_text_is_told_and_left_out(folder):
    with open(os.fsencode(folder) + b"/caf\xe9.jpg", "wb"):  # noqa: PTH123 - a name in Latin-1
        pass
    found = find_photos([folder])
    assert [path.as_posix() for path in found.photos] == ALL
    (problem,) = map(str, found.problems)
    assert "not UTF-8" in problem
    assert "rename" in problem
    problem.encode()  # can be printed
