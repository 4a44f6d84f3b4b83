"""`benchmarks/soak.py`: a few seconds of it meet no error, and a server that fails is noticed; no test is of time."""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from bundle_samples import EXAMPLES

pytest.importorskip("fastapi", reason="FastAPI is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import soak


def test_a_few_seconds_of_mixed_load_meet_no_error(tiny_model, tmp_path, capsys):
    plot = tmp_path / "soak.png"
    soak.main(["--minutes", "0.1", "--count", "10", "--model", str(tiny_model), "--plot", str(plot)])
    told = json.loads(capsys.readouterr().out)
    assert told["errors"] == 0
    assert all(told["answers"][kind]["200"] for kind in ("caption", "search", "ground", "audit"))
    assert set(map(int, told["answers"]["refused"])) <= {200, 400, 401, 403, 404, 415, 422, 503}
    assert told["half-open sockets"] >= soak.HALF_OPEN
    assert told["megabytes"]["most"] > 0
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("status", "body"), [(500, b"{}"), (200, b'{"captions": [{"path": "other.jpg", "caption": "a"}]}')]
)
def test_an_answer_that_is_not_right_is_an_error(status, body):
    class Wrong(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Wrong) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tally, photos = soak.Tally(), sorted(EXAMPLES.glob("*.jpg"))
        soak.client("caption", f"http://127.0.0.1:{server.server_port}", "x", photos, time.monotonic() + 0.2, 0, tally)
        server.shutdown()
    assert tally.errors
    assert all(f"caption: /v1/caption {status}" in error for error in tally.errors)
