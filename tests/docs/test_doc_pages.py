"""What every page of the documentation shows runs: its Python and its commands on small files of the names it uses,
with a tiny model; the examples whose output it shows as tools/doc_examples.py runs them.
"""

import ast
import contextlib
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from feature_samples import sample_scenes
from serve_samples import served
from sightline.batch import SceneBatch
from sightline.caption import Caption, WordTrace
from sightline.checkpoint import bundle as bundles
from sightline.checkpoint import model_checkpoint
from sightline.checkpoint.bundle import Bundle, save_bundle
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.cli import commands
from sightline.data import bottom_up_tsv
from sightline.models.end_to_end import end_to_end
from sightline.models.updown import UpDownConfig
from sightline.pipeline import Pipeline
from sightline.scene import Scene
from sightline.vision.feature_store import FeatureStore

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from doc_examples import MARK, WITH_MODEL, examples, refreshed

torch.set_num_threads(1)
DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
WITH_PYTHON = [page for page in PAGES if BLOCK.search((DOCS / page).read_text())]
WITH_EXAMPLES = [page for page in PAGES if MARK.search((DOCS / page).read_text())]
SCENE = next(iter(sample_scenes(1, regions=3, width=8)))


@pytest.fixture(autouse=True)
def _no_datasets(monkeypatch):
    monkeypatch.delenv("SIGHTLINE_DATA", raising=False)  # a new user has none


def scene_of(id: str, fingerprint: str = "") -> Scene:
    return replace(SCENE, id=id, fingerprint=fingerprint)


def write_models(folder: Path, bundle: Bundle) -> None:
    """The checkpoints that pages name: Up-Down on features, and the two halves of a bundle."""
    says, finds = bundle.captioner, bundle.matcher
    assert finds is not None
    torch.manual_seed(0)
    config = UpDownConfig(region_width=8, word_size=8, hidden_size=16, attention_size=8)
    updown = Checkpoint(config.build(len(says.vocabulary)).eval(), says.vocabulary, says.text_rule)
    (folder / "run").mkdir()
    for name in ("updown.safetensors", "run/model.safetensors"):
        model_checkpoint.save(folder / name, updown)
    for name, one in (("captioner", says), ("matcher", finds)):
        model = end_to_end(one.model, bundle.vision)
        model_checkpoint.save(folder / f"{name}.safetensors", Checkpoint(model, one.vocabulary, one.text_rule))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The current folder, with what pages speak of; a tiny model stands in the place of Sightline's own."""
    bundle = tiny_bundle()
    save_bundle(tmp_path / "tiny.safetensors", bundle)
    monkeypatch.setattr(bundles, "default_bundle", lambda: tmp_path / "tiny.safetensors")
    for name in ("examples", "photos", "holiday", "more"):
        (tmp_path / name).mkdir()
        for photo in ("cat.jpg", "coffee.jpg"):
            shutil.copy(EXAMPLES / photo, tmp_path / name)
    for name in ("photo.jpg", "a.jpg", "b.jpg", "IMG_0001.HEIC"):
        shutil.copy(EXAMPLES / "cat.jpg", tmp_path / name)
    write_models(tmp_path, bundle)
    bottom_up_tsv.write_scenes(tmp_path / "karpathy_val.tsv", [scene_of("391895")])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextlib.contextmanager
def server() -> Iterator[dict[str, str]]:
    with served(Pipeline(tiny_bundle())) as running:
        yield {"http://127.0.0.1:8000": running.address}


def stored_scene() -> dict[str, Any]:
    with FeatureStore.writer("scenes", fingerprint="f00d") as writer:
        writer.add(scene_of("photo.jpg", "f00d"))
    return {}


# What pages take for granted: names that a reader has, and what differs here from a reader's machine.
GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "captions.md": lambda: {"paths": ["photos/cat.jpg", "photos/coffee.jpg"]},
    "decoding.md": lambda: {"scenes": SceneBatch.collate([SCENE])},
    "feature-store.md": lambda: {"scenes": [scene_of("391895", "my-detector-v1")]},
    "pictures.md": lambda: {
        "scene": SCENE,
        "caption": Caption(("dog",), 0.0, (WordTrace(regions=torch.ones(3).numpy()),)),
    },
    "troubleshooting.md": stored_scene,
}
ELSEWHERE: dict[str, Callable[[], contextlib.AbstractContextManager[dict[str, str]]]] = {
    "serving.md": server,
    "scenes.md": lambda: contextlib.nullcontext({'"cuda"': '"cpu"'}),
}


@pytest.mark.parametrize("page", WITH_PYTHON)
@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore:OpenCV")
def test_the_python_of_a_page_runs_and_gives_what_its_comments_say(page):
    names: dict[str, Any] = {"__name__": "__main__", **GIVEN.get(page, dict)()}
    text = (DOCS / page).read_text()
    with ELSEWHERE.get(page, contextlib.nullcontext[dict[str, str]])() as changes:
        for block in BLOCK.finditer(text):
            code = block[1]
            for old, new in (changes or {}).items():
                assert old in code
                code = code.replace(old, new)
            run(code, names, f"{page}, line {text.count(chr(10), 0, block.start()) + 1}")


