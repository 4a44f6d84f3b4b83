"""`sightline extract`: a folder of photos to a feature store, by hand and by script."""

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
from PIL import Image

from bundle_samples import awaken, draw_photo
from interrupting import start
from sightline.checkpoint.bundle import Bundle, save_bundle
from sightline.checkpoint.model_checkpoint import Checkpoint, load, save
from sightline.cli import commands
from sightline.errors import CheckpointError
from sightline.jobs import extract_job
from sightline.models.end_to_end import end_to_end
from sightline.models.updown import UpDownConfig
from sightline.text.vocabulary import Vocabulary
from sightline.vision.detector import DetectorConfig
from sightline.vision.feature_store import FeatureStore
from sightline.vision.grid_encoder import ImageNetEncoder

torch.set_num_threads(1)
WORDS = Vocabulary(["dog", "cat"])


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """The checkpoint of a captioner with a detector of five boxes."""
    torch.manual_seed(0)
    config = DetectorConfig(variant="lite0", size=64, channels=8, region_width=6, names=("dog", "ball"), boxes=5)
    vision = config.build()
    awaken(vision)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    save(path, Checkpoint(end_to_end(captioner(), vision.eval()), WORDS))
    return path


def captioner():
    return UpDownConfig(region_width=6, word_size=8, hidden_size=8, attention_size=8).build(len(WORDS))


@pytest.fixture
def photos(tmp_path) -> Path:
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    draw_photo(folder / "a.jpg")
    draw_photo(folder / "b.png", (90, 140), "blue")
    draw_photo(folder / "more" / "c.jpg", colour="green")
    return folder


def command(model: Path, *arguments: object) -> list[str]:
    options = ("--model", str(model), "--device", "cpu", "--threads", "1")
    return ["extract", *map(str, arguments), *options]


def child(model: Path, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "sightline", *command(model, *arguments)]


