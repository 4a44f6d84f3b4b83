"""`benchmarks/caption_speed.py`: what is measured with, and how numbers become rows. No test is about time."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bundle_samples import tiny_bundle
from sightline.checkpoint.bundle import default_bundle, load_bundle, save_bundle

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import caption_speed as speed  # noqa: E402
import speed_material as material  # noqa: E402


def test_the_photos_are_jpegs_of_the_size_and_all_different(tmp_path):
    paths = material.make_photos(tmp_path, 24, (64, 48))
    pictures = []
    for path in paths:
        with Image.open(path) as image:
            assert (image.format, image.size, image.mode) == ("JPEG", (64, 48), "RGB")
            pictures.append(np.asarray(image).tobytes())
    assert len(set(pictures)) == 24


def test_more_photos_than_the_examples_give_are_refused(tmp_path):
    most = len(material.CROPS) * len(material.CORNERS) * 2 * len(list(material.EXAMPLES.glob("*.jpg")))
    with pytest.raises(ValueError, match="were asked for"):
        material.make_photos(tmp_path, most + 1, (8, 6))


def test_the_random_model_has_the_default_sizes():
    bundle = material.random_bundle()
    shipped = load_bundle(default_bundle())
    assert replace(bundle.vision.config, imagenet=True) == shipped.vision.config
    assert bundle.fit == shipped.fit
    assert bundle.captioner.model.config == material.SceneTransConfig()
    assert bundle.matcher.model.config == material.SceneMatcherConfig()
    assert len(bundle.captioner.vocabulary) >= material.WORDS


@pytest.mark.parametrize(
    ("share", "value"), [(0.9, 9), (0.5, 5), (0.0, 1), (1.0, 10), (0.91, 10)], ids=["p90", "p50", "p0", "p100", "p91"]
)
def test_a_percentile_is_one_of_the_values(share, value):
    assert speed.percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], share) == value


def turn(per_s, cpu, peak=500.0):
    return {"per_s": per_s, "cpu": cpu, "words": 9.5, "peak_mb": peak}


BLIP = [{"per_s": 0.5, "cpu": 3000.0}, {"per_s": 0.4, "cpu": 2400.0}]
GIT = [{"per_s": 1.0, "cpu": 1500.0}, {"per_s": 2.0, "cpu": 1600.0}]


def column(blip=BLIP, git=GIT):
    peers = {"blip": blip, "git": git}
    alone = {"median": 80.0, "p90": 95.0, "cpu": 70.0}
    return speed.column(alone, [turn(10.0, 60.0), turn(20.0, 80.0, 600.0)], peers, [2.0, 1.0, 9.0], alone, turn(5, 1))


def test_the_best_turn_of_each_side_makes_the_ratio():
    found = column()
    assert found["photos_per_s"] == 20
    assert found["blip_per_s"] == 0.5
    assert found["ratio"] == 40
    assert found["cpu_ratio"] == 2400 / 60
    assert (found["git_per_s"], found["git_cpu_ms"], found["git_ratio"]) == (2, 1500, 10)
    assert found["peak_mb"] == 600
    assert found["cold_s"] == 2


def test_without_blip_there_is_no_ratio():
    assert "ratio" not in column(blip=[])


def report(**columns):
    place = {"cpu": "a CPU", "cores": 2, "load": 0.1, "torch": "2", "transformers": None}
    model = {"model": "m.safetensors", "mib": 21.0, "trained": True, "cider": 118.2}
    return {"machine": place, **model, "threads": columns}


def test_the_printed_report_has_every_row_with_its_bar_and_both_ciders():
    text = speed.printed(report(**{"1": column(), "2": column()}))
    for key, (title, _) in speed.ROWS.items():
        line = next(line for line in text.splitlines() if line.startswith(title))
        assert speed.BARS.get(key, "") in line
    assert "133.3" in text
    assert "118.2" in text


def test_rows_that_nobody_measured_are_not_printed():
    text = speed.printed(report(**{"2": column([], [])}))
    assert "BLIP" not in text
    assert "GIT" not in text


def test_peers_see_squares_that_are_normalised(tmp_path):
    path = tmp_path / "grey.png"
    Image.new("RGB", (30, 20), (128, 128, 128)).save(path)
    pixels = speed.peer_pixels([str(path)] * 2, 96)
    assert pixels.shape == (2, 3, 96, 96)
    expected = (128 / 255 - np.array([0.48145466, 0.4578275, 0.40821073])) / [0.26862954, 0.26130258, 0.27577711]
    np.testing.assert_allclose(pixels[1, :, 7, 50].numpy(), expected, rtol=1e-5)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_bundle(path, tiny_bundle())
    return path


def test_workers_say_as_many_words_as_they_are_told(model, tmp_path):
    photos = [str(path) for path in material.make_photos(tmp_path, 3, (64, 48))]
    found = speed.folder({"model": str(model), "threads": 1, "words": 4, "photos": photos})
    assert found["words"] == 4
    assert found["per_s"] > 0
    alone = speed.one({"model": str(model), "threads": 1, "words": 4, "photos": photos})
    assert 0 < alone["median"] <= alone["p90"]


def test_a_whole_run_without_blip_prints_json(model):
    few = ["--one", "2", "--folder", "2", "--large", "1", "--blip", "0", "--turns", "1", "--cold", "1"]
    run = subprocess.run(
        [sys.executable, str(BENCHMARKS / "caption_speed.py"), "--model", str(model), "--threads", "1", *few, "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    found = json.loads(run.stdout)
    of_peers = {"blip_per_s", "blip_cpu_ms", "ratio", "cpu_ratio", "git_per_s", "git_cpu_ms", "git_ratio"}
    assert set(found["threads"]["1"]) == set(speed.ROWS) - of_peers | {"words"}
    assert found["trained"]


def test_a_worker_that_fails_says_why(tmp_path):
    with pytest.raises(SystemExit, match="no-such-model"):
        speed.in_a_process("one", {"model": str(tmp_path / "no-such-model"), "threads": 1, "words": 4, "photos": []})
