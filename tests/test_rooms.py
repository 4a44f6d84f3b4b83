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
    *("errors", "files", "config", "scene", "caption", "photo", "web_page"),  # numpy only
    *("text", "batch", "devices", "vision", "data", "models", "decoding", "grounding", "checkpoint", "metrics"),
    *("jobs", "training", "search", "distinct_captions", "pipeline"),
    *("draw", "export", "serve", "cli", "__main__"),
)
CURRENCY = {"errors", "files", "config", "scene", "caption", "photo", "web_page"}
ONLY = {  # rooms that need far less than what stands before them
    "text": CURRENCY,
    "draw": CURRENCY | {"text", "batch", "devices", "vision"},
    "export": CURRENCY | {"data"},
    "devices": {"errors"},
    "__main__": {"cli"},
}
# A public name is a noun or a verb; a participle tells that something was done, not what there is. It may stand
# before a noun (`PackedCaptions`), and after is_ and has_.
PARTICIPLES = frozenset(
    """asked begun broken brought built caught chosen done drawn forgotten found frozen given going gone grown heard
    held hidden kept known looking lost made meant paid said seen sent shown spoken taken taught thought thrown told
    wished worn written""".split()
)
NO_PARTICIPLES = frozenset(  # words that only look like one, and the field's own nouns
    """embed feed need red seed speed bring king ring something string thing batching decoding embedding encoding
    grounding hedging mapping matching packing padding pointing pooling preprocessing sampling scoring serving smoothing
    tagging training warning wording distributed""".split()
)
REQUIRED_BY_OTHERS = frozenset(  # of asyncio.Protocol
    "connection_made connection_lost data_received pause_writing resume_writing".split()
)
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


def test_only_commands_and_training_itself_import_training():
    importers = {room_of(path) for path in FILES if "training" in imported_rooms(path)}
    assert importers <= {"training", "cli"}


def test_no_two_modules_share_a_name():
    names = Counter(path.name for path in FILES if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


def last_word(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().rstrip("_").rpartition("_")[2]


def is_participle(name: str) -> bool:
    word = last_word(name)
    return word in PARTICIPLES or (re.fullmatch(r"[a-z]{2,}(ed|ing)", word) is not None and word not in NO_PARTICIPLES)


def public_names(path: Path) -> list[str]:
    """Its own, and those of its functions, classes and methods."""
    names = [path.stem]
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            inside = node.body if isinstance(node, ast.ClassDef) else []
            methods = [one.name for one in inside if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            names += [node.name, *(f"{node.name}.{name}" for name in methods if not name.startswith("_"))]
    return names


def test_no_public_name_is_a_participle():
    assert [
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        for name in public_names(path)
        if is_participle(own := name.rpartition(".")[2])
        and not own.startswith(("is_", "has_"))
        and own not in REQUIRED_BY_OTHERS
    ] == []


def test_the_lint_of_participles_knows_them():
    for name in ("told", "Found", "why_told", "photos_named", "Looking", "resampled"):
        assert is_participle(name)
    for name in ("tell", "PackedCaptions", "padded_rows", "embed", "Distributed", "finder", "sampling"):
        assert not is_participle(name)


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
    "test_faults.py",
    "test_wheel.py",
    "test_waiting_threads.py",
    "test_page.py",
    "test_draw_models.py",
}  # about no one module


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_sightline_brings_neither_torch_nor_numpy():
    assert run("import sys, sightline; print({'torch', 'numpy', 'rich'} & set(sys.modules) or '')") == ""


def test_currency_text_and_help_need_no_torch():
    code = "import sys, sightline.caption, sightline.text.vocabulary, sightline.cli; print('torch' in sys.modules)"
    assert run(code) == "False"


def test_public_names_are_listed_and_found():
    assert {"Scene", "Caption", "SceneBatch", "TextBatch"} <= set(dir(sightline))
    for name in sightline.__all__:
        assert getattr(sightline, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = sightline.nothing
