"""Whatever stops a run, its last state is whole and the same command goes on to the same bits."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loop_samples import Child, assert_same_runs, last_state, run_tiny, tiny_run
from sightline.training.loop import train
from sightline.training.state import load_state, states

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed run."""
    out = tmp_path_factory.mktemp("whole")
    assert Child(run_tiny, out).told() == "done"
    return out


def run_until_write(send: Callable[[Any], None], out: Path, number: int) -> None:
    """Train, and die after the bytes of the `number`-th write are on disk, before anybody knows."""
    real = os.fsync

    def fsync(handle: int) -> None:
        nonlocal number
        number -= 1
        real(handle)
        if number == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = fsync
    train(tiny_run(out, report=send))


def run_without_space(send: Callable[[Any], None], out: Path, step: int) -> None:
    """Train until no file may grow beyond a few bytes."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def report(line: dict[str, Any]) -> None:
        send(line)
        if line["step"] == step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.RLIM_INFINITY))

    train(tiny_run(out, report=report))


def run_slowly(send: Callable[[Any], None], out: Path) -> None:
    """Train, a line of the log at a time, slowly enough to be interrupted anywhere."""

    def report(line: dict[str, Any]) -> None:
        send(line)
        time.sleep(0.05)

    train(tiny_run(out, report=report))


def assert_readable(out: Path) -> None:
    for path in states(out):
        load_state(path)


@pytest.mark.parametrize("seed", range(2))
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(tmp_path: Path, whole: Path, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(4):
        child = Child(run_tiny, tmp_path)
        for _ in range(chance.randint(0, 3)):
            child.heard()
        time.sleep(chance.random() * 0.1)
        child.process.kill()
        child.process.join()
        assert_readable(tmp_path)
    assert Child(run_tiny, tmp_path).told() == "done"
    assert_same_runs(whole, tmp_path)


def test_a_run_killed_while_it_writes_ends_with_the_same_bits(tmp_path: Path, whole: Path) -> None:
    chance = random.Random(0)
    killed = 0
    while Child(run_until_write, tmp_path, chance.randint(1, 14)).told() != "done":
        assert_readable(tmp_path)
        killed += 1
        assert killed < 40
    assert killed > 3
    assert_same_runs(whole, tmp_path)
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_ends_and_the_run_goes_on(tmp_path: Path, whole: Path, number: int) -> None:
    child = Child(run_slowly, tmp_path)
    child.until(lambda line: line["stage"] == "second")
    child.signal(number)
    assert child.told() == "KeyboardInterrupt: "
    assert last_state(tmp_path)[0].stage == 1
    assert not (tmp_path / "model.safetensors").exists()
    assert Child(run_tiny, tmp_path).told() == "done"
    assert_same_runs(whole, tmp_path)


@pytest.mark.parametrize("step", [4, 8])
def test_a_full_disk_is_a_sentence_and_costs_no_state(tmp_path: Path, whole: Path, step: int) -> None:
    told = Child(run_without_space, tmp_path, step).told()
    assert told.startswith("DataError: ")
    assert "cannot write: File too large. To fix: make room there" in told
    assert_readable(tmp_path)
    assert states(tmp_path)
    assert not list(tmp_path.glob(".*.tmp"))
    assert Child(run_tiny, tmp_path).told() == "done"
    assert_same_runs(whole, tmp_path)


def test_a_second_process_in_the_same_folder_is_refused_and_the_first_goes_on(tmp_path: Path, whole: Path) -> None:
    first = Child(run_slowly, tmp_path)
    first.heard()
    told = Child(run_tiny, tmp_path).told()
    assert told.startswith("DataError: ")
    assert "another process is writing here" in told
    assert first.told() == "done"
    assert_same_runs(whole, tmp_path)
