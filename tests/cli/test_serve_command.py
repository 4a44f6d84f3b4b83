"""`sightline serve` as people start it."""

import contextlib
import json
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.checkpoint import model_checkpoint
from sightline.checkpoint.bundle import save_bundle
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.cli.commands import main
from sightline.models.end_to_end import end_to_end
from sightline.pipeline import load


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_bundle(path, tiny_bundle(), "float32")
    return path


@contextlib.contextmanager
def started(command):
    """A server that does not outlive a test that fails."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_tells_where_it_is_answers_and_stops_when_asked_to(model, monkeypatch, stop):
    monkeypatch.delenv("SIGHTLINE_TOKEN", raising=False)
    command = [sys.executable, "-m", "sightline", "serve", "--port", "0", "--model", str(model), "--device", "cpu"]
    with started(command) as process:
        line = process.stdout.readline()
        found = re.fullmatch(r"Sightline is at (http://127\.0\.0\.1:\d+)/\?token=(\S{43}) \(Ctrl-C stops it\)\n", line)
        address, token = found.groups()
        photo = {"photos": (EXAMPLES / "cat.jpg").read_bytes()}
        other = httpx.post(f"{address}/v1/caption", files=photo, timeout=60, trust_env=False)
        right = {"Authorization": f"Bearer {token}"}
        answer = httpx.post(f"{address}/v1/caption", files=photo, headers=right, timeout=60, trust_env=False)
        process.send_signal(stop)
        rest, errors = process.communicate(timeout=60)
    assert other.status_code == 401  # another user of this machine
    assert answer.status_code == 200
    assert process.returncode == 0
    assert rest == ""
    assert errors == "Stopped.\n"


def test_bad_forms_are_answered_and_fill_no_terminal(model, monkeypatch):
    monkeypatch.delenv("SIGHTLINE_TOKEN", raising=False)
    command = [sys.executable, "-m", "sightline", "serve", "--port", "0", "--model", str(model), "--no-token"]
    with started(command) as process:
        address = re.search(r"http://\S+", process.stdout.readline())[0]
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        for form in (b"--y\r\n", b"--x\r\nContent-\xffisposition: form-data\r\n\r\n1\r\n--x--\r\n", b"--x"):
            answer = httpx.post(f"{address}/v1/caption", content=form, headers=kind, timeout=60, trust_env=False)
            assert 400 <= answer.status_code < 500
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert errors == "Stopped.\n"


def test_a_program_is_told_the_address_in_json(model, monkeypatch):
    monkeypatch.delenv("SIGHTLINE_TOKEN", raising=False)
    command = [sys.executable, "-m", "sightline", "serve", "--port", "0", "--model", str(model), "--json", "--quiet"]
    with started(command) as process:
        told = json.loads(process.stdout.readline())
        right = {"Authorization": f"Bearer {told['token']}"}
        answer = httpx.get(f"{told['address']}/v1/health", headers=right, timeout=60, trust_env=False)
        process.terminate()
        rest, errors = process.communicate(timeout=60)
    assert answer.json()["model"] == told["model"] == "tiny"
    assert process.returncode == 0
    assert (rest, errors) == ("", "")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--host", "0.0.0.0"], "has no token"),
        (["--host", "0.0.0.0", "--token", "short"], "16 or more"),
        (["--no-token", "--token", "a-token-of-many-letters"], "exclude each other"),
        (["--quiet"], "nobody would know the token"),
        (["--port", "99999"], "port"),
        (["--host", "no.such.host.invalid", "--token", "a-token-of-many-letters"], "no address"),
        (["--queue", "0"], "queue"),
        (["--max-mb", "0"], "max_mb"),
        (["--model", "nowhere.safetensors"], "nowhere.safetensors"),
    ],
)
def test_a_wrong_start_is_told(capsys, monkeypatch, options, told):
    monkeypatch.delenv("SIGHTLINE_TOKEN", raising=False)
    assert main(["serve", "--port", "0", *options]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(("options", "variable"), [(["--no-token"], "a-token-of-many-letters"), ([], "")])
def test_a_browser_is_led_to_the_page_by_a_file_of_its_owner(model, monkeypatch, capsys, options, variable):
    opened = []
    monkeypatch.setenv("SIGHTLINE_TOKEN", variable)
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append((address, _text_and_mode(address))))
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)
    assert main(["serve", "--port", "0", "--model", str(model), "--device", "cpu", "--open", *options]) == 0
    ((address, (text, mode)),) = opened
    page = re.search(r"Sightline is at (\S+)", capsys.readouterr().out)[1]
    assert f'url={page}"' in text
    assert ("token=" in page) == (not options)
    assert "token=" not in address
    assert mode == 0o700


def _text_and_mode(address):
    file = Path(address.removeprefix("file://"))
    return file.read_text(), stat.S_IMODE(file.parent.stat().st_mode)


def test_a_port_that_is_taken_is_told_before_the_model_is_loaded(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert main(["serve", "--port", port, "--model", "nowhere.safetensors"]) == 2
    assert f"port {port} cannot be used" in capsys.readouterr().err


def test_an_index_that_is_not_there_or_of_another_model_is_told(capsys, model, tmp_path):
    start = ["serve", "--port", "0", "--device", "cpu", "--store", str(tmp_path / "index")]
    assert main([*start, "--model", str(model)]) == 2
    assert "no photo index" in capsys.readouterr().err
    other = tmp_path / "other.safetensors"
    save_bundle(other, tiny_bundle(seed=5), "float32")
    assert main(["index", str(EXAMPLES), "--store", str(tmp_path / "index"), "--model", str(other), "--quiet"]) == 0
    assert main([*start, "--model", str(model)]) == 2
    assert "another model" in capsys.readouterr().err


def test_without_the_extra_it_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve"]) == 2
    assert "pip install 'sightline[serve]'" in capsys.readouterr().err


def test_the_checkpoint_of_a_run_is_loaded_to_compare_with(model, tmp_path, monkeypatch):
    monkeypatch.delenv("SIGHTLINE_TOKEN", raising=False)
    bundle = tiny_bundle(seed=8)
    captioner = bundle.captioner
    whole = end_to_end(captioner.model, bundle.vision)
    checkpoint = Checkpoint(whole, captioner.vocabulary, captioner.text_rule, card={"name": "another"})
    model_checkpoint.save(tmp_path / "run", checkpoint)
    options = ["--port", "0", "--no-token", "--json", "--device", "cpu", "--model", str(model)]
    photo = {"photos": ("cat.jpg", (EXAMPLES / "cat.jpg").read_bytes())}
    with (
        started([sys.executable, "-m", "sightline", "serve", *options, "--compare", str(tmp_path / "run")]) as process,
        httpx.Client(trust_env=False, timeout=60) as client,
    ):
        address = json.loads(process.stdout.readline())["address"]
        assert client.get(f"{address}/v1/health").json()["models"] == ["tiny", "another"]
        said = [
            client.post(f"{address}/v1/caption", files=photo, data={"model": name}).json()["captions"][0]["caption"]
            for name in ("tiny", "another")
        ]
    direct = [load(path).caption(EXAMPLES / "cat.jpg").text for path in (model, tmp_path / "run")]
    assert said == direct
    assert said[0] != said[1]
