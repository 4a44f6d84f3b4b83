"""Every command in README runs, so that it stays true."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
LINES = [line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line]
COMMANDS = [shlex.split(line, comments=True) for line in LINES]
LOOKING = (
    "caption",
    "ground",
    "index",
    "search",
    "audit",
)  # need a model: here a tiny one, which says nothing sensible
BEFORE = {"search": "index"}  # what makes what a command needs


@pytest.fixture
def folder(tmp_path) -> Path:
    """The examples."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] == "sightline"], ids=" ".join)
def test_a_command_in_readme_runs(command, folder, tiny_model):
    if needed := BEFORE.get(command[1]):
        run(next(c for c in COMMANDS if c[1] == needed), folder, tiny_model)
    run(command, folder, tiny_model)


def run(command: list[str], folder: Path, model: Path) -> None:
    more = ["--model", os.fspath(model)] if command[1] in LOOKING else []
    done = subprocess.run(
        [sys.executable, "-m", *command, *more], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode in ((0, 1) if command[1] == "audit" else (0,)), done.stderr


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] == "make"], ids=" ".join)
def test_a_make_target_in_readme_exists(command):
    done = subprocess.run([*command, "-n"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_bash_line_is_a_command_that_is_tested():
    assert {command[0] for command in COMMANDS} == {"sightline", "make"}


def test_the_python_example_runs(folder, tiny_model):
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        script = block.replace("sightline.load()", f"sightline.load({os.fspath(tiny_model)!r})")
        subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, timeout=120)


def test_every_relative_link_leads_somewhere():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("http") or (ROOT / link).exists(), link


def test_make_alone_lists_the_targets():
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "checks", "bench", "docs"):
        assert f"make {target}" in shown


@pytest.mark.parametrize("left", [".sightline-index/x", "captioned/x.jpg", "demo-output/x", "runs/x"])
def test_git_ignores_what_the_commands_of_the_documentation_leave(left):
    assert subprocess.run(["git", "check-ignore", "-q", left], cwd=ROOT, check=False).returncode == 0


def test_extras_are_installed_into_the_clone_and_do_not_replace_it():
    lines = [line for page in (ROOT / "docs").rglob("*.md") for line in page.read_text().splitlines()]
    installing = [line for line in lines if re.search(r"pip install .*'\.\[", line)]
    assert installing
    assert all("pip install -e '.[" in line for line in installing)
