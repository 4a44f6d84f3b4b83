import json
import os
import pty
import subprocess
import sys

import pytest

from sightline import __version__, cli


def sightline(*arguments: str, **kwargs) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "sightline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)


def test_help_lists_every_command_with_a_line_about_it(capsys):
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert name in shown
        assert command.about in shown


def test_a_group_lists_its_own_commands(capsys):
    assert cli.main(["data"]) == 0
    shown = capsys.readouterr().out
    assert "data inspect" in shown
    assert "doctor" not in shown


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([*name.split(), "--help"])
    assert stop.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"sightline {name}" in shown
    about = " ".join((cli.COMMANDS[name].load().__doc__ or "").split("\n\n")[0].split())
    assert about[:40] in shown.replace("│ ", "")


@pytest.mark.parametrize("name", [n for n in cli.COMMANDS if n != "completion"])
def test_every_command_takes_json_and_quiet(name):
    import inspect

    assert {"json", "quiet"} <= set(inspect.signature(cli.COMMANDS[name].load()).parameters)


def test_version_is_the_package_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"sightline {__version__}"


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
    assert cli.main(arguments) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.err.count("\n") == 1
    assert "Traceback" not in shown.err


def test_debug_shows_the_traceback(capsys):
    assert cli.main(["data", "inspect", "/no/such/file", "--debug"]) == 2
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

    monkeypatch.setattr(cli.Command, "load", lambda self: fail)
    assert cli.main(["doctor"]) == code
    assert words in capsys.readouterr().err


def test_a_reader_that_stops_early_is_no_error():
    command = f"{sys.executable} -m sightline data formats --json | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_doctor_tells_versions_devices_and_how_to_get_optional_parts(capsys):
    assert cli.main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sightline"] == __version__
    assert found["required"]["torch"]
    assert "cpu" in found["devices"]
    assert found["optional"]["lancedb"]["install"] == "pip install 'sightline[search]'"
    assert cli.main(["doctor"]) == 0
    assert "threads" in capsys.readouterr().out
    assert cli.main(["doctor", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_doctor_tells_of_a_torch_that_cannot_be_imported(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libfoo is missing')")
    done = sightline("doctor", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "cannot be imported: OSError: libfoo is missing" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert name.split()[-1] in script


def test_bash_completes_commands_and_flags(capsys):
    cli.main(["completion", "bash"])
    script = capsys.readouterr().out

    def complete(*words: str) -> set[str]:
        line = f"COMP_WORDS=({' '.join(words)} ''); COMP_CWORD={len(words)}; _sightline; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", script + line], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    assert {"data", "doctor"} <= complete("sightline")
    assert {"inspect", "convert"} <= complete("sightline", "data")
    assert {"--to", "--json", "--help"} <= complete("sightline", "data", "convert")
    assert "--quiet" in complete("sightline", "doctor")
