"""Clients that are slow, many, gone or hostile: the others are still answered."""

import base64
import contextlib
import json
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import httpx
import pytest
import torch
from starlette.responses import Response

from bundle_samples import tiny_bundle
from serve_samples import PHOTOS, index_of, listening, served, tiny_pipeline, waited_for
from sightline.checkpoint.bundle import save_bundle
from sightline.search.query import PhotoIndex
from sightline.serve.limits import Limits

torch.set_num_threads(1)
CAT = next(photo for photo in PHOTOS if photo.name == "cat.jpg")
HALF = b"GET / HTTP/1.1\r\nHo"
ASK = b"GET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
ASK_SEARCH = (
    b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)
LARGE = 5 << 20  # bytes of an answer: more than fit between a server and a client that does not read
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
PAGE = Path(__file__).parents[2] / "src" / "sightline" / "serve" / "page"


@pytest.fixture(scope="module")
def pipeline():
    return tiny_pipeline()


def connected(address):
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def form(*photos):
    return [("photos", (photo.name, photo.read_bytes())) for photo in photos]


def caption_request(declared=None):
    """The bytes of a whole request, or of one that declares more than it brings."""
    body = json.dumps({"photos": [{"data": base64.b64encode(CAT.read_bytes()).decode()}]}).encode()
    head = "POST /v1/caption HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {declared or len(body)}\r\n\r\n".encode() + (b"" if declared else body)


@contextlib.contextmanager
def busy(worker):
    """The worker does something else until the end of the `with`, or until the event is set."""
    began, release = threading.Event(), threading.Event()

    def hold(items):
        began.set()
        return [release.wait(20) for _ in items]

    worker.submit("held", hold, [None])
    assert began.wait(20)
    try:
        yield release
    finally:
        release.set()


