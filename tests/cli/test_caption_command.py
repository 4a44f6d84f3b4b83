"""`sightline caption`, as people and scripts run it."""

import gc
import io
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image

from bundle_samples import EXAMPLES, draw_photo, package_without_weights
from interrupting import start
from sightline.caption import PhotoCaption, WordTrace
from sightline.cli import commands
from sightline.cli.caption_command import viewer
from sightline.cli.caption_display import CaptionDisplay
from sightline.cli.caption_folder import draw_picture
from sightline.cli.pipeline_work import BATCH
from sightline.export.caption_tables import box_table

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model


@pytest.fixture
def photos(tmp_path):
    """A folder of two photos and a file that only is called like one."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("astronaut.jpg", "cat.jpg"):
        shutil.copy(EXAMPLES / name, folder)
    (folder / "broken.jpg").write_text("no picture")
    return folder


@pytest.fixture
def no_screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def caption(command):
    return command("caption")


def test_a_line_for_each_photo_and_bad_files_at_the_end(caption, photos):
    code, out, err = caption(photos)
    lines = out.splitlines()
    assert code == 0
    assert [line.partition(": ")[0] for line in lines] == [str(photos / "astronaut.jpg"), str(photos / "cat.jpg")]
    assert all(line.partition(": ")[2] for line in lines)
    assert err.startswith("1 file was left out:\n")
    assert "broken.jpg" in err


def test_what_pillow_thinks_of_a_cameras_notes_is_not_told(caption, photos, recwarn):
    """A photo whose Exif is cut short is a photo; a warning of Pillow's names neither it nor anything to do."""
    notes = Image.Exif()
    notes[0x010E], notes[0x9286] = "x" * 500, b"y" * 300
    Image.open(photos / "cat.jpg").save(photos / "cut.jpg", exif=notes.tobytes()[:-700])
    code, out, err = caption(photos / "cut.jpg")
    assert code == 0
    assert out.startswith(str(photos / "cut.jpg"))
    assert err == ""
    assert not [str(warning.message) for warning in recwarn if "PIL" in warning.filename]


