"""Which photo below a folder a name means."""

from pathlib import Path

import pytest

from caption_samples import write_photo
from sightline.data.image_list import match_photos
from sightline.data.photo_finder import PhotoFinder
from sightline.data.records import CaptionedPhoto
from sightline.errors import MissingRecordError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("cat.jpg", "sub/cat.jpg", "sub/dog.jpg", "sub/deep/dog.jpg", "sub/only.jpg", "000000030034.jpg"):
        write_photo(tmp_path / "hol" / name)
    return tmp_path / "hol"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cat.jpg", "cat.jpg"),
        ("./sub/cat.jpg", "./sub/cat.jpg"),
        ("hol/cat.jpg", "cat.jpg"),  # in this very folder, and not the one in `sub`
        ("/home/me/hol/cat.jpg", "cat.jpg"),
        ("hol/sub/cat.jpg", "sub/cat.jpg"),
        ("holiday/sub/cat.jpg", "sub/cat.jpg"),
        ("../hol/cat.jpg", "cat.jpg"),
        ("../hol/sub/dog.jpg", "sub/dog.jpg"),
        ("x/deep/dog.jpg", "sub/deep/dog.jpg"),
        ("only.jpg", "sub/only.jpg"),  # bare, and the only one
        ("holiday/only.jpg", None),  # of another folder
        ("holiday/000000030034.jpg", "000000030034.jpg"),  # which moved here
        ("holiday/bird.jpg", None),
        ("long name " * 100, None),
    ],
)
def test_the_longest_end_of_a_name_decides_and_a_bare_name_only_where_one_photo_fits(
    name: str, file: str | None, folder: Path
) -> None:
    assert PhotoFinder(folder).find(name) == file


@pytest.mark.parametrize("name", ["holiday/cat.jpg", "dog.jpg"])
def test_a_name_that_fits_several_photos_is_an_error_that_names_them(name: str, folder: Path) -> None:
    kind = Path(name).name
    with pytest.raises(
        MissingRecordError, match=f"may be any of .*{kind}, .*{kind} in .*hol.*give the name its folders"
    ):
        PhotoFinder(folder).find(name)


def test_an_absolute_name_inside_the_folder_is_told_from_there(folder: Path) -> None:
    assert PhotoFinder(folder).require(str(folder / "sub" / "cat.jpg")) == "sub/cat.jpg"


def test_links_to_photos_and_folders_are_followed(folder: Path) -> None:
    write_photo(folder.parent / "else" / "rocket.jpg")
    (folder / "more").symlink_to(folder.parent / "else")
    (folder / "link.jpg").symlink_to(folder.parent / "else" / "rocket.jpg")
    finder = PhotoFinder(folder)
    assert {"more/rocket.jpg", "link.jpg"} <= set(finder.files)
    assert finder.find("x/more/rocket.jpg") == "more/rocket.jpg"
    assert finder.find("hol/link.jpg") == "link.jpg"


def test_photos_of_two_files_match_by_as_many_folders_as_both_name() -> None:
    """`score` and features: neither file says where its names lead from."""
    here = [CaptionedPhoto(name) for name in ("hol/sub/cat.jpg", "hol/sub/cup.jpg", "hol/cat.jpg", "/x/y/dog.jpg")]
    there = [CaptionedPhoto(name) for name in ("cat.jpg", "sub/cat.jpg", "cup.jpg", "y/dog.jpg", "z/dog.jpg")]
    expected = {"hol/sub/cat.jpg": "sub/cat.jpg", "hol/sub/cup.jpg": "cup.jpg", "/x/y/dog.jpg": "y/dog.jpg"}
    assert match_photos(here, there) == expected
    names = [CaptionedPhoto("7", (), photo.id) for photo in here[:1]]
    assert match_photos(names, there) == {"7": "sub/cat.jpg"}
