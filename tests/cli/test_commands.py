import inspect
import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import pytest

from sightline import __version__
from sightline.cli import commands
from sightline.cli.console import bind, options


def sightline(*arguments: str, **kwargs) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "sightline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)


def test_help_lists_every_command_with_a_line_about_it(capsys):
    assert commands.main([]) == 0
    shown = capsys.readouterr().out
    for name, command in commands.COMMANDS.items():
        assert name in shown
        assert command.about in shown


def test_a_group_lists_its_own_commands(capsys):
    assert commands.main(["data"]) == 0
    shown = capsys.readouterr().out
    assert "data inspect" in shown
    assert "doctor" not in shown


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stop:
        commands.main([*name.split(), "--help"])
    assert stop.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"sightline {name}" in shown
    about = " ".join((commands.COMMANDS[name].load().__doc__ or "").split("\n\n")[0].split())
    assert about[:40] in shown


@pytest.mark.parametrize("name", [n for n in commands.COMMANDS if n != "completion"])
def test_every_command_takes_json_and_quiet(name):
    assert {"json", "quiet"} <= set(inspect.signature(commands.COMMANDS[name].load()).parameters)


@pytest.mark.parametrize("asked", ["help", "--help", "-h"])
def test_help_of_a_command_may_be_asked_for_before_it(asked, capsys):
    shown = help_of("data inspect", capsys)
    with pytest.raises(SystemExit) as stop:
        commands.main([asked, "data", "inspect"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == shown


def test_version_is_the_package_version(capsys):
    assert commands.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"sightline {__version__}"


def help_of(name, capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        commands.main([*name.split(), "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_keeps_examples_as_lines_and_says_nothing_that_tells_nothing(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = help_of(name, capsys)
    examples = [
        line for line in inspect.getdoc(commands.COMMANDS[name].load()).splitlines() if "    sightline " in line
    ]
    assert set(examples) <= set(shown.splitlines())
    assert "None" not in shown
    assert not re.search(r"default: *(False|True|\)|'')", shown)
    paragraphs = [line for line in shown.splitlines()[1:] if not line.startswith(("  --", "    sightline"))]
    assert max(map(len, paragraphs)) <= 80


def test_help_names_values_and_has_one_name_for_a_switch(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    shown = help_of("index", capsys)
    for text in ("FOLDER ", "--threads N ", "--model FILE ", "--engine exact|lance ", "--json ", "--no-captions "):
        assert re.search(rf"^ +{re.escape(text)}", shown, re.MULTILINE)
    assert "(default: auto)" in shown
    assert "--no-json" not in shown
    assert "--captions" not in shown
    assert " --hyps PATH … " in help_of("score", capsys)
    assert "(several by commas or spaces)" in help_of("caption", capsys)


def test_help_tells_a_default_of_zero_or_one(monkeypatch, capsys):
    def shrink(*, port: int = 0, beam: int = 1, quiet: bool = False) -> None:
        """Shrink."""

    monkeypatch.setattr(commands.Command, "load", lambda self: shrink)
    shown = help_of("doctor", capsys)
    assert re.findall(r"--(\w+).*default: (.*?)\)", shown) == [("port", "0"), ("beam", "1")]


def test_help_fits_its_terminal(monkeypatch, capsys):
    for columns in (60, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = help_of("serve", capsys).splitlines()
        assert columns - 12 < max(len(line) for line in lines if not line.startswith(("usage", "    "))) <= columns


NO_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ImportError("torch is asked for")
sys.meta_path.insert(0, Refuse())
from sightline.cli import commands as cli
"""


def without_torch(*arguments: str) -> str:
    """What a command tells where torch cannot be imported."""
    command = [sys.executable, "-c", f"{NO_TORCH}sys.exit(cli.main({list(arguments)}))"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_does_not_wait_for_torch(name):
    assert f"usage: sightline {name} " in without_torch(*name.split(), "--help")


@pytest.mark.parametrize("command", [["train", "--help"], ["search", "a dog", "--store", "nowhere"]], ids=" ".join)
def test_what_needs_no_model_is_told_at_once(command, tmp_path):
    def seconds() -> float:
        began = time.perf_counter()
        sightline(*command, cwd=tmp_path)
        return time.perf_counter() - began

    assert min(seconds() for _ in range(5)) < 0.5


@pytest.mark.parametrize("command", [["search", "a dog"], ["serve", "--port", "0"]])
def test_that_there_is_no_index_is_told_without_torch(command, tmp_path):
    told = without_torch(*command, "--store", str(tmp_path))
    assert told.startswith(f"{tmp_path}: there is no photo index here")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (
            "score --jsn",
            "`sightline score` has no --jsn. To fix: did you mean --json? `sightline score --help` tells how.",
        ),
        ("score --ref a --hyps b", "`sightline score` has no --ref. To fix: did you mean --refs? "),
        (
            "doctor --frobnicate=3",
            "`sightline doctor` has no --frobnicate. To fix: `sightline doctor --help` tells how.",
        ),
        ("caption a.jpg --no-json", "`sightline caption` has no --no-json. To fix: did you mean --json? "),
        ("search cat -x", "`sightline search` does not know what to do with '-x'. "),
        ("search --top 3 cat", "`sightline search` has no --top. To fix: `sightline search --help`"),
        ("caption a.jpg --bogus", "`sightline caption` has no --bogus. To fix: `sightline caption --help`"),
        ("caption a.jpg --output=x", "`sightline caption` has no --output. To fix: did you mean --out? "),
        (
            "ground a.jpg dog cat",
            "`sightline ground` does not know what to do with 'cat'. To fix: put the words in quotes: "
            '`sightline ground a.jpg "dog cat"`; ',
        ),
        (
            "search a cat",
            "`sightline search` does not know what to do with 'cat'. To fix: put the words in quotes: "
            '`sightline search "a cat"`; ',
        ),
        ("index a b", "`sightline index` does not know what to do with 'b'. To fix: name one folder at a time; "),
        ("doctor now", "`sightline doctor` does not know what to do with 'now'. To fix: `sightline doctor --help`"),
        (
            "caption -dash.jpg",
            "`sightline caption` does not know what to do with '-dash.jpg'. To fix: write ./-dash.jpg, ",
        ),
        ("score", "`sightline score` needs --refs PATH and --hyps PATH …. "),
        ("score --refs a --hyps", "--hyps needs a value: --hyps PATH …. "),
        ("search cat -k --json", "-k needs a value: -k N. "),
        ("caption a.jpg --json=yes", "--json takes no value. "),
        ("ground", "`sightline ground` needs PHOTO and SENTENCE. "),
        ("ground a.jpg", "`sightline ground` needs SENTENCE. "),
        ("train", "`sightline train` needs RECIPE. "),
        ("extract", "`sightline extract` needs FOLDER and --out PATH. "),
        ("caption a.jpg --beam three", "--beam takes a whole number, not 'three'. "),
        ("caption a.jpg --threads=1.5", "--threads takes a whole number, not '1.5'. "),
        ("audit a.json --threshold high", "--threshold takes a number, not 'high'. "),
        ("index photos --engine lanse", "--engine is 'lanse'. To fix: choose exact or lance; "),
        ("search cup --not -dash", "-dash looks like a flag. To fix: write --not=-dash, "),
        ("search cup -x", "`sightline search` does not "),
        ("completion tcsh", "shell is 'tcsh'. To fix: choose bash, zsh or fish; "),
    ],
)
def test_words_that_do_not_fit_get_a_sentence_and_exit_code_2(command, sentence, capsys):
    assert commands.main(command.split()) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(sentence)
    assert shown.err.endswith(f"`sightline {command.split()[0]} --help` tells how.\n")
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_words_that_fit_reach_the_command_with_their_types(monkeypatch):
    def shrink(
        photos: tuple[str, ...],
        *,
        out: Path,
        width: int | None = None,
        by: float = 0.5,
        how: Literal["fast", "well"] | None = None,
        names: tuple[str, ...] = (),
        colour: bool = True,
        dry_run: bool = False,
    ) -> int:
        given.append((photos, out, width, by, how, names, colour, dry_run))
        return 1

    given: list[tuple[object, ...]] = []
    monkeypatch.setattr(commands.Command, "load", lambda self: shrink)
    words = "doctor a.jpg b.jpg --out=x --width -3 --by 2 --how well --names n m --no-colour --dry_run"
    assert commands.main(words.split()) == 1
    assert commands.main(["doctor", "--out", "-"]) == 1
    assert commands.main(["doctor", "--out", "x", "--", "--odd.jpg"]) == 1
    assert given == [
        (("a.jpg", "b.jpg"), Path("x"), -3, 2.0, "well", ("n", "m"), False, True),
        ((), Path("-"), None, 0.5, None, (), True, False),
        (("--odd.jpg",), Path("x"), None, 0.5, None, (), True, False),
    ]


LISTS = [
    (name, option)
    for name in commands.COMMANDS
    for option in options(commands.COMMANDS[name].load())
    if option.several and option.flags
]


@pytest.mark.parametrize(("name", "option"), LISTS, ids=[f"{name} {option}" for name, option in LISTS])
def test_values_of_a_list_are_separated_by_commas_or_spaces_or_given_one_by_one(name, option):
    function, parameter, flag = commands.COMMANDS[name].load(), option.parameter.name, option.flags[-1]
    required = [one for one in options(function) if one.is_required and one.parameter.name != parameter]
    others = [word for one in required for word in (*one.flags[-1:], "x")]
    one, two = ("csv", "html") if option.choices else ("1", "2")
    for given in ([flag, f"{one},{two}"], [flag, f"{one}, {two}"], [flag, one, two], [flag, one, flag, two]):
        bound = bind(function, name, [*others, *given])
        assert bound.keywords[parameter] == (option.type(one), option.type(two))


def test_a_list_ends_where_a_path_begins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "a,b.json").touch()
    caption, evaluate = commands.COMMANDS["caption"].load(), commands.COMMANDS["evaluate"].load()
    given = bind(caption, "caption", "--format csv html photos --must-include Anna photos --distinct".split()).keywords
    assert given["paths"] == ("photos", "photos")
    assert (given["format"], given["must_include"]) == (("csv", "html"), ("Anna",))
    given = bind(caption, "caption", ["--must-include", "red ball", "cup", "*.jpg", "--format", "CSV", "-"]).keywords
    assert (given["must_include"], given["paths"]) == (("red ball", "cup"), ("*.jpg", "-"))
    given = bind(evaluate, "evaluate", "--metrics bleu cider run/ --captions a,b.json".split()).keywords
    assert (given["metrics"], given["models"]) == (("bleu", "cider"), (Path("run/"),))
    assert given["captions"] == (Path("a,b.json"),)  # there is such a file


def test_a_list_ends_where_a_setting_begins():
    reproduce, caption = commands.COMMANDS["reproduce"].load(), commands.COMMANDS["caption"].load()
    words = "pos-scan --table 2 --rows none GT data.max_photos=100 seed=1 --dry".split()
    given = bind(reproduce, "reproduce", words).keywords
    assert (given["rows"], given["settings"]) == (("none", "GT"), ("data.max_photos=100", "seed=1"))
    given = bind(caption, "caption", ["a.jpg", "--must-include", "Anna", "Rex=dog"]).keywords
    assert given["must_include"] == ("Anna", "Rex=dog")  # it takes no settings


HEAVY = {"numpy", "torch", "PIL", "rich", "yaml", "fastapi"}


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_imports_nothing_heavy(name):
    load = f"from sightline.cli import commands, console; commands.COMMANDS[{name!r}].load()"
    code = f"import sys; {load}; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["docto"], "did you mean `sightline doctor`"),
        (["data", "inspekt"], "did you mean `sightline data inspect`"),
        (["xyzzy"], "`sightline --help` lists the commands"),
        (["data", "inspect", "/no/such/file"], "no such file or folder"),
        (["data", "inspect"], "no file was named"),
    ],
)
def test_a_mistake_gets_one_sentence_and_exit_code_2(arguments, words, capsys):
    assert commands.main(arguments) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.err.count("\n") == 1
    assert "Traceback" not in shown.err


def test_debug_shows_the_traceback(capsys):
    assert commands.main(["data", "inspect", "/no/such/file", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_the_sentence_is_red_on_a_terminal_and_plain_in_a_pipe():
    command = [sys.executable, "-m", "sightline", "nonsense"]
    piped = sightline("nonsense")
    assert "\033" not in piped.stderr
    master, slave = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    subprocess.run(command, stderr=slave, stdout=subprocess.DEVNULL, check=False, env=environment)
    os.close(slave)
    assert os.read(master, 4096).startswith(b"\033[31m")
    os.close(master)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "Interrupted"),
        (OSError(28, "No space left on device", "/out"), 2, "/out: No space left on device. Free some space"),
        (ZeroDivisionError("division by zero"), 1, "Unexpected ZeroDivisionError"),
    ],
)
def test_no_error_ends_in_a_traceback(error, code, words, monkeypatch, capsys):
    def fail() -> int:
        raise error

    monkeypatch.setattr(commands.Command, "load", lambda self: fail)
    assert commands.main(["doctor"]) == code
    assert words in capsys.readouterr().err


def test_a_reader_that_stops_early_is_no_error():
    command = f"{sys.executable} -m sightline data formats --json | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_doctor_tells_versions_devices_and_how_to_get_optional_parts(capsys):
    assert commands.main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sightline"] == __version__
    assert found["required"]["torch"]
    assert "cpu" in found["devices"]
    assert found["optional"]["lancedb"]["install"] == "pip install 'sightline[search]'"
    assert commands.main(["doctor"]) == 0
    assert "threads" in capsys.readouterr().out
    assert commands.main(["doctor", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_doctor_tells_of_a_torch_that_cannot_be_imported(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libfoo is missing')")
    done = sightline("doctor", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "cannot be imported: OSError: libfoo is missing" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell, capsys):
    assert commands.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in commands.COMMANDS:
        assert name.split()[-1] in script


def test_bash_completes_commands_and_flags(capsys):
    commands.main(["completion", "bash"])
    script = capsys.readouterr().out

    def complete(*words: str) -> set[str]:
        line = f"COMP_WORDS=({' '.join(words)} ''); COMP_CWORD={len(words)}; _sightline; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", script + line], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    assert {"data", "doctor"} <= complete("sightline")
    assert {"inspect", "convert"} <= complete("sightline", "data")
    assert {"--to", "--json", "--help"} <= complete("sightline", "data", "convert")
    assert "--quiet" in complete("sightline", "doctor")
    assert {"--not", "--k"} <= complete("sightline", "search")
    assert "--no-captions" in complete("sightline", "index")
