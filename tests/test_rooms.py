"""Imports go only downwards between rooms (docs/architecture.md draws the house)."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sightline

ROOT = Path(sightline.__file__).parent

# From the ground up; a room may import itself and what its set names.
CORE = {"errors", "files", "scene", "caption", "look", "grounding", "trust", "config", "__init__"}
MODEL_SIDE = CORE | {
    *("text", "batch", "vision", "data", "models", "decoding", "seeing", "devices"),
    *("sealed", "packing", "checkpoint", "bundle", "witness"),
}
ROOMS = {
    "errors": set(),
    "files": {"errors"},
    "scene": {"errors", "files"},
    "caption": {"errors", "files", "scene"},
    "look": {"scene", "caption"},
    "config": {"errors", "files"},
    "devices": {"errors"},
    "grounding": {"scene"},
    "trust": {"errors", "scene", "caption"},
    "__init__": CORE,
    "text": CORE,
    "batch": CORE | {"text"},
    "vision": CORE | {"text", "batch", "devices"},
    "data": CORE | {"text", "batch", "vision"},
    "models": CORE | {"text", "batch", "devices"},
    "decoding": CORE | {"text", "batch", "models"},
    "seeing": CORE | {"text", "batch", "vision", "models"},
    "sealed": CORE,
    "packing": CORE,
    "checkpoint": CORE | {"text", "batch", "vision", "data", "models", "decoding", "seeing", "sealed"},
    "bundle": CORE | {"text", "vision", "models", "seeing", "sealed", "packing", "checkpoint"},
    "witness": CORE | {"text", "batch", "vision", "models", "bundle"},
    "converters": MODEL_SIDE,
    "metrics": CORE | {"text", "batch", "decoding"},
    "jobs": MODEL_SIDE,
    "learning": MODEL_SIDE | {"metrics", "jobs"},
    "search": MODEL_SIDE | {"metrics", "jobs"},
    "draw": CORE | {"vision"},
    "writing": CORE,
    "style": MODEL_SIDE | {"learning"},
    "looker": MODEL_SIDE | {"jobs"},
    "distinct": MODEL_SIDE | {"jobs", "looker"},
    "api": MODEL_SIDE | {"converters", "metrics", "learning", "jobs", "search", "draw", "looker", "distinct", "style"},
    "serve": MODEL_SIDE | {"converters", "metrics", "learning", "jobs", "search", "draw", "api"},
    "captioning": CORE | {"bundle", "decoding", "jobs", "api", "style"},
    "commands": MODEL_SIDE
    | {"converters", "metrics", "learning", "jobs", "search", "draw", "writing", "api", "serve"}
    | {"style", "distinct", "captioning"},
    "cli": CORE | {"commands"},
    "__main__": {"cli"},
}
FILES = sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            assert not isinstance(node, ast.ImportFrom), f"{path}: relative imports hide the room"
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "sightline" and len(parts) > 1:
                found.add(parts[1] if parts[1] in ROOMS else "__init__")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_only_from_rooms_below(path):
    room = room_of(path)
    assert room in ROOMS, f"{path} is in no room"
    if room == "__init__" or (room == "commands" and path.name == "completion.py"):
        return  # public names are lazy; completion reads the dict of commands it completes
    assert imported_rooms(path) - {room} <= ROOMS[room]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_sightline_brings_neither_torch_nor_numpy():
    assert run("import sys, sightline; print({'torch', 'numpy', 'rich', 'tyro'} & set(sys.modules) or '')") == ""


def test_currency_text_and_help_need_no_torch():
    code = "import sys, sightline.caption, sightline.text.vocabulary, sightline.cli; print('torch' in sys.modules)"
    assert run(code) == "False"


def test_public_names_are_listed_and_found():
    assert {"Scene", "Caption", "SceneBatch", "TextBatch"} <= set(dir(sightline))
    for name in sightline.__all__:
        assert getattr(sightline, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = sightline.nothing
