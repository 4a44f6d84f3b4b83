"""Threads that wait for each other sleep, and leave the processor to other programs."""

import os
import subprocess
import sys

import pytest

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# The processor time of a process that adds numbers with two threads now and then, and sleeps in between.
WORK = """
import time
import torch
torch.set_num_threads(2)
numbers = torch.ones(1_000_000)
numbers.add_(1)
began = time.process_time()
for _ in range(100):
    numbers.add_(1)
    time.sleep(0.005)
print(time.process_time() - began)
"""


def run(code: str, **choices: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in (*CHOICES, "OMP_NUM_THREADS")}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env={**environment, **choices}
    ).stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="the OpenMP of other systems spins differently")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="on one processor nobody spins for long")
def test_threads_that_wait_use_no_processor():
    spinning = float(run(WORK))
    sleeping = float(run(f"import sightline\n{WORK}"))
    assert sleeping < spinning / 3


@pytest.mark.parametrize(
    "module", ["sightline", "sightline.cli.commands", "sightline.pipeline", "sightline.jobs.job", "sightline.serve"]
)
def test_whatever_is_imported_first_the_choice_is_made_before_torch_is_there(module):
    code = f"""
import sys, os
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Watch())
import {module}
import torch
"""
    assert run(code) == "passive"


@pytest.mark.parametrize(
    ("name", "value"), [("OMP_WAIT_POLICY", "active"), ("GOMP_SPINCOUNT", "100"), ("KMP_BLOCKTIME", "200")]
)
def test_what_the_user_chose_stays(name, value):
    shown = run(f"import sightline, os; print({{n: os.environ.get(n) for n in {CHOICES}}})", **{name: value})
    assert shown == str({one: value if one == name else None for one in CHOICES})
