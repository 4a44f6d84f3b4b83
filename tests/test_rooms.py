"""Imports go only downwards between rooms (docs/architecture.md draws the house), and names of modules say one
thing.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import sightline

ROOT = Path(sightline.__file__).parent

# From the ground up: a room may import itself and what stands before it.
ORDER = (
    *("errors", "files", "config", "scene", "caption", "photo"),  # numpy only
    *("text", "batch", "devices", "vision", "data", "models", "decoding", "grounding", "checkpoint", "metrics"),
    *("jobs", "training", "search", "distinct_captions", "pipeline"),
    *("draw", "export", "serve", "cli", "__main__"),
)
CURRENCY = {"errors", "files", "config", "scene", "caption", "photo"}
ONLY = {  # rooms that need far less than what stands before them
    "text": CURRENCY,
    "draw": CURRENCY | {"text", "batch", "devices", "vision"},
    "export": CURRENCY,
    "devices": {"errors"},
    "__main__": {"cli"},
}
# Names that end like a participle and are the field's own words.
NOUNS = {"sampling", "distributed"}
PARTICIPLES = {"told", "said", "found", "seen", "held", "drawn", "known", "made", "kept", "gone", "going", "looking"}
FILES = sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms: set[str] = set()
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
            if parts[0] == "sightline" and len(parts) > 1 and parts[1] in ORDER:
                rooms.add(parts[1])
    return rooms


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_only_from_rooms_below(path):
    room = room_of(path)
    if room == "__init__":
        return  # public names are lazy
    assert room in ORDER, f"{path} is in no room"
    below = ONLY.get(room, set(ORDER[: ORDER.index(room)]))
    assert imported_rooms(path) - {room} <= below


def test_no_two_modules_share_a_name():
    names = Counter(path.name for path in FILES if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_is_named_by_a_participle():
    stems = {path.stem for path in FILES} - NOUNS
    assert [stem for stem in stems if stem in PARTICIPLES or re.fullmatch(r"[a-z]+(ing|ed)", stem)] == []


def test_tests_stand_in_the_rooms_of_what_they_test():
    """tests/vision/test_detector.py is about vision/detector.py, or begins with the name of what it is about."""
    here = Path(__file__).parent
    modules = {path.relative_to(ROOT).with_suffix("").as_posix() for path in FILES}
    elsewhere = {"tools", "benchmarks", "docs", "weights"}  # what they test is no module
    lost = []
    for path in here.rglob("test_*.py"):
        folder = path.parent.relative_to(here).as_posix()
        if folder.split("/")[0] in elsewhere or path.name in WHOLE_HOUSE:
            continue
        name = path.stem.removeprefix("test_")
        tested = name if folder == "." else f"{folder}/{name}"
        if not any(tested == module or tested.startswith(f"{module}_") for module in modules):
            lost.append(path.relative_to(here).as_posix())
    assert lost == []


WHOLE_HOUSE = {
    "test_rooms.py",
    "test_hostile_files.py",
    "test_waiting_threads.py",
    "test_page.py",
    "test_draw_models.py",
}  # about no one module


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