def test_what_pillow_logs_of_a_damaged_picture_is_not_printed(model, tmp_path):
    Image.new("RGB", (20, 12)).save(tmp_path / "x.tif")
    raw = (tmp_path / "x.tif").read_bytes()
    tag = struct.pack("<HHIHH", 277, 3, 1, 3, 0)  # three samples a pixel
    (tmp_path / "x.tif").write_bytes(raw.replace(tag, struct.pack("<HHIHH", 277, 3, 1, 300, 0)))
    command = [sys.executable, "-m", "sightline", "caption", "x.tif", "--model", str(model), "--device", "cpu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("1 file was left out:\n  x.tif: this TIFF picture is damaged")


def test_json_is_one_array_and_nothing_else(caption, photos):
    code, out, err = caption(photos, photos / "nowhere.jpg", "--json")
    told = json.loads(out)
    assert code == 0
    assert [Path(photo["path"]).name for photo in told] == ["astronaut.jpg", "cat.jpg"]
    assert set(told[0]) == {*"path caption log_prob confidence low_confidence words concepts size".split()}
    assert "2 files were left out" in err


class Counting(io.StringIO):
    """What is printed, and the most captions that were in memory at any time."""

    most = 0

    def write(self, text: str) -> int:
        alive = sum(isinstance(one, PhotoCaption) for one in gc.get_objects())
        self.most = max(self.most, alive)
        return super().write(text)


@pytest.mark.parametrize("arguments", [[], ["--format", "csv"], ["--format", "jsonl"], ["--json"]])
def test_captions_that_are_printed_are_not_kept(model, tmp_path, monkeypatch, arguments):
    for i in range(5 * BATCH):
        draw_photo(tmp_path / f"{i:02}.png", (40, 40))
    monkeypatch.setattr(sys, "stdout", printed := Counting())
    asked = [*arguments, "--length", "5", "--beam", "1", "--model", str(model), "--device", "cpu"]
    assert commands.main(["caption", str(tmp_path), *asked]) == 0
    assert len(printed.getvalue().strip().splitlines()) >= 5 * BATCH
    assert printed.most <= 2 * BATCH


def test_lines_and_json_say_the_same(caption, photos):
    _, out, _ = caption(photos)
    _, told, _ = caption(photos, "--json")
    assert out.splitlines() == [f"{photo['path']}: {photo['caption']}" for photo in json.loads(told)]


def test_out_has_pictures_and_captions(caption, photos, tmp_path):
    code, out, err = caption(photos, "--out", tmp_path / "out")
    assert code == 0
    assert visible(tmp_path / "out") == {"astronaut.captioned.jpg", "cat.captioned.jpg", "captions.json"}
    told = json.loads((tmp_path / "out" / "captions.json").read_text())
    assert [f"{photo['path']}: {photo['caption']}" for photo in told] == out.splitlines()
    assert f"2 pictures are in {tmp_path / 'out'}" in err
    with Image.open(tmp_path / "out" / "cat.captioned.jpg") as picture:
        picture.load()
        assert picture.width > 700


def test_photos_of_one_name_get_pictures_of_their_own_and_photos_stay_as_they_are(caption, tmp_path):
    first = draw_photo(tmp_path / "a.png")
    (tmp_path / "b").mkdir()
    second = draw_photo(tmp_path / "b" / "a.png", colour="blue")
    before = first.read_bytes()
    assert caption(first, second, "--out", tmp_path, "--beam", "1")[0] == 0
    assert (tmp_path / "a.captioned.jpg").read_bytes() != (tmp_path / "b" / "a.captioned.jpg").read_bytes()
    assert first.read_bytes() == before


@pytest.mark.usefixtures("no_screen")
def test_show_prints_the_boxes_where_there_is_no_screen(caption, photos):
    assert viewer() is None or sys.platform == "darwin"
    _, out, _ = caption(photos / "cat.jpg", "--show")
    line, *boxes = out.splitlines()
    assert line.startswith(str(photos / "cat.jpg"))
    assert boxes
    assert all(re.fullmatch(r"  (\w+ +(\d+ +){4}[01]\.\d\d|no word points at a box)", row) for row in boxes)
    _, out, err = caption(photos / "cat.jpg", "--show", "--json")
    json.loads(out)
    assert err.splitlines() == boxes


def test_show_opens_one_picture_or_the_folder_of_several(caption, photos, tmp_path, monkeypatch):
    seen = tmp_path / "seen"
    program = tmp_path / "bin" / "xdg-open"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$1" >> {seen}.new\nmv {seen}.new {seen}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":0")
    for arguments, expected in (
        ([photos / "cat.jpg", "--out", tmp_path / "one"], tmp_path / "one" / "cat.captioned.jpg"),
        ([photos, "--out", tmp_path / "two"], tmp_path / "two"),
    ):
        assert caption(*arguments, "--show")[0] == 0
        assert waited(seen) == f"{expected}\n"
        seen.unlink()
    _, _, err = caption(photos / "cat.jpg", "--show")
    opened = Path(waited(seen).strip())
    assert opened.is_file()
    assert f"1 picture is in {opened.parent}" in err
    shutil.rmtree(opened.parent)


def waited(path: Path) -> str:
    for _ in range(200):
        if path.exists():
            break
        time.sleep(0.05)
    return path.read_text()


def test_a_photo_that_is_gone_by_now_has_no_picture(tmp_path):
    display, gone = CaptionDisplay([]), str(tmp_path / "gone.jpg")
    draw_picture(PhotoCaption(("dog",), -1.0, (WordTrace(),), gone), tmp_path / "gone.captioned.jpg", display)
    assert [Path(error.where).name for error in display.problems] == ["gone.jpg"]
    assert not display.pictures
    assert not list(tmp_path.iterdir())


def test_boxes_are_told_in_columns():
    trace = (WordTrace(box=(0.1, 0.2, 0.5, 1.0), score=0.5), WordTrace(), WordTrace(box=(0, 0, 1, 1), score=0.25))
    said = PhotoCaption(("dog", "near", "table"), -1.0, trace, "x.jpg", (100, 1000))
    assert (
        box_table(said.to_json()["words"])
        == "  dog       10   200    50  1000  0.50\n  table      0     0   100  1000  0.25"
    )
    trace = (WordTrace(box=(0.1, 0.2, 0.5, 1.0), score=0.5, others=((0, 0, 1, 0.1),)),)
    several = PhotoCaption(("dogs",), -1.0, trace, "x.jpg", (100, 1000))
    assert (
        box_table(several.to_json()["words"])
        == "  dogs     10   200    50  1000  0.50\n            0     0   100   100"
    )
    assert box_table(PhotoCaption(("dog",), -1.0).to_json()["words"]) == "  no word points at a box"


def test_quiet_prints_nothing_but_what_was_left_out(caption, photos, tmp_path):
    code, out, err = caption(photos, "--quiet", "--out", tmp_path / "out")
    assert (code, out) == (0, "")
    assert err.startswith("1 file was left out")
    assert len(err.splitlines()) == 2
    assert (tmp_path / "out" / "captions.json").exists()


def test_nothing_captioned_is_exit_code_1_with_a_sentence(caption, photos, tmp_path):
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        ([tmp_path / "empty"], "No photo was found there"),
        ([tmp_path / "nowhere.jpg"], "no such file or folder"),
        ([photos / "broken.jpg"], "broken.jpg"),
    ):
        code, out, err = caption(*arguments)
        assert (code, out) == (1, "")
        assert words in err
        code, out, _ = caption(*arguments, "--json", "--out", tmp_path / "out")
        assert (code, json.loads(out)) == (1, [])
    assert not visible(tmp_path / "out")


def visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_looking_for_photos_in_vain_does_not_import_torch(tmp_path):
    code = "import sys; from sightline.cli.commands import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "caption", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no photo was named"),
        ([EXAMPLES / "cat.jpg", "--beam", "0"], "`beam` is 0"),
        ([EXAMPLES / "cat.jpg", "--threads", "0"], "`threads` is 0"),
        ([EXAMPLES / "cat.jpg", "--threads", "100000"], "`threads` is 100000"),
        ([EXAMPLES / "cat.jpg", "--out", EXAMPLES / "captions.csv"], "captions.csv: this is a file"),
        ([EXAMPLES / "cat.jpg", "--model", "nowhere.safetensors"], "nowhere.safetensors: no such file"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(arguments, words, capsys):
    assert commands.main(["caption", *map(str, arguments)]) == 2
    assert words in capsys.readouterr().err


def test_a_list_on_standard_input_is_captioned(model, photos):
    done = subprocess.run(
        command(model, "-", "--beam", "1"), input=f"{photos / 'cat.jpg'}\n", capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"{photos / 'cat.jpg'}: ")


def command(model: Path, *arguments: object) -> list[str]:
    options = ("--model", str(model), "--device", "cpu", "--threads", "1")
    return [sys.executable, "-m", "sightline", "caption", *map(str, arguments), *options]


def test_interrupted_it_leaves_what_is_done(model, tmp_path):
    paths = [draw_photo(tmp_path / f"{i:04}.png", (64, 64)) for i in range(600)]
    running = start(command(model, *paths, "--out", tmp_path / "out"))
    assert running.stdout.readline().startswith(str(paths[0]))
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Interrupted" in err
    told = json.loads((tmp_path / "out" / "captions.json").read_text())
    assert 0 < len(told) < len(paths)
    assert [photo["path"] for photo in told] == [str(path) for path in paths[: len(told)]]
    for photo in told[:-1]:
        with Image.open(tmp_path / "out" / f"{Path(photo['path']).stem}.captioned.jpg") as picture:
            picture.load()


def test_interrupted_without_a_folder_it_does_not_promise_to_go_on(model, tmp_path):
    paths = [draw_photo(tmp_path / f"{i:04}.png", (64, 64)) for i in range(600)]
    running = start(command(model, *paths))
    assert running.stdout.readline().startswith(str(paths[0]))
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Interrupted. With --out DIR, the same command could go on." in err


def test_a_bar_on_the_terminal_leaves_the_output_alone(model, photos):
    master, slave = pty.openpty()
    done = subprocess.run(command(model, photos, "--json"), stdout=subprocess.PIPE, stderr=slave, text=True, check=True)
    os.close(slave)
    assert len(json.loads(done.stdout)) == 2
    shown = b""
    while chunk := read(master):
        shown += chunk
    assert b"captioning" in shown
    assert b"left out" in shown
    os.close(master)


def test_counts_and_the_time_left_stay_below_the_captions_that_are_printed(model, tmp_path):
    many = 12 * BATCH  # several rounds of the batches that are worked on at once
    for i in range(many):
        draw_photo(tmp_path / f"{i:02}.png", (64, 64))
    for out in ([], ["--out", tmp_path / "out"]):
        master, slave = pty.openpty()
        running = subprocess.Popen(command(model, tmp_path, *out), stdout=slave, stderr=slave)
        os.close(slave)
        shown = b""
        while chunk := read(master):
            shown += chunk
        os.close(master)
        assert running.wait() == 0
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
        assert len(re.findall(r"\r[^\r]*/\d\d\.png: \w", text)) == many
        counts = [int(count) for count in re.findall(rf"captioning .* (\d+)/{many} .*left", text)]
        assert counts == sorted(counts)
        assert any(0 < count < many for count in counts)


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # nobody holds the other end any more
        return b""


def test_the_demo_shows_every_verb_and_ends_with_how_to_go_on(model, tmp_path):
    (tmp_path / "src").mkdir()
    package = package_without_weights(tmp_path / "src")
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "src"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    (package / "weights").mkdir()
    shutil.copy(model, package / "weights" / "sightline.safetensors")
    done = subprocess.run(
        ["sh", "examples/demo.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "examples/cat.jpg: " in done.stdout
    assert (tmp_path / "demo-output" / "captioned" / "cat.captioned.jpg").exists()
    shown = done.stdout
    commands_shown = re.findall(r"\$ sightline (\w+)", shown)
    assert commands_shown[-4:] == ["index", "search", "ground", "audit"]
    assert '$ sightline search "a cup of coffee"' in shown
    assert "source .venv/bin/activate" in shown.partition("To go on")[2]
    written = re.findall(r"^(?:Written:|        ) (/\S+)", shown, re.MULTILINE)
    assert len(written) == 3
    assert all(Path(path).exists() for path in written)
