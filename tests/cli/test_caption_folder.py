"""`sightline caption` to files: formats, reruns, kills."""

import csv
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from bundle_samples import EXAMPLES, draw_photo
from interrupting import start
from sightline.cli import commands
from sightline.cli.caption_command import FORMATS
from sightline.export.sidecar import sidecar_of
from sightline.jobs.ledger import CaptionLog

torch.set_num_threads(1)
HARD = ("--length", "5", "--beam", "2")  # captions of a random model would go on and on


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "dépôt neuf").mkdir(parents=True)
    shutil.copy(EXAMPLES / "cat.jpg", folder)
    shutil.copy(EXAMPLES / "astronaut.jpg", folder / "dépôt neuf" / "a\n<1>.jpg")
    return folder


@pytest.fixture
def caption(model, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))

    def run(*arguments):
        code = commands.main(["caption", *map(str, arguments), *HARD, "--model", str(model), "--device", "cpu"])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_format_tells_the_same_captions(caption, photos, tmp_path):
    out = tmp_path / "out"
    code, _, _ = caption(photos, "--out", out, "--format", ",".join(FORMATS))
    told = json.loads((out / "captions.json").read_text())
    assert code == 0
    assert [photo["path"] for photo in told] == [str(photos / "cat.jpg"), str(photos / "dépôt neuf" / "a\n<1>.jpg")]
    assert [json.loads(line) for line in (out / "captions.jsonl").read_text().splitlines()] == told
    assert [(row["path"], row["caption"]) for row in rows(out / "captions.csv")] == [
        (photo["path"], photo["caption"]) for photo in told
    ]
    page = (out / "captions.html").read_text()
    for photo in told:
        said = f"{photo['caption'].capitalize()}."
        assert f'alt="{said}"' in page
        assert said in sidecar_of(photo["path"]).read_text()
    assert len(list(out.rglob("*.captioned.jpg"))) == 2


def test_pictures_keep_the_folders_of_their_photos_and_tables_name_them(caption, photos, tmp_path, monkeypatch):
    shutil.copy(EXAMPLES / "cat.jpg", photos / "dépôt neuf" / "cat.jpg")
    shutil.copy(EXAMPLES / "coffee.jpg", photos / "cat.jpeg")
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    _, _, err = caption("photos", "--out", out, "--format", "csv", "pictures", "jsonl")
    named = [row["picture"] for row in rows(out / "captions.csv")]
    assert set(named) == {
        "cat.captioned.jpg",
        "cat-2.captioned.jpg",
        "dépôt neuf/cat.captioned.jpg",
        "dépôt neuf/a\n<1>.captioned.jpg",
    }
    assert all((out / name).is_file() for name in named)
    assert [json.loads(line)["picture"] for line in (out / "captions.jsonl").read_text().splitlines()] == named
    assert f"4 pictures are in {out}" in err
    caption("photos", "--out", out, "--format", "csv")  # no pictures are asked for, and none are named
    assert "picture" not in rows(out / "captions.csv")[0]


def test_pictures_of_two_folders_are_in_two_folders_and_those_of_a_pattern_below_where_it_looks(
    caption, photos, tmp_path, monkeypatch
):
    shutil.copytree(photos, tmp_path / "more")
    monkeypatch.chdir(tmp_path)
    caption("photos", "more", "--out", "both")
    assert {path.parent.relative_to("both").parts[0] for path in Path("both").rglob("*.jpg")} == {"photos", "more"}
    caption("photos/**/*.jpg", "--out", "pattern")
    assert {path.parent.name for path in Path("pattern").rglob("*.jpg")} == {"pattern", "dépôt neuf"}


