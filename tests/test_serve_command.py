"""`sightline serve` as people start it."""

import json
import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.bundle import save_bundle
from sightline.cli import main


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_bundle(path, tiny_bundle(), "float32")
    return path


def test_it_tells_where_it_is_answers_and_stops_when_asked_to(model):
    command = [sys.executable, "-m", "sightline", "serve", "--port", "0", "--model", str(model), "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        address = re.fullmatch(r"Sightline is at (http://127\.0\.0\.1:\d+) \(Ctrl-C stops it\)\n", line)[1]
        photo = (EXAMPLES / "cat.jpg").read_bytes()
        answer = httpx.post(f"{address}/v1/caption", files={"photos": photo}, timeout=60, trust_env=False)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert answer.status_code == 200
    assert process.returncode == 0
    assert rest == ""
    assert errors == "Stopped.\n"


def test_a_program_is_told_the_address_in_json(model):
    command = [sys.executable, "-m", "sightline", "serve", "--port", "0", "--model", str(model), "--json", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        told = json.loads(process.stdout.readline())
        answer = httpx.get(f"{told['address']}/v1/health", timeout=60, trust_env=False)
        process.terminate()
        rest, errors = process.communicate(timeout=60)
    assert answer.json()["model"] == told["model"] == "tiny"
    assert process.returncode in (0, 143)
    assert (rest, errors) == ("", "")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--host", "0.0.0.0"], "has no token"),
        (["--host", "0.0.0.0", "--token", "short"], "16 or more"),
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