def test_a_folder_is_extracted_and_gone_on_with(model, photos, tmp_path, capsys):
    out = tmp_path / "scenes"
    assert commands.main(command(model, photos, "--out", out)) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 3 scenes; 3 made now (")
    store = FeatureStore(out)
    assert store.ids() == ("a.jpg", "b.png", "more/c.jpg")
    assert store["b.png"].size == (90, 140)
    assert all(len(scene) == 5 for scene in store)
    draw_photo(photos / "d.jpg")
    assert commands.main(command(model, photos, "--out", out)) == 0
    assert "4 scenes; 1 made now" in capsys.readouterr().out
    assert commands.main(command(model, photos, "--out", out)) == 0
    assert capsys.readouterr().out == f"{out}: 4 scenes; none new, 4 were there\n"


def test_json_tells_all_and_bad_files_are_told_once(model, photos, tmp_path, capsys):
    (photos / "bad.jpg").write_text("<html>404</html>")
    arguments = command(model, photos, "--out", tmp_path / "scenes")
    assert commands.main([*arguments, "--json"]) == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert {key: told[key] for key in ("store", "photos", "made", "kept")} == {
        "store": str(tmp_path / "scenes"),
        "photos": 4,
        "made": 3,
        "kept": 0,
    }
    assert told["fingerprint"] == FeatureStore(tmp_path / "scenes").fingerprint
    assert told["bad"][0]["path"] == str(photos / "bad.jpg")
    assert told["bad"][0]["error"] == "this is a web page"
    assert told["bad"][0]["new"] is True
    assert "1 file was left out" in shown.err
    assert commands.main([*arguments, "--json"]) == 0
    shown = capsys.readouterr()
    assert [bad["new"] for bad in json.loads(shown.out)["bad"]] == [False]
    assert shown.err == "1 file reported before is still left out; --json lists all\n"


def test_quiet_says_nothing_of_what_went_well(model, photos, tmp_path, capsys):
    assert commands.main([*command(model, photos, "--out", tmp_path / "scenes"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_numbers_of_boxes_are_obeyed(model, photos, tmp_path, capsys):
    for boxes, counts in (("3", {3}), ("2..20", set(range(2, 21)))):
        out = tmp_path / boxes
        assert commands.main([*command(model, photos, "--out", out), "--boxes", boxes, "--batch", "2"]) == 0
        assert {len(scene) for scene in FeatureStore(out)} <= counts
    capsys.readouterr()
    assert commands.main([*command(model, photos, "--out", tmp_path / "3"), "--boxes", "4"]) == 2
    assert "one store holds the scenes of one vision model and box rule" in capsys.readouterr().err


def test_a_bundle_sees_too(model, photos, tmp_path):
    bundle = Bundle.of(load(model))
    save_bundle(tmp_path / "bundle.safetensors", bundle, "float32")
    assert commands.main(command(tmp_path / "bundle.safetensors", photos, "--out", tmp_path / "scenes")) == 0
    store = FeatureStore(tmp_path / "scenes")
    assert store.fingerprint == bundle.vision.fingerprint()
    assert [len(scene) for scene in store] == [5] * 3


def test_the_shipped_bundle_is_the_default(model, photos, tmp_path, monkeypatch):
    bundle = Bundle.of(load(model))
    save_bundle(tmp_path / "bundle.safetensors", bundle, "float32")
    monkeypatch.setattr(extract_job, "default_bundle", lambda: tmp_path / "bundle.safetensors")
    assert commands.main(["extract", str(photos), "--out", str(tmp_path / "scenes"), "--device", "cpu"]) == 0
    assert FeatureStore(tmp_path / "scenes").fingerprint == bundle.vision.fingerprint()


def test_imagenet_is_the_grid_encoder(photos, tmp_path, monkeypatch, capsys):
    """With random weights in place of ImageNet's, which a package of its own holds."""
    encoder = ImageNetEncoder("lite0", 64).eval()
    monkeypatch.setattr(ImageNetEncoder, "imagenet", lambda: encoder)
    arguments = command(Path("imagenet"), photos, "--out", tmp_path / "scenes")
    assert commands.main(arguments) == 0
    assert FeatureStore(tmp_path / "scenes").fingerprint == encoder.fingerprint()
    assert commands.main([*arguments, "--boxes", "36"]) == 2
    assert "cells of its grid" in capsys.readouterr().err


def test_a_model_without_eyes_is_refused(tmp_path):
    save(tmp_path / "blind.safetensors", Checkpoint(captioner(), WORDS))
    with pytest.raises(CheckpointError, match="updown model reads features and has no eyes"):
        extract_job.vision_of(tmp_path / "blind.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(CheckpointError, match="not a Sightline model"):
        extract_job.vision_of(tmp_path / "text.safetensors")


def test_mistakes_get_a_sentence_and_make_no_store(model, photos, tmp_path, capsys):
    out = tmp_path / "scenes"
    for arguments, words in (
        ([photos, "--batch", "0"], "`batch` is 0"),
        ([photos, "--boxes", "some"], "`boxes` is 'some'"),
        ([tmp_path / "nothing"], "no such file or folder"),
        ([photos / "a.jpg"], "this is a file"),
    ):
        assert commands.main(command(model, *arguments, "--out", out)) == 2
        assert words in capsys.readouterr().err
    for threads in ("0", "100000"):
        assert commands.main(["extract", str(photos), "--out", str(out), "--threads", threads]) == 2
        assert f"`threads` is {threads}" in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_without_photos_is_told(model, tmp_path, capsys):
    (tmp_path / "none").mkdir()
    assert commands.main(command(model, tmp_path / "none", "--out", tmp_path / "scenes")) == 1
    assert "No photo was found" in capsys.readouterr().err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stopped_it_goes_on_to_what_it_would_have_been(model, tmp_path, how):
    folder, out = tmp_path / "photos", tmp_path / "scenes"
    folder.mkdir()
    for number in range(120):
        Image.new("RGB", (70, 70), (number, 99, number // 2)).save(folder / f"{number:03}.png")
    arguments = child(model, folder, "--out", out, "--batch", "4")
    running = start(arguments)
    ledger, limit = out / "ledger.jsonl", time.monotonic() + 60
    while not (ledger.exists() and ledger.stat().st_size) and time.monotonic() < limit:
        time.sleep(0.01)
    running.send_signal(how)
    _, err = running.communicate(timeout=60)
    assert running.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert ("Nothing is half-written" in err) == (how == signal.SIGINT)
    stopped = FeatureStore(out)
    assert 0 < len(stopped) < 120
    assert stopped.verify() == {}
    done = subprocess.run([*arguments, "--json"], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert told["made"] + told["kept"] == 120
    assert told["kept"] >= len(stopped) - 4
    assert commands.main(command(model, folder, "--out", tmp_path / "whole", "--batch", "4", "--quiet")) == 0
    found, whole = FeatureStore(out), FeatureStore(tmp_path / "whole")
    assert sorted(found.ids()) == sorted(whole.ids())
    for scene in whole:
        assert abs(found[scene.id].vector.astype(float) - scene.vector).max() < 0.01


def test_a_bar_on_the_terminal_leaves_the_output_alone(model, photos, tmp_path):
    master, slave = pty.openpty()
    arguments = child(model, photos, "--out", tmp_path / "scenes", "--json")
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=slave, text=True, check=True)
    os.close(slave)
    assert json.loads(done.stdout)["made"] == 3
    assert b"extracting" in os.read(master, 65536)
    os.close(master)
