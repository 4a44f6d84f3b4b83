"""`benchmarks/caption_profile.py`: every stage of a caption is there, and together they are the whole."""

import sys
from pathlib import Path

import pytest

import sightline
from sightline import pipeline as steps

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import caption_profile  # noqa: E402


def test_the_stages_of_a_caption_make_up_its_time(tmp_path, monkeypatch):
    for name in ("decode", "trace_captions", "choose_boxes"):  # which the profile replaces
        monkeypatch.setattr(steps, name, getattr(steps, name))
    paths = caption_profile.photos(None, 2, tmp_path)
    stages = caption_profile.profile(sightline.load(), paths, 1)
    assert all(wall > 0 for wall, _ in stages.values())
    parts = [wall for name, (wall, _) in stages.items() if name != "total"]
    assert sum(parts) == pytest.approx(stages["total"][0], rel=0.5)  # medians of two photos