@pytest.mark.parametrize("distinct", [[], ["--distinct"]], ids=["", "distinct"])
def test_after_an_interrupt_tables_sidecars_and_the_next_run_agree(caption, tmp_path, monkeypatch, distinct):
    folder, out = tmp_path / "many", tmp_path / "out"
    folder.mkdir()
    for i in range(20):
        draw_photo(folder / f"{i:02}.png", (64, 64))
    usual, calls = CaptionLog.add, []

    def add(log, *arguments):
        usual(log, *arguments)
        calls.append(arguments)
        if len(calls) == 11:  # in the middle of the second batch of eight
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(CaptionLog, "add", add)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, _, err = caption(folder, "--out", out, "--format", "csv,xmp,pictures", *distinct)
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 130
    told = {row["path"]: row for row in rows(out / "captions.csv")}
    assert set(told) == {str(path).removesuffix(".xmp") for path in folder.glob("*.xmp")}
    for path, row in told.items():
        assert f"{row['caption'].capitalize()}." in sidecar_of(path).read_text()
        assert (out / row["picture"]).is_file()
    assert f"{len(told)} of 20 photos are done and written" in err
    monkeypatch.setattr(CaptionLog, "add", usual)
    code, _, err = caption(folder, "--out", out, "--format", "csv,xmp,pictures", *distinct)
    assert code == 0
    assert f"{20 - len(told)} captioned now, {len(told)} done before" in err
    assert len(rows(out / "captions.csv")) == len(list(folder.glob("*.xmp"))) == 20


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_a_table_goes_to_standard_output_where_there_is_no_folder(caption, photos, tmp_path, name):
    _, out, _ = caption(photos, "--format", name)
    caption(photos, "--out", tmp_path / "out", "--format", name)
    assert out == (tmp_path / "out" / f"captions.{name}").read_text()


def test_a_second_run_does_nothing_and_without_torch_needs_no_time(caption, photos, tmp_path, monkeypatch):
    out = tmp_path / "out"
    caption(photos, "--out", out, "--format", "csv")
    before = rows(out / "captions.csv")
    monkeypatch.setitem(sys.modules, "sightline.pipeline", None)  # whoever loads a model fails
    code, lines, err = caption(photos, "--out", out, "--format", "csv,jsonl")
    assert (code, lines) == (0, "")
    assert "0 captioned now, 2 done before" in err
    assert rows(out / "captions.csv") == before
    assert len((out / "captions.jsonl").read_text().splitlines()) == 2
    code, told, _ = caption(photos, "--out", out, "--json")
    assert [photo["caption"] for photo in json.loads(told)] == [row["caption"] for row in before]
    assert len(list(out.rglob("*.captioned.jpg"))) == 2


def test_without_its_ledger_a_folder_that_is_done_stays_done(caption, photos, tmp_path, monkeypatch):
    out = tmp_path / "out"
    caption(photos, "--out", out, "--format", "csv")
    (out / ".sightline" / "ledger.jsonl").unlink()
    monkeypatch.setitem(sys.modules, "sightline.pipeline", None)  # whoever loads a model fails
    code, lines, err = caption(photos, "--out", out, "--format", "csv")
    assert (code, lines) == (0, "")
    assert "0 captioned now, 2 done before" in err


def test_changed_and_new_photos_are_done_again_and_only_they(caption, photos, tmp_path):
    out = tmp_path / "out"
    caption(photos, "--out", out)
    shutil.copy(EXAMPLES / "rocket.jpg", photos / "cat.jpg")
    draw_photo(photos / "new.png")
    _, lines, err = caption(photos, "--out", out)
    assert [Path(line.partition(": ")[0]).name for line in lines.splitlines()] == ["cat.jpg", "new.png"]
    assert "2 captioned now, 1 done before" in err
    told = json.loads((out / "captions.json").read_text())
    assert len({photo["path"] for photo in told}) == len(told) == 3


def test_force_and_other_settings_do_all_again(caption, photos, tmp_path):
    out = tmp_path / "out"
    caption(photos, "--out", out, "--format", "csv")
    assert len(caption(photos, "--out", out, "--format", "csv", "--force")[1].splitlines()) == 2  # \\n in a name
    _, _, err = caption(photos, "--out", out, "--format", "csv", "--must-include", "dog")
    assert "dropped 2 captions of another model or other settings" in err
    assert all("dog" in row["caption"].split() for row in rows(out / "captions.csv"))


def test_a_folder_keeps_what_earlier_runs_said_about_photos_that_are_there(caption, photos, tmp_path):
    out = tmp_path / "out"
    other = draw_photo(tmp_path / "other.png")
    caption(photos / "cat.jpg", "--out", out, "--format", "csv")
    caption(other, "--out", out, "--format", "csv")
    assert [Path(row["path"]).name for row in rows(out / "captions.csv")] == ["other.png", "cat.jpg"]
    other.unlink()
    caption(photos / "cat.jpg", "--out", out, "--format", "csv")
    assert [Path(row["path"]).name for row in rows(out / "captions.csv")] == ["cat.jpg"]