def run(code: str, names: dict[str, Any], where: str) -> None:
    """Run a block; the value of a line that ends in a comment with a value is that value."""
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), where, "exec"), names)
            continue
        value = eval(compile(ast.Expression(statement.value), where, "eval"), names)
        _, marked, comment = lines[(statement.end_lineno or 1) - 1].rpartition("  # ")
        with contextlib.suppress(SyntaxError, ValueError):
            if marked:
                assert value == ast.literal_eval(comment), f"{where}: {ast.unparse(statement)}"


def test_a_value_in_a_comment_is_compared():
    run("1 + 1  # 2\n1 + 1  # two", {}, "here")
    with pytest.raises(AssertionError, match=re.escape("here: 1 + 1")):
        run("x = 1\n1 + 1  # 3", {}, "here")


def test_every_page_that_is_given_something_has_python():
    assert {*GIVEN, *ELSEWHERE} <= set(WITH_PYTHON)


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_the_examples_of_a_page_run_and_show_what_no_model_decides(page):
    """Exit codes are the ones it names. What a model says may change with it, and is not compared here."""
    old = (DOCS / page).read_text()
    new = refreshed(old, page, None)
    for before, after in zip(examples(old, page), examples(new, page), strict=True):
        by_model = re.search(rf"sightline ({'|'.join(WITH_MODEL)})\b|curl", before.command) and before.code != 2
        if before.block is not None and after.block is not None and not by_model:
            assert new[slice(*after.block)] == old[slice(*before.block)], f"python tools/doc_examples.py docs/{page}"


BARE = re.compile(r"(?<! -->\n)^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_output_that_a_page_shows_stands_below_its_command():
    bare = {page: BARE.findall((DOCS / page).read_text()) for page in PAGES}
    commands_of = {
        page: re.findall(r"^\$ .*", "".join(blocks), re.MULTILINE) for page, blocks in bare.items() if blocks
    }
    assert list(commands_of) == ["beyond-one-machine.md"]
    for line in commands_of["beyond-one-machine.md"]:  # they need a cluster, and photos that we may not ship
        words = shlex.split(line)
        assert commands._call(words[words.index("sightline") + 1 :])


BASH = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINES = sorted(
    {
        line.partition(" #")[0].strip()
        for page in PAGES
        if not page.startswith("tutorials/")  # whose commands go on from each other: test_tutorials.py runs them
        for block in BASH.findall((DOCS / page).read_text())
        for line in block.splitlines()
    }
)
COMMANDS = [re.split(r" [|>] | \|\| ", line)[0] for line in LINES if line.startswith("sightline ")]
# Not run here: they train for long, need datasets, machines or other projects' files, or serve until they are stopped.
ONLY_READ = re.compile(
    r"sightline (train|reproduce|evaluate|convert|serve|likelihood|COMMAND)|s3://|--ray|PATH|runs/|style/|imagenet|cuda|run/"
)


@pytest.mark.parametrize("line", [line for line in COMMANDS if not ONLY_READ.search(line)])
def test_a_command_of_a_page_runs_on_small_files(line, folder, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    shutil.copytree(folder / "photos", folder / "new")
    table = [{"file": name, "caption": "a cat"} for name in ("cat.jpg", "coffee.jpg")]
    (folder / "captions.json").write_text(json.dumps(table))
    (folder / "captions.csv").write_text(
        "file,caption\n" + "".join(f"{row['file']},{row['caption']}\n" for row in table)
    )
    _, verb, *words = shlex.split(line)
    if verb == "search":
        assert commands.main(["index", "photos"]) == 0
    if "scenes/" in words and verb == "data":
        assert commands.main(["extract", "photos", "--out", "scenes"]) == 0
    assert commands.main([verb, *words]) in ((0, 1) if verb in ("audit", "search") else (0,))


@pytest.mark.parametrize("line", [line for line in COMMANDS if ONLY_READ.search(line)])
def test_a_command_of_a_page_that_is_not_run_is_one_the_command_line_accepts(line):
    words = shlex.split(line)[1:]
    if words[0] != "COMMAND":
        assert commands._call([word for word in words if word != "…"])


def test_a_script_of_a_page_is_there_and_has_the_options_it_is_given():
    scripts = [line for part in LINES for line in part.split(" && ") if re.match(r"python (tools|benchmarks)/", line)]
    assert len(scripts) > 5
    for line in scripts:
        source = (DOCS.parent / line.split()[1]).read_text()
        for option in re.findall(r" (--[a-z-]+)", line):
            assert option in source, line
