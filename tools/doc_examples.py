"""Run the examples of the documentation, and write what they print into its pages.

python tools/doc_examples.py                       every page of docs/, with the model that comes with Sightline
python tools/doc_examples.py docs/search.md        this page
python tools/doc_examples.py --model FILE          with another model; the pages do not show it
python tools/doc_examples.py --check               says which blocks differ, and changes nothing

A page names a command right above the block of its output:

    <!-- runs: sightline caption examples/ -->

`runs, exit code 1:` expects that code instead of 0. `first:` runs a command that is not shown. The commands of a page
run by bash, in order, in a new folder that holds a copy of examples/ and is shown as /home/you/sightline.
What changes from run to run, such as seconds, is no example.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SHOWN = "/home/you"
WITH_MODEL = ("caption", "ground", "audit", "index", "search", "serve", "extract")
LIMIT = 600  # seconds that a command may take
MARK = re.compile(r"^<!-- (first|runs)(?:, exit code (\d+))?: (.+?) -->\n", re.MULTILINE)
TOOL = """#!{python}
import sys
from sightline.cli.commands import main

given, model = sys.argv[1:], {model!r}
if model and given and given[0] in {commands} and not {{"--model", "--help"}} & set(given):
    given += ["--model", model]
sys.exit(main(given))
"""
BLOCK = re.compile(r"\n*```(\w*)\n.*?^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """A command, the exit code it has, and where in the page its block is; a `first` command has none."""

    command: str
    code: int
    block: tuple[int, int] | None
    language: str = ""


def examples(page: str, name: str) -> list[Example]:
    """The marked commands of a page, in order."""
    found = []
    for mark in MARK.finditer(page):
        kind, code, command = mark.groups()
        if kind == "first":
            found.append(Example(command, int(code or 0), None))
            continue
        block = BLOCK.match(page, mark.end())
        if block is None:
            line = page.count("\n", 0, mark.start()) + 1
            raise SystemExit(f"{name}, line {line}: there is no block below; write ```console and ``` there")
        found.append(Example(command, int(code or 0), block.span(), block[1] or "console"))
    return found


def refreshed(page: str, name: str, model: Path | None) -> str:
    """The page with what its commands print now."""
    todo, parts, end = examples(page, name), [], 0
    if not todo:
        return page
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch).resolve()
        folder = home / "sightline"
        folder.mkdir()
        shutil.copytree(ROOT / "examples", folder / "examples")
        environment, left = surroundings(home, model), list[int]()
        try:
            for example in todo:
                printed = output(example, folder, environment, name, left).replace(str(home), SHOWN)
                printed = printed.replace(str(ROOT.resolve()), f"{SHOWN}/sightline")
                if example.block is not None:
                    start, stop = example.block
                    parts += [page[end:start], f"```{example.language}\n$ {example.command}\n{printed}```"]
                    end = stop
        finally:
            for group in left:  # servers that a page has started
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGTERM)
    return "".join([*parts, page[end:]])


def surroundings(home: Path, model: Path | None) -> dict[str, str]:
    """Variables under which `sightline` is the one of this checkout, with the model, and plain text is printed."""
    tool = home / "bin" / "sightline"
    tool.parent.mkdir()
    tool.write_text(TOOL.format(python=sys.executable, commands=WITH_MODEL, model=model and str(model.resolve())))
    tool.chmod(0o755)
    plain = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", "PYTHONUNBUFFERED": "1", "LC_ALL": "C.UTF-8"}
    paths = f"{tool.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    shown = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return shown | plain | {"PATH": paths, "PYTHONPATH": str(ROOT / "src")}


def output(example: Example, folder: Path, environment: dict[str, str], name: str, left: list[int]) -> str:
    """What the command prints, both streams together; `left` gets the group of processes that may be left running."""
    with subprocess.Popen(
        ["bash", "-c", example.command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as running:
        left.append(running.pid)
        printed, _ = running.communicate(timeout=LIMIT)
    if running.returncode != example.code:
        raise SystemExit(
            f"{name}: exit code {running.returncode} instead of {example.code}: {example.command}\n{printed}"
        )
    return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="by default all of docs/")
    parser.add_argument("--model", type=Path, help="instead of the one that comes with Sightline")
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if a block differs")
    arguments = parser.parse_args()
    stale = 0
    for path in arguments.pages or sorted((ROOT / "docs").rglob("*.md")):
        old = path.read_text(encoding="utf-8")
        new = refreshed(old, path.name, arguments.model)
        if new == old:
            continue
        stale += 1
        if arguments.check:
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), path.name, "now", lineterm="")
            print("\n".join(lines))
        else:
            path.write_text(new, encoding="utf-8")
            print(f"{path.name} is refreshed")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