def test_pictures_in_the_folder_of_photos_are_not_captioned(caption, photos):
    caption(photos, "--out", photos, "--format", "pictures,csv")
    assert caption(photos, "--out", photos, "--format", "pictures,csv")[1] == ""
    assert len(rows(photos / "captions.csv")) == 2


def test_an_interrupt_counts_no_pictures_that_an_earlier_run_drew(caption, photos, monkeypatch):
    caption(photos, "--out", photos, "--format", "pictures")
    draw_photo(photos / "new.png", (64, 64))

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(CaptionLog, "add", interrupt)
    code, _, err = caption(photos, "--out", photos, "--format", "pictures")
    assert code == 130
    assert "2 of 3 photos are done and written" in err


@pytest.mark.parametrize("before", [[], ["--format", "csv"]], ids=["new", "where the picture has a name already"])
def test_a_picture_never_replaces_a_file_that_sightline_did_not_write(caption, photos, before):
    if before:
        caption(photos, "--out", photos, *before)
    mine = draw_photo(photos / "cat.captioned.jpg")
    content = mine.read_bytes()
    for _ in range(2):
        code, _, err = caption(photos, "--out", photos)
        assert code == 0
        assert f"{mine}: this file is not known to be Sightline's, and stays" in err
        assert mine.read_bytes() == content
        told = {
            Path(row["path"]).name: row.get("picture") for row in json.loads((photos / "captions.json").read_text())
        }
        assert told.keys() == {"cat.jpg", mine.name, "a\n<1>.jpg"}  # it is a photo like others
        assert (told["cat.jpg"], told[mine.name]) == (None, "cat.captioned.captioned.jpg")


def test_a_table_that_sightline_did_not_write_is_refused_before_a_model_is_loaded(caption, photos, monkeypatch):
    mine = photos / "captions.json"
    mine.write_text("mine")
    monkeypatch.setitem(sys.modules, "sightline.pipeline", None)  # whoever loads a model fails
    code, _, err = caption(photos, "--out", photos, "--format", "json")
    assert (code, mine.read_text()) == (2, "mine")
    assert f"{mine}: this file is not known to be Sightline's" in err


def test_files_of_a_folder_without_a_ledger_of_files_are_sightlines_own(caption, photos):
    """As versions before 0.2 left them."""
    caption(photos, "--out", photos)
    (photos / ".sightline" / "files.jsonl").unlink()
    drawn = {path: path.stat().st_mtime_ns for path in photos.rglob("*.captioned.jpg")}
    code, out, err = caption(photos, "--out", photos)
    assert (code, out) == (0, "")
    assert "left out" not in err
    assert {path: path.stat().st_mtime_ns for path in photos.rglob("*.captioned.jpg")} == drawn
    caption(photos, "--out", photos, "--force")
    assert {path: path.stat().st_mtime_ns for path in photos.rglob("*.captioned.jpg")} != drawn


def test_files_that_a_run_does_not_write_anew_are_told(caption, photos, tmp_path):
    out = tmp_path / "out"
    caption(photos, "--out", out, "--format", "json,csv,html,pictures")
    before = (out / "captions.json").read_bytes()
    _, _, err = caption(photos, "--out", out, "--format", "csv", "--must-include", "dog")
    assert all("dog" in row["caption"].split() for row in rows(out / "captions.csv"))
    assert (out / "captions.json").read_bytes() == before
    assert "captions.html and captions.json stayed as an earlier run wrote them" in err
    assert "2 pictures of earlier captions stayed: cat.captioned.jpg, dépôt neuf/a" in err
    drawn = (out / "cat.captioned.jpg").stat().st_mtime_ns
    _, _, err = caption(photos, "--out", out, "--format", "pictures,json,html", "--must-include", "dog", "--force")
    assert "pictures of earlier" not in err
    assert "captions.csv stayed as an earlier run wrote it" in err
    assert (out / "cat.captioned.jpg").stat().st_mtime_ns > drawn
    assert all("picture" in photo for photo in json.loads((out / "captions.json").read_text()))


def test_a_table_of_its_user_stays_where_an_earlier_sightline_wrote_others(caption, photos, tmp_path):
    out = tmp_path / "out"
    caption(photos, "--out", out, "--format", "csv")
    (out / ".sightline" / "files.jsonl").unlink()  # as before there was a ledger of files
    (out / "captions.json").write_text("mine")
    assert caption(photos, "--out", out, "--format", "csv")[0] == 0
    assert (out / "captions.json").read_text() == "mine"