def closed(connection):
    """Whether the server closes a connection within the time of its socket."""
    try:
        while connection.recv(10_000):
            pass
        return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_half_open_connections_beyond_the_descriptors_neither_stop_it_nor_fill_the_log(tmp_path):
    """1,100 under 1,024, as one process of any user can open them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1400:
        pytest.skip("so many connections may not be opened here")
    model = tmp_path / "tiny.safetensors"
    save_bundle(model, tiny_bundle(), "float32")
    serve = [sys.executable, "-m", "sightline", "serve", "--port", "0", "--no-token", "--model", str(model)]
    command = ["bash", "-c", 'ulimit -n 1024 && exec "$@"', "bash", *serve, "--device", "cpu"]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1400), hard))
    try:
        with contextlib.ExitStack() as stack:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            process = stack.enter_context(subprocess.Popen(command, **pipes))
            stack.callback(process.kill)
            address = process.stdout.readline().split()[3]
            for _ in range(1100):
                stack.enter_context(connected(address)).sendall(HALF)
            for _ in range(3):
                answer = httpx.post(f"{address}/v1/caption", files=form(CAT), timeout=20, trust_env=False)
                assert answer.status_code == 200
                time.sleep(0.5)
            assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < 512
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert errors == "Stopped.\n"


def test_headers_that_do_not_come_are_waited_for_only_so_long(pipeline):
    with served(pipeline, limits=Limits(header_seconds=0.5)) as running, connected(running.address) as slow:
        began = time.monotonic()
        for byte in HALF[:8]:  # as slow as it likes: the whole of them counts
            slow.sendall(bytes([byte]))
            time.sleep(0.05)
        assert closed(slow)
        assert time.monotonic() - began < 5
        with connected(running.address) as second:  # the next request on a connection has no more time
            second.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF)
            assert second.recv(10_000).startswith(b"HTTP/1.1 200")
            assert closed(second)


def test_a_request_that_takes_longer_than_its_headers_may_is_answered(pipeline):
    with served(pipeline, limits=Limits(header_seconds=0.2)) as running, busy(running.service.worker) as release:
        threading.Timer(1, release.set).start()
        assert running.client.post("/v1/caption", files=form(CAT)).status_code == 200


def test_one_connection_more_takes_the_place_of_the_oldest_that_sent_no_whole_request(pipeline):
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(served(pipeline, limits=Limits(connections=3)))
        release = stack.enter_context(busy(running.service.worker))
        whole, first, second = (stack.enter_context(connected(running.address)) for _ in range(3))
        whole.sendall(caption_request())
        assert waited_for(lambda: running.queue_length == 1)
        first.sendall(HALF)
        second.sendall(caption_request(declared=1000))
        time.sleep(0.2)
        assert running.client.get("/v1/health", headers={"connection": "close"}).status_code == 200
        assert closed(first)
        stack.enter_context(connected(running.address)).sendall(HALF)
        assert running.client.get("/v1/health", headers={"connection": "close"}).status_code == 200
        assert closed(second)
        release.set()
        assert whole.recv(10_000).startswith(b"HTTP/1.1 200")


def test_bodies_that_are_declared_and_never_come_keep_nobody_out(pipeline):
    limits = Limits(body=200_000, flight=400_000, silent_seconds=1)
    with served(pipeline, limits=limits) as running, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(running.address)) for _ in range(8)]
        for one in silent:
            one.sendall(caption_request(declared=limits.body))
        time.sleep(0.3)
        assert running.client.post("/v1/caption", files=form(CAT)).status_code == 200
        for one in silent:
            told = b""
            while part := one.recv(10_000):  # and then it is closed
                told += part
            assert told.startswith(b"HTTP/1.1 408")
            assert b"nothing more of the request came for 1 s" in told


def test_a_slow_body_that_goes_on_is_waited_for(pipeline):
    with served(pipeline, limits=Limits(silent_seconds=0.5)) as running, connected(running.address) as slow:
        whole = caption_request()
        step = len(whole) // 6
        for start in range(0, len(whole), step):
            slow.sendall(whole[start : start + step])
            time.sleep(0.2)
        assert slow.recv(10_000).startswith(b"HTTP/1.1 200")


def keep_asking(connection, request, most):
    """Send a request again and again and read no answer, until `most` bytes are sent or none are taken for a while."""
    connection.settimeout(0.5)
    sent = 0
    with contextlib.suppress(OSError):
        while sent < most:
            sent += connection.send((request * 1000)[sent % len(request) :])
    return sent


@pytest.mark.parametrize("request_", [ASK, ASK_SEARCH], ids=["short", "with a body"])
def test_a_client_that_asks_on_and_never_reads_is_cut_off_and_little_of_it_is_kept(pipeline, request_):
    with served(pipeline, limits=Limits(silent_seconds=0.5)) as running, connected(running.address) as greedy:
        assert keep_asking(greedy, request_, most=256 << 20) < 32 << 20  # most of it in the buffers of the two sockets
        greedy.settimeout(0.1)

        def cut():
            try:
                greedy.send(b" ")
            except OSError as error:
                return not isinstance(error, TimeoutError)
            return False

        assert waited_for(cut, 20)


def test_clients_that_never_read_keep_nobody_out(pipeline):
    with served(pipeline, limits=Limits(connections=8)) as running, contextlib.ExitStack() as stack:
        for places in (8, 1, 1, 1):
            for _ in range(places):
                keep_asking(stack.enter_context(connected(running.address)), ASK, most=1 << 20)
            time.sleep(0.5)  # at first they are still being answered, in the end most of them do not take their answers
            began = time.monotonic()
            assert running.client.get("/v1/health", headers={"connection": "close"}).status_code == 200
            assert time.monotonic() - began < 2


async def large_answer(scope, receive, send):
    if scope["type"] == "http":
        await Response(bytes(LARGE))(scope, receive, send)


def test_last_answers_that_are_not_read_keep_nobody_out():
    """Of requests after which the connection is to be closed: it waits for nothing but its client."""
    last = ASK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with listening(large_answer, Limits(connections=4)) as address, contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connected(address)).sendall(last)
        time.sleep(0.5)
        assert len(httpx.get(address, trust_env=False).content) == LARGE


def test_a_large_answer_that_is_taken_slowly_and_steadily_is_not_cut():
    """Although it takes several times as long as a client may be silent, or as headers may take."""
    limits = Limits(header_seconds=1, silent_seconds=1)
    with listening(large_answer, limits) as address, connected(address) as slow:
        began = time.monotonic()
        slow.sendall(ASK)
        head, _, first = slow.recv(10_000).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        taken = len(first)
        while taken < LARGE and (part := slow.recv(50_000)):
            taken += len(part)
            time.sleep(0.05)
        assert taken == LARGE
        assert time.monotonic() - began > 4


def test_requests_behind_each_other_are_answered_in_turn(pipeline):
    """Small ones, ones with bodies, and half of one, whose rest comes when the others are answered."""
    with served(pipeline) as running, connected(running.address) as client:
        caption = caption_request()
        asked = [ASK] * 20 + [caption] * 10 + [ASK] * 20
        whole = b"".join(asked)
        client.sendall(whole[:-20])
        with client.makefile("rb") as answers:
            for number, request in enumerate(asked):
                if number == len(asked) - 1:
                    client.sendall(whole[-20:])
                assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
                headers = dict(line.split(b": ", 1) for line in iter(answers.readline, b"\r\n"))
                body = answers.read(int(headers[b"content-length"]))
                assert (b'"captions"' in body) == (request is caption)


def test_what_a_client_waited_for_is_not_done_once_it_has_left(pipeline, capfd):
    with served(pipeline) as running:
        worker = running.service.worker
        with busy(worker):
            with connected(running.address) as gone, connected(running.address) as cut:
                gone.sendall(caption_request())
                cut.sendall(caption_request(declared=1000))
                assert waited_for(lambda: running.queue_length == 1)
            assert waited_for(lambda: worker.reserved == running.queue_length == 0, 5)
        assert running.client.post("/v1/caption", files=form(CAT, CAT)).status_code == 200
    assert running.batch_sizes == [1, 2]  # what held it, and the two photos of the client that stayed
    assert capfd.readouterr().err == ""


def test_explaining_hits_takes_a_place_each_and_one_round(pipeline, tmp_path):
    index, few = index_of(pipeline, tmp_path), len(PHOTOS) - 1
    with served(pipeline, index=index, limits=Limits(queue=few)) as running:
        worker, search = running.service.worker, partial(running.client.post, "/v1/search")
        asked = {"text": "a dog", "k": few, "explain": True}
        assert all(hit["why"]["words"] for hit in search(json=asked).json()["hits"])
        assert waited_for(lambda: running.batch_sizes == [1, few])  # the search, and the photos it found
        assert search(json={**asked, "k": 200}).status_code == 413
        assert search(json={**asked, "k": 200, "explain": False}).status_code == 200
        with busy(worker):
            thread = threading.Thread(target=search, kwargs={"json": asked})
            thread.start()
            assert waited_for(lambda: running.queue_length == 1)
            assert running.client.get("/v1/health").json()["queue"] == few
            assert running.client.post("/v1/caption", files=form(CAT)).status_code == 503
        thread.join()


def test_no_answer_tells_where_on_the_disk_something_is(pipeline, tmp_path):
    (tmp_path / "photos" / "holiday").mkdir(parents=True)
    for photo in PHOTOS:
        shutil.copy(photo, tmp_path / "photos" / "holiday")
    pipeline.index(tmp_path / "photos", tmp_path / "index", engine="exact")
    with served(pipeline, index=PhotoIndex(tmp_path / "index")) as running:
        found = running.client.post("/v1/search", json={"text": "a dog", "k": 5, "explain": True})
        hit = found.json()["hits"][0]
        assert {one["path"] for one in found.json()["hits"]} == {f"holiday/{photo.name}" for photo in PHOTOS}
        ask = {"url": f"/v1/photos/{hit['id']}/ground", "json": {"sentence": "a dog"}}
        why = running.client.post(**ask)
        assert why.json()["path"] == hit["path"]
        (tmp_path / "photos" / hit["path"]).write_bytes(b"no picture")
        damaged = running.client.post(**ask)
        assert (damaged.status_code, damaged.json()["error"]) == (404, "the photo can no longer be read")
        shutil.rmtree(tmp_path / "photos")
        gone = running.client.post(**ask)
        shutil.rmtree(tmp_path / "index")
        without = running.client.post("/v1/search", json={"text": "a dog"})
        health = running.client.get("/v1/health")
    for answer in (found, why, damaged, gone, without, health):
        assert str(tmp_path) not in answer.text


def test_an_index_damaged_meanwhile_is_told_without_its_files(pipeline, tmp_path):
    pytest.importorskip("lancedb", reason="lancedb is not installed")
    pipeline.index(CAT.parent, tmp_path / "index", engine="lance")
    with served(pipeline, index=PhotoIndex(tmp_path / "index")) as running:
        for file in (tmp_path / "index").rglob("*.lance"):
            if file.is_file():
                file.unlink()
        answer = running.client.post("/v1/search", json={"text": "a dog"})
    assert answer.status_code == 409
    assert answer.json()["error"] == "the index cannot be used"


def test_an_index_deleted_meanwhile_is_told_as_that(pipeline, tmp_path):
    with served(pipeline, index=index_of(pipeline, tmp_path)) as running:
        assert running.client.get("/v1/health").json()["indexed"] == len(PHOTOS)
        shutil.rmtree(tmp_path / "index")
        answer = running.client.post("/v1/search", json={"text": "a dog", "explain": True})
        assert answer.status_code == 409
        assert answer.json()["error"] == "the photo index is no longer there"
        health = running.client.get("/v1/health").json()
        assert health["indexed"] is None
        assert "search" not in health["can"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://other.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:81", "host": "localhost:80"}, 403),
        ({"origin": "http://localhost:80", "host": "localhost:80"}, 200),
        ({"origin": "https://other.example", "sec-fetch-site": "same-origin"}, 200),  # no page can say that itself
        ({"host": "[::1]evil.com"}, 403),
        ({"host": "[::1]:80"}, 200),
        ({"host": "localhost:evil.com"}, 403),
    ],
)
def test_other_origins_and_hosts_that_only_begin_like_ours_are_refused(shared, headers, status):
    assert shared.client.get("/v1/health", headers=headers).status_code == status


@pytest.fixture(scope="module")
def shared(pipeline):
    with served(pipeline, limits=Limits(pixels=20_000)) as running:
        yield running


def test_a_variable_that_the_server_does_not_read_is_not_advised(shared):
    told = shared.client.post("/v1/caption", files=form(CAT)).json()
    assert "pixels" in told["error"]
    assert told["fix"] == "make it smaller"


def run_in_node(folder, script):
    """What a script prints that imports from the page."""
    for file in PAGE.glob("*.js"):
        shutil.copy(file, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    command = ["node", "--input-type=module", "-e", script]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@needs_node
def test_a_spreadsheet_runs_no_cell_of_a_csv(tmp_path):
    rows = [["=1+1.jpg", "+1", "-1", "@SUM(A1)", "\t=1", '=HYPERLINK("a","b")'], ["a dog", -0.5, "", "a=b", 2, True]]
    script = f'import {{ csv }} from "./save.js"; process.stdout.write(csv({json.dumps(rows)}))'
    first, second = run_in_node(tmp_path, script).splitlines()
    assert first == """'=1+1.jpg,'+1,'-1,'@SUM(A1),'\t=1,"'=HYPERLINK(""a"",""b"")\""""
    assert second == "a dog,-0.5,,a=b,2,true"


@needs_node
def test_the_page_sends_the_token_of_its_address_and_takes_it_out_there(tmp_path):
    browser = """
    const kept = new Map();
    globalThis.sessionStorage = { setItem: (name, value) => kept.set(name, value), getItem: (name) => kept.get(name) };
    globalThis.location = { search: "?token=a-token-of-many-letters", pathname: "/", hash: "#audit" };
    const said = [];
    globalThis.history = { replaceState: (state, title, address) => said.push(address) };
    globalThis.fetch = async (path, options) => {
      said.push(path, options.headers.Authorization);
      return { ok: true, json: () => ({}) };
    };
    const { health } = await import("./api.js");
    await health();
    console.log(JSON.stringify(said));
    """
    assert json.loads(run_in_node(tmp_path, browser)) == ["/#audit", "/v1/health", "Bearer a-token-of-many-letters"]
