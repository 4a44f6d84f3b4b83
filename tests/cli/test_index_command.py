"""`sightline index` and `sightline search`, by hand and by script."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bundle_samples import draw_photo, tiny_bundle
from interrupting import start
from sightline.checkpoint.bundle import save_bundle
from sightline.cli import commands
from sightline.pipeline import Pipeline
from sightline.search.query import NAME, Hit, PhotoIndex, engine_at

torch.set_num_threads(1)
COLOURS = ("red", "green", "blue")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    save_bundle(path, tiny_bundle(), "float32")
    return path


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    """A folder of three photos; the current folder is the one above."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for number, colour in enumerate(COLOURS):
        draw_photo(tmp_path / "photos" / f"{colour}.png", (160 + number, 120), colour)
    return tmp_path / "photos"


def command(model: Path, name: str, *arguments: object) -> list[str]:
    return [name, *map(str, arguments), "--model", str(model), "--device", "cpu", "--threads", "1"]


def test_a_folder_is_indexed_in_the_current_one_and_searched_from_below(model, photos, tmp_path, capsys, monkeypatch):
    assert commands.main(command(model, "index", "photos")) == 0
    assert capsys.readouterr().out == f"{tmp_path / NAME}: 3 photos; 3 looked at now, 0 were there\n"
    monkeypatch.chdir(photos)
    assert commands.main(command(model, "search", "a dog", "-k", 2)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(str(photos) in line for line in lines)
    assert commands.main(command(model, "index", photos, "--store", tmp_path / NAME)) == 0
    assert "3 photos; none new, 3 were there" in capsys.readouterr().out


def test_weaker_matches_are_below_a_line(model, photos, capsys, monkeypatch):
    commands.main(command(model, "index", "photos", "--quiet"))
    hits = [Hit("/a.jpg", 0.7, "a dog"), Hit("/b.jpg", 0.3, "a cat", weak=True)]
    monkeypatch.setattr(PhotoIndex, "search", lambda *_, **__: hits)
    capsys.readouterr()
    assert commands.main(command(model, "search", "a dog")) == 0
    assert capsys.readouterr().out.splitlines() == ["0.700  /a.jpg: a dog", "Weaker matches:", "0.300  /b.jpg: a cat"]
    del hits[0]
    assert commands.main(command(model, "search", "a dog")) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["No photo matches well. Weaker matches:", "0.300  /b.jpg: a cat"]


def test_json_is_one_array_of_path_score_and_caption(model, photos, capsys):
    assert commands.main(command(model, "index", "photos", "--quiet")) == 0
    assert capsys.readouterr().out == ""
    assert commands.main(command(model, "search", "two dogs", "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert [set(hit) for hit in told] == [{"path", "score", "caption", "weak"}] * 3
    assert {hit["path"] for hit in told} == {str(photos / f"{colour}.png") for colour in COLOURS}
    assert sorted((hit["score"] for hit in told), reverse=True) == [hit["score"] for hit in told]
    pipeline = Pipeline(tiny_bundle())
    for hit in told:
        assert hit["caption"] == pipeline.caption(hit["path"]).text


def test_a_photo_is_found_by_itself_also_when_it_is_elsewhere(model, photos, tmp_path, capsys):
    commands.main(command(model, "index", "photos", "--quiet", "--no-captions"))
    (tmp_path / "copy.png").write_bytes((photos / "green.png").read_bytes())
    assert commands.main(command(model, "search", "--image", "copy.png", "-k", 1, "--json")) == 0
    (hit,) = json.loads(capsys.readouterr().out)
    assert hit["path"] == str(photos / "green.png")
    assert hit["score"] == pytest.approx(1, abs=1e-3)
    assert hit["caption"] is None


def test_explaining_shows_boxes_of_the_words(model, photos, capsys):
    commands.main(command(model, "index", "photos", "--quiet"))
    assert commands.main(command(model, "search", "a dog with a ball", "--explain", "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert all([word["word"] for word in hit["why"]["words"]] == "a dog with a ball".split() for hit in told)
    assert commands.main(command(model, "search", "a dog with a ball", "--explain")) == 0
    boxes = [word for hit in told for word in hit["why"]["words"] if word["box"]]
    assert capsys.readouterr().out.count(" at ") == len(boxes) > 0


def test_vectors_only_not_and_exact_are_obeyed(model, photos, capsys):
    commands.main(command(model, "index", "photos", "--quiet"))
    pipeline = Pipeline(tiny_bundle())
    cosine = float((pipeline.vectors([photos / "red.png"]) @ pipeline.text_vectors(["a cup"]).T)[0, 0])
    assert commands.main(command(model, "search", "a cup", "--vectors-only", "--exact", "--json")) == 0
    scores = {Path(hit["path"]).name: hit["score"] for hit in json.loads(capsys.readouterr().out)}
    assert scores["red.png"] == pytest.approx(cosine, abs=1e-3)
    assert commands.main(command(model, "search", "a cup", "--not", "a dog", "--vectors-only", "--json")) == 0
    assert {hit["score"] for hit in json.loads(capsys.readouterr().out)} != set(scores.values())


def test_words_that_the_model_never_learned_are_told(model, photos, capsys):
    commands.main(command(model, "index", "photos", "--quiet"))
    assert commands.main(command(model, "search", "a dog and a zebra")) == 0
    assert capsys.readouterr().err == "The model does not know: zebra.\n"


@pytest.mark.parametrize(("words", "named"), [("a zebra", "zebra"), ("xyzzy zebra", "xyzzy, zebra"), ("???", "'???'")])
def test_words_of_which_the_model_knows_none_find_nothing(model, photos, capsys, words, named):
    commands.main(command(model, "index", "photos", "--quiet"))
    assert commands.main(command(model, "search", words, "--json")) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out) == []
    said = f"Nothing was found: the model does not know {named}, and no caption or concept says it. To fix:"
    assert shown.err.startswith(said)
    assert shown.err.count("\n") == 1
    assert commands.main(command(model, "search", words, "--vectors-only")) == 1
    assert "no caption" not in capsys.readouterr().err


def test_a_photo_is_found_beside_words_that_mean_nothing(model, photos, capsys):
    commands.main(command(model, "index", "photos", "--quiet"))
    asked = ["--image", str(photos / "red.png"), "--vectors-only", "--json"]
    assert commands.main(command(model, "search", "a zebra", *asked)) == 0
    with_words = json.loads(capsys.readouterr().out)
    assert commands.main(command(model, "search", *asked)) == 0
    assert with_words == json.loads(capsys.readouterr().out)


def test_a_copy_is_new_and_not_looked_at(model, photos, capsys):
    commands.main(command(model, "index", "photos", "--quiet"))
    (photos / "copy.png").write_bytes((photos / "red.png").read_bytes())
    assert commands.main(command(model, "index", "photos")) == 0
    assert "4 photos; 1 is a copy, 3 were there\n" in capsys.readouterr().out


def test_quiet_tells_by_its_exit_code_alone(model, photos, capsys):
    commands.main(command(model, "index", "photos", "--quiet"))
    assert commands.main(command(model, "search", "a dog", "--quiet")) == 0
    assert commands.main(command(model, "search", "a zebra", "--quiet")) == 1
    assert commands.main(command(model, "search", "a zebra", "--quiet", "--store", "none")) == 2
    assert capsys.readouterr().out == ""


def test_json_of_an_index_tells_all_and_bad_files_are_told_once(model, photos, tmp_path, capsys):
    (photos / "bad.jpg").write_text("<html>404</html>")
    assert commands.main(command(model, "index", photos, "--store", tmp_path / "store", "--json")) == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    seconds, bad = told.pop("seconds"), told.pop("bad")
    assert seconds > 0
    counts = {"photos": 4, "made": 3, "kept": 0, "copied": 0, "moved": 0, "gone": 0, "total": 3}
    assert told == {"store": str(tmp_path / "store"), "engine": "exact", **counts}
    assert (bad[0]["path"], bad[0]["new"]) == (str(photos / "bad.jpg"), True)
    assert "1 file was left out" in shown.err
    assert commands.main(command(model, "index", photos, "--store", tmp_path / "store", "--json")) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["kept"] == 3
    assert shown.err == "1 file reported before is still left out; --json lists all\n"


def test_another_model_is_refused_by_both_and_force_begins_again(model, photos, tmp_path, capsys):
    other = tmp_path / "other.safetensors"
    save_bundle(other, tiny_bundle(seed=5), "float32")
    commands.main(command(model, "index", "photos", "--quiet"))
    assert commands.main(command(other, "index", "photos")) == 2
    assert "this index was made with another model" in capsys.readouterr().err
    assert commands.main(command(other, "search", "a dog")) == 2
    assert "this index was made with another model" in capsys.readouterr().err
    assert commands.main(command(other, "index", "photos", "--force")) == 0
    assert commands.main(command(other, "search", "a dog")) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["search"], "nothing to look for"),
        (["search", "a dog", "--exact", "--ann"], "exclude each other"),
        (["search", "a dog", "-k", "0"], "1 or more"),
        (["search", "--image", "photos/red.png", "--explain"], "only words can be explained"),
        (["search", "--image", "nowhere.png"], "nowhere.png"),
        (["search", "a dog", "--ann"], "no approximate search"),
        (["search", "a dog", "--store", "nothing"], "no photo index"),
        (["index", "nowhere"], "this is no folder"),
        (["index", "photos/red.png"], "this is no folder"),
    ],
)
def test_mistakes_get_a_sentence(model, photos, capsys, arguments, words):
    commands.main(command(model, "index", "photos", "--quiet"))
    assert commands.main(command(model, *arguments)) == 2
    assert words in capsys.readouterr().err


def test_a_folder_without_photos_is_told_and_nothing_is_found_there(model, photos, capsys):
    Path("none").mkdir()
    assert commands.main(command(model, "index", "none", "--store", "empty")) == 1
    assert "No photo was found" in capsys.readouterr().err
    assert commands.main(command(model, "search", "a dog", "--store", "empty")) == 1
    assert capsys.readouterr() == ("", "No photo was found in empty.\n")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stopped_it_is_searchable_and_goes_on(model, tmp_path, how, capsys):
    folder, at = tmp_path / "photos", tmp_path / "store"
    folder.mkdir()
    for number in range(100):
        draw_photo(folder / f"{number:03}.png", (90 + number, 90))
    arguments = command(model, "index", folder, "--store", at)
    running = start([sys.executable, "-m", "sightline", *arguments])
    limit = time.monotonic() + 60
    while not ((engine := engine_at(at)) and len(engine)) and time.monotonic() < limit:
        time.sleep(0.01)
    running.send_signal(how)
    running.communicate(timeout=60)
    assert running.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    done = len(engine_at(at))
    assert 0 < done < 100
    assert commands.main(command(model, "search", "a dog", "--store", at, "-k", 500, "--json")) == 0
    assert len(json.loads(capsys.readouterr().out)) == done
    assert commands.main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kept"], told["made"], told["total"]) == (done, 100 - done, 100)


def test_a_bar_on_the_terminal_leaves_the_output_alone(model, photos):
    master, slave = pty.openpty()
    arguments = [sys.executable, "-m", "sightline", *command(model, "index", "photos", "--json")]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=slave, text=True, check=True)
    os.close(slave)
    assert json.loads(done.stdout)["made"] == 3
    assert b"indexing" in os.read(master, 65536)
    os.close(master)


def test_asking_for_help_brings_no_torch():
    code = "import sys, sightline.cli.index_command; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
