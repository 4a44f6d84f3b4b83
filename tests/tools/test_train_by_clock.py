"""A stage that ends by the clock: its learning rate falls to 0 at that time, and then it stops."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest

from sightline.training.reproduce import plan

TOOL = Path(__file__).parents[2] / "tools" / "train_by_clock.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("train_by_clock", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def clock(tool, monkeypatch):
    """The time, in a list that a test may change."""
    now = [1000.0]
    monkeypatch.setattr(tool.time, "time", lambda: now[0])
    return now


def test_the_rate_is_a_cosine_over_time_and_the_stage_stops_at_its_end(tool, clock):
    (row,) = plan(["jran/flickr8k#Baseline"], ["stages.cross-entropy.schedule.warmup=4"])
    stage = tool.by_clock(row.recipe, 1100.0).stages["cross-entropy"]
    assert stage.schedule.at(0, 1, 10) == pytest.approx(0.5)  # two of four steps of warm-up
    for seconds in (0, 25, 50, 100, 130):
        clock[0] = 1000.0 + seconds
        expected = 0.5 * (1 + math.cos(math.pi * min(1, seconds / 100)))
        assert stage.schedule.at(3, 500, 10) == pytest.approx(expected, abs=1e-9)
        assert stage.select.spent(0) == (seconds >= 100)


def test_only_the_last_stage_follows_the_clock(tool, clock):
    row = plan(["default/captioner#copying"])[-1]
    stages = tool.by_clock(row.recipe, 1100.0).stage_list()
    assert [isinstance(stage.select, tool.SelectionByClock) for stage in stages] == [False, True]
    assert stages[0] == row.recipe.stage_list()[0]


def test_a_time_that_is_over_is_refused(tool, capsys):
    with pytest.raises(SystemExit):
        tool.main(["5", "jran", "--table", "flickr8k", "--rows", "Baseline"])
    assert "that time is over" in capsys.readouterr().err
