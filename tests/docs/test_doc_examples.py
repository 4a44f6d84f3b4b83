"""The examples of the documentation are what the commands print, and its tables name every option."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sightline.cli import commands

ROOT = Path(__file__).resolve().parents[2]
PAGE = """# A page

<!-- first: echo one > list.txt -->
Text that stays.

<!-- runs: cat list.txt && ls examples/cat.jpg -->
```console
$ what was here before
old output
```

<!-- runs, exit code 2: sightline captoin -->
```
```
The end.
"""
PAGES = {  # the page of each command that has one
    "caption": "captions",
    "ground": "grounding",
    "audit": "audit",
    "index": "search",
    "search": "search",
    "serve": "serving",
    "extract": "scenes",
    "train": "learning",
    "reproduce": "learning",
    "evaluate": "metrics",
    "score": "metrics",
}


def run(page: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "doc_examples.py"), str(page), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def page(tmp_path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_become_what_the_commands_print(page):
    assert run(page).returncode == 0
    said = page.read_text()
    assert "$ cat list.txt && ls examples/cat.jpg\none\nexamples/cat.jpg\n```\n" in said
    assert "```console\n$ sightline captoin\nthere is no command 'captoin'." in said
    assert "old output" not in said
    assert said.startswith("# A page\n")
    assert "Text that stays." in said
    assert said.endswith("```\nThe end.\n")


def test_check_tells_what_differs_and_changes_nothing(page):
    done = run(page, "--check")
    assert done.returncode == 1
    assert "-old output" in done.stdout
    assert page.read_text() == PAGE
    run(page)
    assert run(page, "--check").returncode == 0


def test_an_exit_code_that_is_not_expected_is_told_and_the_page_stays(page):
    page.write_text(PAGE.replace(", exit code 2", ""))
    done = run(page)
    assert done.returncode == 1
    assert "exit code 2 instead of 0: sightline captoin" in done.stderr
    assert "old output" in page.read_text()


def test_a_command_without_a_block_is_told_with_its_line(page):
    page.write_text("# A page\n\n<!-- runs: true -->\nno block\n```\nanother\n```\n")
    assert "page.md, line 3: there is no block below" in run(page).stderr


def test_the_folder_that_commands_run_in_has_a_plain_name(page):
    page.write_text("<!-- runs: pwd -->\n```\n```\n")
    run(page)
    assert page.read_text() == "<!-- runs: pwd -->\n```console\n$ pwd\n/home/you/sightline\n```\n"


def test_commands_that_look_at_photos_get_the_model_and_the_page_does_not_show_it(page, tiny_model):
    page.write_text("<!-- runs: sightline caption examples/cat.jpg --json | head -c 28 -->\n```\n```\n")
    done = run(page, "--model", os.fspath(tiny_model))
    assert done.returncode == 0, done.stderr
    assert '[{"path": "examples/cat.jpg"' in page.read_text()
    assert "--model" not in page.read_text()


@pytest.fixture
def offered(capsys, monkeypatch) -> Callable[[str], set[str]]:
    """The options that a command's help lists."""
    monkeypatch.setenv("COLUMNS", "200")

    def options(command: str) -> set[str]:
        with pytest.raises(SystemExit):
            commands.main([*command.split(), "--help"])
        return set(re.findall(r"^  (?:-k N, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))

    return options


@pytest.mark.parametrize("command", PAGES)
def test_the_page_of_a_command_names_all_of_its_options_and_no_others(command, offered):
    text = (ROOT / "docs" / f"{PAGES[command]}.md").read_text()
    cells = [row.split("|")[1] for table in tables(text, command) for row in table.splitlines()]
    named = {option for cell in cells for option in re.findall(r"`(--[a-z-]+)", cell)}
    assert named == offered(command) - {"--k"}  # the table has -k


@pytest.mark.parametrize("command", commands.COMMANDS)
def test_every_option_in_a_command_of_the_documentation_exists(command, offered):
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    lines = re.findall(rf"^(?:\$ )?sightline {command} (.*)", "\n".join(map(Path.read_text, pages)), re.MULTILINE)
    used = {option for line in lines for option in re.findall(r"(?<=\s)--[a-z-]+", f" {line.split('#')[0]}")}
    assert used - {"--debug"} <= offered(command) | {"--k"}


def tables(text: str, command: str) -> list[str]:
    """Tables of options: those whose first line says that they are of the command."""
    return re.findall(rf"^\| option of `{command}` \|.*\n(?:\|.*\n)+", text, re.MULTILINE)
