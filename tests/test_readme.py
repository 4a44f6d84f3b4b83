"""Every command in README runs, so that it stays true."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from captioner_contract import REGION_WIDTH
from sightline.scene import Scene
from sightline.vision.store import FeatureStore
from test_converters import write_updown

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
LINES = [line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line]
COMMANDS = [shlex.split(line, comments=True) for line in LINES]
CONVERT = next(command for command in COMMANDS if command[1] == "convert")


@pytest.fixture
def folder(tmp_path) -> Path:
    """The examples, a released checkpoint, and features of a photo."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    write_updown(tmp_path)
    with FeatureStore.writer(tmp_path / "scenes", fingerprint="") as writer:
        writer.add(Scene("photo.jpg", regions=np.ones((3, REGION_WIDTH), np.float32)))
    return tmp_path


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] == "sightline"], ids=" ".join)
def test_a_command_in_readme_runs(command, folder):
    run(command if command[1] != "likelihood" else CONVERT, folder)
    if command[1] == "likelihood":  # it needs what the command before it makes
        run(command, folder)


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] == "make"], ids=" ".join)
def test_a_make_target_in_readme_exists(command):
    done = subprocess.run([*command, "-n"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_bash_line_is_a_command_that_is_tested():
    assert {command[0] for command in COMMANDS} == {"sightline", "make"}


def test_the_python_example_runs(tmp_path):
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        subprocess.run([sys.executable, "-c", block], cwd=tmp_path, check=True, timeout=120)


def test_every_relative_link_leads_somewhere():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("http") or (ROOT / link).exists(), link


def test_make_alone_lists_the_targets():
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "checks", "bench", "docs"):
        assert f"make {target}" in shown
