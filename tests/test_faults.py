"""No space, no permission, no memory, another process: a sentence each, and what was done stays and is gone on with."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bundle_samples import draw_photo
from sightline import files
from sightline.cli import commands
from sightline.errors import DataError
from sightline.search.exact import ExactIndex
from sightline.vision.feature_store import FeatureStore

torch.set_num_threads(1)
PHOTOS = 12
COMMANDS = {
    "caption": ("--out", "--format", "csv,pictures", "--length", "5"),
    "extract": ("--out", "--batch", "4"),
    "index": ("--store",),
}
LOCKS = {"caption": ".sightline/lock", "extract": ".lock", "index": "lock"}
each = pytest.mark.parametrize("name", COMMANDS)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(PHOTOS):
        draw_photo(folder / f"{number:02d}.png", (100 + number, 120))
    return folder


@pytest.fixture
def run(tiny_model, photos, capsys):
    """Runs a command over the photos: its exit code and what it said of errors."""

    def call(name: str, out: Path) -> tuple[int, str]:
        to, *more = COMMANDS[name]
        arguments = [name, str(photos), to, str(out), *more, "--model", str(tiny_model), "--device", "cpu"]
        code = commands.main([*arguments, "--threads", "1"])
        return code, capsys.readouterr().err

    return call


def done(name: str, out: Path) -> int:
    """How many photos are there, each once."""
    if name == "caption":
        return len(set((out / "captions.csv").read_text().splitlines()[1:])) if (out / "captions.csv").exists() else 0
    if name == "extract":
        return len(set(FeatureStore(out).ids())) if (out / "store.json").exists() else 0
    return len(ExactIndex(out))


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A disk of 60 kB, where one may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    if not shutil.which("mount") or not mount(place, "size=60k"):
        pytest.skip("no disk may be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def mount(place: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@each
def test_a_disk_that_is_full_is_told_and_with_more_room_the_same_command_goes_on(run, disk, name):
    out = disk / "out"
    code, said = run(name, out)
    assert code == 2
    assert "No space left on device" in said or "disk is full" in said
    assert "make room" in said
    before = done(name, out)
    assert before < PHOTOS
    assert mount(disk, "remount,size=50m")
    assert run(name, out)[0] == 0
    assert done(name, out) == PHOTOS
    assert not list(disk.rglob(files.UNFINISHED))


@each
def test_a_disk_that_may_only_be_read_is_told(run, disk, name):
    assert mount(disk, "remount,ro")
    code, said = run(name, disk / "out")
    assert code == 2
    assert "cannot write: Read-only file system. To fix: make room there, or choose a folder you may write to" in said


@each
def test_a_file_in_the_place_of_the_folder_stays_and_is_told(run, tmp_path, name):
    (tmp_path / "out").write_text("mine")
    code, said = run(name, tmp_path / "out")
    assert code == 2
    assert "To fix: " in said
    assert "Unexpected" not in said
    assert (tmp_path / "out").read_text() == "mine"


def test_an_index_without_room_keeps_what_it_has(run, tmp_path, monkeypatch):
    out, usual = tmp_path / "out", ExactIndex._connect
    assert run("index", out)[0] == 0
    pages = sqlite3.connect(out / "photos.sqlite").execute("PRAGMA page_count").fetchone()[0]

    def connect(self: ExactIndex, mode: str) -> sqlite3.Connection:
        db = usual(self, mode)
        db.execute(f"PRAGMA max_page_count = {pages}")
        return db

    monkeypatch.setattr(ExactIndex, "_connect", connect)
    index = ExactIndex(out)
    (first, *_) = index.rows(index.states())
    with pytest.raises(DataError, match=r"disk is full.*make room there.*what is indexed is kept"):
        index.write([replace(first, path=f"{number}.png") for number in range(200)])
    assert done("index", out) == PHOTOS


@each
def test_a_second_process_on_one_output_is_refused_and_the_first_goes_on(run, tmp_path, name):
    out = tmp_path / "out"
    with files.lock(out / LOCKS[name]):
        code, said = run(name, out)
        assert code == 2
        assert "another process is writing here. To fix: wait for it to finish" in said
        assert done(name, out) == 0
    assert run(name, out)[0] == 0
    assert done(name, out) == PHOTOS


STARVED = """
import resource, sys
import torch, sightline.pipeline, sightline.jobs.extract_job
from sightline.cli import commands
from sightline.errors import DataError
torch.set_num_threads(1)
now = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (now + int(sys.argv[1]), -1))
sys.exit(commands.main(sys.argv[2:]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is bounded as Linux does it")
@pytest.mark.parametrize("more", [1 << 20, 30 << 20])
def test_memory_that_ends_is_told(photos, tmp_path, more):
    command = ["caption", str(photos), "--out", str(tmp_path / "out"), "--device", "cpu", "--threads", "1"]
    starved = [sys.executable, "-c", STARVED, str(more), *command]
    ended = subprocess.run(starved, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "not enough memory" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Unexpected" not in ended.stderr
