"""The walk from a batch to its optimiser step, as docs/architecture.md draws it: counted while a tiny run trains.

Counted are the modules of Sightline that a reader passes: those whose functions stand on the call stack when the
optimiser steps, and those whose functions were called, in the loop's thread or in the one that makes batches, since the
step before. The second step of a run is taken, so that what is set up once is not counted. Import is not counted.
"""

import re
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

import sightline
from learning_samples import write_dataset, write_recipe
from sightline.cli import main

torch.set_num_threads(1)
MOST = 25
PACKAGE = Path(sightline.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def module_of(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    inside = PACKAGE in path.parents and frame.f_code.co_name != "<module>"
    return path.relative_to(PACKAGE).as_posix() if inside else None


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """The modules of the second step of `sightline train`."""
    root = tmp_path_factory.mktemp("walk")
    recipe = write_recipe(root / "recipe.yaml")
    called: set[str] = set()
    steps: list[set[str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (module := module_of(frame)) is not None:
            called.add(module)

    def step(*_: object) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            note(frame, "call", None)
            frame = frame.f_back
        steps.append(set(called))
        called.clear()
        sys.setprofile(note if len(steps) == 1 else None)  # from the first step to the second

    hook = register_optimizer_step_pre_hook(step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIGHTLINE_DATA", str(write_dataset(root / "data")))
        threading.setprofile(note)  # of the thread that makes batches
        try:
            main(["train", str(recipe), "short", "--out", str(root / "out"), "--device", "cpu", "--quiet"])
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]
            hook.remove()
    return steps[1]


def test_a_batch_passes_few_files_to_its_optimiser_step(walk):
    assert "training/batches.py" in walk  # the thread that makes batches is watched too
    assert "training/loop.py" in walk
    assert len(walk) <= MOST, sorted(walk)


def test_the_page_names_every_file_of_training_on_the_way(walk):
    section = re.search(r"^## A batch to its optimiser step\n(.*?)(?=^## )", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert section is not None
    named = set(re.findall(r"`(training/[\w/]+\.py)`", section[1]))
    assert named == {module for module in walk if module.startswith("training/")}
    assert f"at most {MOST} files" in section[1]
