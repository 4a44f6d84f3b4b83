"""`tools/kill_tally.py`: jobs survive a few kills, and a job that writes carelessly does not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
CARELESS = """
import sys
from pathlib import Path
import kill_tally

def run(folder):
    for number in range(20):
        with open(folder / "numbers", "w") as file:
            file.write(f"{number:09d}")

def check(folder):
    text = (folder / "numbers").read_text() if (folder / "numbers").exists() else "0" * 9
    assert len(text) == 9, "torn"

job = kill_tally.Job(run, check, lambda whole, folder: None, kill_tally.make_folder)
tally = kill_tally.count_tries(job, 6, Path(sys.argv[1]), "0")
print(tally.survived, *{lost.rpartition(" ")[2] for lost in tally.lost})
"""


def run(*arguments: str) -> str:
    """A process of its own: it forks, which one with threads must not."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TOOLS, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_jobs_that_are_killed_end_as_if_nobody_had():
    names = ("train", "extract", "caption", "index", "checkpoint")
    told = json.loads(run("kill_tally.py", "--tries", "2", "--what", *names, "--seed", "1"))
    for name in names:
        assert told[name]["tries"] == told[name]["survived"] == 2
        assert sum(told[name]["kills"].values()) >= 2


def test_a_job_that_writes_in_place_is_caught(tmp_path):
    survived, *why = run("-c", CARELESS, str(tmp_path)).split()
    assert int(survived) < 6
    assert why == ["torn"]
