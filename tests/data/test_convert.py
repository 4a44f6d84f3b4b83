"""Captions in whatever format they come, and where their photos are."""

from pathlib import Path

import pytest

from caption_samples import write_photo
from sightline.data.convert import any_captions
from sightline.errors import DataError, MissingRecordError

TABLE = "path,caption\nholiday/cat.jpg,a cat\nsub/dog.jpg,a dog\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "captions.csv"
    path.write_text(TABLE)
    return path


def test_photos_that_nobody_asks_for_need_not_be_there(table: Path) -> None:
    assert [photo.file for photo in any_captions(table)] == ["holiday/cat.jpg", "sub/dog.jpg"]


def test_photos_are_found_in_their_folder_with_or_without_folders_of_their_own(table: Path, tmp_path: Path) -> None:
    write_photo(tmp_path / "holiday/cat.jpg")
    write_photo(tmp_path / "holiday/sub/dog.jpg")
    captions = any_captions(table, images=tmp_path / "holiday")
    assert [(photo.id, photo.file) for photo in captions] == [
        ("holiday/cat.jpg", "cat.jpg"),
        ("sub/dog.jpg", "sub/dog.jpg"),
    ]
    assert captions["sub/dog.jpg"].sentences[0].text == "a dog"
    (tmp_path / "holiday/cat.jpg").unlink()
    with pytest.raises(MissingRecordError, match=r"captions\.csv: there is no photo 'holiday/cat\.jpg' in"):
        any_captions(table, images=tmp_path / "holiday")


def test_a_photo_of_a_folder_in_the_folder_is_not_taken_for_one_of_the_same_name_above(tmp_path: Path) -> None:
    for name in ("cat.jpg", "sub/cat.jpg"):
        write_photo(tmp_path / "photos" / name)
    table = tmp_path / "c.csv"
    table.write_text("file,caption\nholiday/sub/cat.jpg,a cat\n")
    assert [photo.file for photo in any_captions(table, images=tmp_path / "photos")] == ["sub/cat.jpg"]
    table.write_text("file,caption\nholiday/cat.jpg,a cat\n")
    with pytest.raises(MissingRecordError, match=r"c\.csv: 'holiday/cat\.jpg' may be any of cat\.jpg, sub/cat\.jpg"):
        any_captions(table, images=tmp_path / "photos")


def test_captions_without_splits_say_so(table: Path) -> None:
    with pytest.raises(MissingRecordError, match=r"these captions have no splits.*leave --split out"):
        any_captions(table, "test")


def test_a_file_without_captions_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("1.jpg\n2.jpg\n")
    with pytest.raises(DataError, match="image-list holds no captions"):
        any_captions(tmp_path / "train.txt")
