"""The diagrams and parameter counts in the documentation are those of the models."""

import subprocess
import sys
from pathlib import Path

import sightline

ROOT = Path(sightline.__file__).parents[2]


def test_the_pages_are_what_the_command_makes():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "method_pages.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
