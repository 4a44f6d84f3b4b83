"""The notebook in examples/ runs from its first cell to its last, and keeps no output that could go stale."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.checkpoint import bundle as bundles
from sightline.checkpoint.bundle import save_bundle

torch.set_num_threads(1)
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(notebook, tmp_path, monkeypatch, capsys):
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    save_bundle(tmp_path / "tiny.safetensors", tiny_bundle())
    monkeypatch.setattr(bundles, "default_bundle", lambda: tmp_path / "tiny.safetensors")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path / "examples")
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(notebook)):
        exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
    assert len(names["captions"]) == len(names["frame"]) == 5
    assert "cat.jpg: " in capsys.readouterr().out
    assert sorted(path.name for path in Path().iterdir()) == sorted(path.name for path in EXAMPLES.iterdir())


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_keeps_no_output(notebook):
    assert cells(notebook)
    assert [cell for cell in cells(notebook) if cell["outputs"] or cell["execution_count"] is not None] == []


def cells(notebook: Path) -> list[dict]:
    """The cells of code."""
    whole = json.loads(notebook.read_text())
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in whole["cells"]]
    assert len(set(ids)) == len(ids)
    return [cell for cell in whole["cells"] if cell["cell_type"] == "code"]