def test_what_is_refused_leaves_no_trace(caption, photos):
    (photos / "captions.csv").write_text("mine")
    assert caption(photos, "--out", photos, "--format", "csv")[0] == 2
    assert not (photos / ".sightline").exists()


def test_pictures_of_photos_that_are_gone_stay_and_are_told(caption, photos, tmp_path):
    out = tmp_path / "out"
    caption(photos, "--out", out)
    (photos / "cat.jpg").unlink()
    _, _, err = caption(photos, "--out", out)
    assert "1 picture of photos that are gone stayed: cat.captioned.jpg" in err
    (out / "cat.captioned.jpg").unlink()
    assert "gone" not in caption(photos, "--out", out)[2]


def test_files_are_written_though_nobody_reads_the_lines(model, photos, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "sightline", "caption", str(photos), "--out", str(out), *HARD]
    running = start([*command, "--model", str(model), "--device", "cpu", "--threads", "1"])
    running.stdout.close()  # as `head` does
    running.stdout = None
    _, err = running.communicate(timeout=120)
    assert running.returncode == 0
    assert "2 pictures are in" in err
    assert len(json.loads((out / "captions.json").read_text())) == 2


def test_an_empty_name_of_a_folder_is_refused(caption, photos, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for empty in (["--out", ""], ["--out="]):
        code, _, err = caption(photos, *empty)
        assert code == 2
        assert "--out is empty" in err
    assert not list(Path().iterdir())


def test_sidecars_are_written_once_and_what_others_wrote_stays(caption, photos):
    sidecar = sidecar_of(photos / "cat.jpg")
    sidecar.write_text("not XMP")
    code, _, err = caption(photos, "--format", "xmp")
    assert code == 0
    assert "cat.jpg.xmp: this sidecar is not XMP; it was left as it is" in err
    assert sidecar.read_text() == "not XMP"
    sidecar.unlink()
    assert caption(photos, "--format", "xmp")[1] == ""
    assert "dc:description" in sidecar.read_text()
    assert not list(photos.glob("captions.*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_photos_that_may_not_be_written_is_told(caption, photos):
    photos.chmod(0o500)
    try:
        code, _, err = caption(photos / "cat.jpg", "--format", "xmp")
    finally:
        photos.chmod(0o700)
    assert code == 2
    assert "cannot write: Permission denied" in err


def test_killed_in_the_middle_it_goes_on_and_says_nothing_twice(model, tmp_path, caption):
    folder, out = tmp_path / "many", tmp_path / "out"
    folder.mkdir()
    for i in range(80):
        draw_photo(folder / f"{i:03}.png", (64, 64))
    command = [
        sys.executable,
        "-m",
        "sightline",
        "caption",
        str(folder),
        "--out",
        str(out),
        "--format",
        "csv,jsonl,html",
    ]
    running = start([*command, *HARD, "--model", str(model), "--device", "cpu", "--threads", "1"])
    for _ in range(20):
        said = running.stdout.readline()
    running.send_signal(signal.SIGKILL)
    first = said and running.communicate(timeout=60)
    assert first
    assert not (out / "captions.csv").exists()
    _, lines, err = caption(folder, "--out", out, "--format", "csv,jsonl,html")
    kept = 80 - len(lines.splitlines())
    assert kept >= 16
    assert f"{kept:,} done before" in err
    names = [f"{i:03}.png" for i in range(80)]
    assert [Path(row["path"]).name for row in rows(out / "captions.csv")] == names
    assert len((out / "captions.jsonl").read_text().splitlines()) == 80
    assert (out / "captions.html").read_text().count("<figure>") == 80


def test_what_killed_runs_left_half_written_is_removed_and_what_is_being_written_stays(caption, photos, tmp_path):
    out, folders = tmp_path / "out", (tmp_path / "out", photos, photos / "dépôt neuf")
    out.mkdir()
    write = (
        "import sys, time; from sightline.files import atomic_write\nwith atomic_write(sys.argv[1]): time.sleep(300)"
    )
    writers = [start([sys.executable, "-c", write, str(folder / "cat.jpg.xmp")]) for folder in folders]
    limit = time.monotonic() + 60
    while not all(list(folder.glob(".*.tmp")) for folder in folders) and time.monotonic() < limit:
        time.sleep(0.05)
    for writer in writers[1:]:
        writer.kill()
        writer.wait()
    shutil.copy(EXAMPLES / "rocket.jpg", photos / ".mine.tmp")
    code, _, _ = caption(photos, "--out", out, "--format", "xmp,csv")
    assert code == 0
    assert len(list(out.glob(".*.tmp"))) == 1
    assert [path.name for path in photos.rglob(".*.tmp")] == [".mine.tmp"]
    writers[0].kill()
    writers[0].wait()
    caption(photos, "--out", out, "--format", "xmp,csv")
    assert not list(out.glob(".*.tmp"))


def test_photos_with_long_names_are_captioned_and_what_cannot_be_named_is_one_bad_photo(caption, photos, tmp_path):
    long, longest = "犬" * 76 + ".jpg", "b" * 251 + ".jpg"  # 232 and 255 bytes, of 255 that a name may have
    for name in (long, longest):
        shutil.copy(EXAMPLES / "cat.jpg", photos / name)
    out = tmp_path / "out"
    for _ in range(2):
        code, _, err = caption(photos, "--out", out, "--format", "pictures,csv,xmp")
        assert code == 0
        assert len(rows(out / "captions.csv")) == 4
        assert sidecar_of(photos / long).exists()
        assert (out / f"{'犬' * 76}.captioned.jpg").exists()
        assert "2 files were left out" in err  # the picture of one photo, and its sidecar
        assert "too long to be written" in err
        assert "make room" not in err


@pytest.mark.parametrize(
    ("deleted", "arguments"), [("photos", ["--out", "out"]), ("photos", []), ("out", ["--out", "out"])]
)
def test_a_folder_that_is_deleted_during_the_run_is_told(model, tmp_path, deleted, arguments):
    (tmp_path / "photos").mkdir()
    for i in range(200):
        draw_photo(tmp_path / "photos" / f"{i:03}.png", (64, 64))
    named = [str(tmp_path / name) if name == "out" else name for name in arguments]
    command = [sys.executable, "-m", "sightline", "caption", str(tmp_path / "photos"), *named, *HARD]
    running = start([*command, "--model", str(model), "--device", "cpu", "--threads", "1"])
    for _ in range(10):
        running.stdout.readline()
    (tmp_path / deleted).rename(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "elsewhere")
    _, err = running.communicate(timeout=120)
    assert running.returncode == 2
    assert "this folder was deleted" in err if deleted == "photos" else "this was deleted while" in err


def test_two_at_once_in_one_folder_are_refused(model, tmp_path, caption):
    from sightline.files import lock

    photo = draw_photo(tmp_path / "x.png")
    with lock(tmp_path / "out" / ".sightline" / "lock"):
        code, _, err = caption(photo, "--out", tmp_path / "out")
    assert code == 2
    assert "another process is writing here" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "docx"], "there is no format 'docx'"),
        (["--format", "html"], "html has no place to go"),
        (["--format", "csv,jsonl"], "csv has no place to go"),
        (["--format", "csv", "--json"], "csv has no place to go"),
        (["--length", "endless"], "`length` is 'endless'"),
        (["--length", "0"], "`length` is '0'"),
        (["--must-include", "dog", "--beam", "1"], "--must-include needs a beam"),
        (["--must-include", " , "], "--must-include needs a value"),
    ],
)
def test_a_mistake_is_told_before_a_model_is_loaded(arguments, words, capsys):
    began = time.perf_counter()
    assert commands.main(["caption", str(EXAMPLES / "cat.jpg"), *arguments, "--model", "nowhere"]) == 2
    assert words in capsys.readouterr().err
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(("length", "fewest", "most"), [("short", 1, 7), ("long", 13, 20), ("5", 1, 5)])
def test_captions_are_as_long_as_asked_and_have_the_words_asked_for(model, capsys, length, fewest, most):
    asked = ["caption", str(EXAMPLES / "cat.jpg"), "--length", length, "--must-include", "red dog,cup"]
    assert commands.main([*asked, "--must-include", "two", "--json", "--model", str(model), "--device", "cpu"]) == 0
    said = json.loads(capsys.readouterr().out)[0]["caption"]
    assert fewest <= len(said.split()) <= most
    assert "red dog" in said
    assert {"cup", "two"} <= set(said.split())
