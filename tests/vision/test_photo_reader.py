"""Many photos at once: in order, with a bar, and bad files told at the end."""

import io
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from sightline.errors import ImageError
from sightline.vision import photo_reader
from sightline.vision.images import read_pixels
from sightline.vision.photo_reader import left_out, photo_bar, progress_bar, read_photos


@pytest.fixture
def photos(tmp_path):
    """Thirty photos, every tenth of which is text."""
    paths = [tmp_path / f"{number:02}.png" for number in range(30)]
    for number, path in enumerate(paths):
        if number % 10 == 5:
            path.write_text("no photo")
        else:
            Image.new("RGB", (10 + number, 20), (number, 0, 0)).save(path)
    return paths


@pytest.mark.parametrize("ahead", [1, 4, 64])
def test_good_photos_come_in_order_and_bad_ones_are_told(photos, monkeypatch, ahead):
    monkeypatch.setattr(photo_reader, "AHEAD", ahead)
    bad = []
    found = list(read_photos(photos, 8, bad=bad.append))
    assert [photo.path for photo in found] == [path for n, path in enumerate(photos) if n % 10 != 5]
    for photo in found:
        pixels, size = read_pixels(photo.path, 8)
        assert np.array_equal(photo.pixels, pixels)
        assert photo.size == size
    assert [Path(error.where).name for error in bad] == ["05.png", "15.png", "25.png"]


def test_every_photo_is_shown_by_the_bar_whether_good_or_bad(photos):
    shown = []

    def bar(paths):
        for path in paths:
            yield path
            shown.append(path)

    assert len(list(read_photos(photos, 8, bad=lambda error: None, progress=bar))) == 27
    assert shown == photos


def test_nothing_to_read_gives_nothing():
    assert list(read_photos([], 8, bad=pytest.fail)) == []


def test_a_reader_that_is_left_early_leaves_no_thread_behind(photos):
    before = set(threading.enumerate())
    reader = read_photos(photos, 8, bad=pytest.fail)
    assert next(reader).path == photos[0]
    assert set(threading.enumerate()) - before
    reader.close()
    assert not set(threading.enumerate()) - before


def test_the_bar_yields_all_and_prints_nothing_into_files(photos, capsys):
    assert list(progress_bar("looking")(photos)) == photos
    assert capsys.readouterr() == ("", "")


def test_the_bar_is_drawn_on_a_terminal(photos, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stderr", screen := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    list(progress_bar("looking")(photos))
    assert "looking" in screen.getvalue()


def test_the_end_tells_each_file_and_its_reason():
    errors = [ImageError("the file is empty", where=f"{name}.jpg", fix="leave it out") for name in "ab"]
    assert left_out(errors).split("\n") == [
        "2 files were left out:",
        "  a.jpg: the file is empty. To fix: leave it out.",
        "  b.jpg: the file is empty. To fix: leave it out.",
    ]
    assert left_out(errors[:1]).startswith("1 file was left out:")


def test_the_time_left_is_that_of_the_photos_to_come_though_batches_come_at_once():
    seconds = [0.0]
    console = Console(file=io.StringIO(), width=80)
    bar = photo_bar(console)
    bar.get_time = lambda: seconds[0]
    task = bar.add_task("captioning", total=24)

    def shown() -> str:
        with console.capture() as captured:
            console.print(bar)
        return captured.get()

    assert "0/24" in shown()
    assert "left" not in shown()  # nobody knows yet
    for batch in (1, 2):
        seconds[0] = 4.0 * batch
        for _ in range(8):
            bar.advance(task)
        assert f"{8 * batch}/24 0:00:0{12 - 4 * batch} left" in shown()
