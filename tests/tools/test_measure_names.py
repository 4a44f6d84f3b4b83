"""tools/measure_names.py: whether captions say names; a folder must have a photo of each class."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from PIL import Image

TOOL = Path(__file__).parents[2] / "tools" / "measure_names.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("measure_names", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("caption", "name", "found"),
    [
        ("two leopards in a tree", "leopard", True),
        ("a teddy bear on a bed", "teddy bear", True),
        ("a bear with a teddy", "teddy bear", False),
        ("a carpet", "car", False),
    ],
)
def test_a_name_is_said_in_singular_or_plural_and_whole(tool, caption, name, found):
    assert tool.says(caption.split(), name) is found


def test_a_folder_without_a_photo_of_each_class_is_refused(tool, tmp_path: Path):
    Image.new("RGB", (8, 8)).save(tmp_path / "n01440764_tench.JPEG")
    with pytest.raises(SystemExit, match="1 photos for 1000 classes"):
        tool.main([str(tmp_path)])
