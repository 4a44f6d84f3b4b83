"""The HTTP API as something to fuzz: valid requests, their mutations, and a server on loopback that is sent them.

One server with a tiny random model answers all cases of a process, so that a case that takes a place in the queue, or
room for bytes, and does not give it back shows in those after it: they would be answered with 503.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import io
import json
import logging
import random
import re
import socket
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from fuzz_mutations import mutate_bytes, mutate_raw, mutate_value
from PIL import Image

from serve_samples import Served, index_of, served, tiny_pipeline
from sightline.errors import DataError
from sightline.serve.limits import Limits

BODY = 1 << 18  # bytes of a request, and of all: room that is not given back is soon missing
LIMITS = Limits(
    queue=16, batch=4, body=BODY, flight=BODY, photos=6, pixels=1_000_000, header_seconds=0.1, silent_seconds=0.1
)
PATIENCE = 20.0  # seconds that an answer may take
HIT = b"0" * 32  # stands for the id of a photo that a search has found
BOUNDARY = b"BoUnDaRy"
METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"TRACE", b"CONNECT", b"get", b"", b"\xff", b"G" * 70_000)
PATHS = (
    *(b"/v1/caption", b"/v1/search?k=200", b"/v1/audit", b"/v1/photos/" + HIT, b"/v1/explain", b"/v1//health", b"*"),
    *(b"/v1/photos/..%2f..%2fetc%2fpasswd", b"//etc/passwd", b"/v1/photos/%00", b"http://evil.com/v1/health", b"/%ff"),
    *(b"/v1/photos/" + HIT + b"?side=" + side for side in (b"16", b"1e9", b"-1", b"9" * 5000, b"NaN", b"%F0", b"")),
    b"/" + b"a" * 60_000,
)
HEADERS = (
    *(b"Host: [::1]evil.com", b"Host: ", b"Host: localhost\r\nHost: evil.com", b"Origin: null", b"Sec-Fetch-Site: x"),
    *(b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 0", b"Content-Length: 1e3"),
    *(b"Content-Length: 5\r\nContent-Length: 6", b"Content-Length: 200000", b"Content-Length: \xb2", b"Expect: x"),
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Content-Encoding: gzip", b"X: \x00"),
    *(b"Content-Type: application/json; charset=utf-16", b"Content-Type: text/plain", b"Content-Type: \xff/\xff"),
    *(b"Content-Type: multipart/form-data", b"Content-Type: multipart/form-data; boundary=", b"Upgrade: websocket"),
    *(b"Content-Type: multipart/form-data; boundary=" + b"-" * 3000, b"Authorization: Bearer \xff", b": x", b" x: y"),
    *(b"Expect: 100-continue", b"Connection: keep-alive, close, upgrade", b"Range: bytes=0-", b"X: " + b"x" * 70_000),
)
PART_HEADERS = (
    *(b'; filename=""', b'; filename="../../x.csv"', b'; filename="\xff.jpg"', b"; filename*=UTF-8''%ff%00.jpg"),
    *(b'; name="photos"', b'; name="captions"; filename="x.tsv"', b'; name=""', b'; filename="' + b"a" * 9000 + b'"'),
    *(b"\r\nContent-Type: application/octet-stream", b"\r\nContent-Transfer-Encoding: base64", b'; filename="\x00"'),
)


def samples() -> dict[str, bytes]:
    """Valid requests by what they ask for."""
    photo, other = _photo(1), _photo(2)
    encoded = [{"name": f"{n}.png", "data": base64.b64encode(data).decode()} for n, data in enumerate((photo, other))]
    files = [("photos", "0.png", photo), ("photos", "1.png", other)]
    table = b"file,caption\n0.png,a dog on a table\n1.png,two cats\n"
    sentence = {"sentence": "a dog with a red ball"}
    wishes: dict[str, Any] = {"beam": 2, "length": "short", "must_include": ["dog"], "alternatives": 1}
    search: dict[str, Any] = {"text": "a dog", "k": 3}
    hit = HIT.decode()
    return {
        "caption, json": _json("caption", {"photos": encoded, **wishes, "attention": True, "model": "tiny"}),
        "caption, form": _form("caption", files, [*wishes.items(), ("attention", "true"), ("must_include", "a cat")]),
        "ground, json": _json("ground", {"photo": encoded[0], **sentence}),
        "ground, form": _form("ground", [("photo", "0.png", photo)], sentence.items()),
        "search, json": _json("search", {**search, "photo": encoded[1], "explain": True, "without": None}),
        "search, form": _form("search", [], {**search, "without": "cat", "like": hit}.items()),
        "audit, json": _json("audit", {"photos": encoded, "captions": ["a dog", "two cats"]}),
        "audit, form": _form("audit", [*files, ("captions", "x.csv", table)], []),
        "explain": _json("explain", {"ids": [hit, hit], **sentence}),
        "why": _json(f"photos/{hit}/ground", sentence),
        "photo": _request(f"GET /v1/photos/{hit}?side=64", b""),
        "health": _request("GET /v1/health", b""),
    }


def _photo(seed: int) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 256, (20, 24, 3), np.uint8)
    Image.fromarray(noise).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def _json(path: str, content: object) -> bytes:
    return _request(f"POST /v1/{path}", json.dumps(content).encode(), "application/json")


def _form(path: str, files: list[tuple[str, str, bytes]], fields: Any) -> bytes:
    parts = [(f'name="{name}"; filename="{file}"', data) for name, file, data in files]
    for name, value in fields:
        values = value if isinstance(value, list) else [value]
        parts += [(f'name="{name}"', str(one).encode()) for one in values]
    body = b"".join(
        b"--%b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % (BOUNDARY, told.encode(), data)
        for told, data in parts
    )
    kind = f"multipart/form-data; boundary={BOUNDARY.decode()}"
    return _request(f"POST /v1/{path}", body + b"--%b--\r\n" % BOUNDARY, kind)


def _request(line: str, body: bytes, kind: str = "") -> bytes:
    told = [f"{line} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    told += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"] if kind else []
    return "\r\n".join(told).encode() + b"\r\n\r\n" + body


# Mutations


def mutate_request(data: bytes, rng: random.Random) -> bytes:
    """A change of the first line, of headers or of the body, whose declared length is right three times in four."""
    head, _, body = data.partition(b"\r\n\r\n")
    what = rng.choice(("line", "header", "body", "body", "body", "bytes"))
    if what == "bytes":
        return mutate_raw(data, rng)
    lines = head.split(b"\r\n")
    if what == "line":
        lines[0] = _mutate_line(lines[0], rng)
    elif what == "header":
        at = rng.randrange(1, len(lines) + 1)
        lines[at : at + rng.randrange(2)] = [rng.choice(HEADERS)]
    elif body.startswith(b"--"):
        body = _mutate_form(body, rng)
    else:
        body = _mutate_json(body, rng)
    if what == "body" and rng.random() < 0.75:
        lines = [line for line in lines if not line.lower().startswith(b"content-length")]
        if rng.random() < 0.15:
            lines, body = [*lines, b"Transfer-Encoding: chunked"], _chunked(body, rng)
        else:
            lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _mutate_line(line: bytes, rng: random.Random) -> bytes:
    method, _, rest = line.partition(b" ")
    path, _, version = rest.rpartition(b" ")
    what = rng.randrange(4)
    if what == 0:
        method = rng.choice(METHODS)
    elif what == 1:
        path = rng.choice(PATHS)
    elif what == 2:
        path = mutate_raw(path, rng)
    else:
        version = rng.choice((b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"", b"\x00", b"HTTP/1.1\r\n x"))
    return b" ".join((method, path, version))


def _mutate_json(body: bytes, rng: random.Random) -> bytes:
    """Another value somewhere, another photo, or other bytes."""
    what = rng.randrange(4)
    with contextlib.suppress(ValueError):
        content = json.loads(body)
        if what == 0:
            photos = [photo for photo in (*content.get("photos", []), content.get("photo")) if photo]
            for photo in photos:
                photo["data"] = base64.b64encode(mutate_bytes(base64.b64decode(photo["data"]), rng)).decode()
            return json.dumps(content).encode()
        if what < 3:
            return json.dumps(mutate_value(content, rng)).encode()
    return rng.choice((mutate_raw(body, rng), b"[" * 50_000, b'{"a":' * 20_000, b"9" * 6000, b"\xef\xbb\xbf" + body))


def _mutate_form(body: bytes, rng: random.Random) -> bytes:
    """A part that is changed, left out or there many times; or another boundary."""
    mark = b"--" + BOUNDARY
    parts = body.split(mark)[1:-1]
    at, what = rng.randrange(len(parts)), rng.randrange(6)
    told, blank, content = parts[at].partition(b"\r\n\r\n")
    if what == 0:
        parts[at] = told + blank + mutate_bytes(content.removesuffix(b"\r\n"), rng) + b"\r\n"
    elif what == 1:
        parts[at] = told + rng.choice(PART_HEADERS) + blank + content
    elif what == 2:
        parts[at] = mutate_raw(told, rng) + blank + content
    elif what == 3:
        parts[at : at + 1] = [parts[at]] * rng.choice((0, 2, 9, 1001))
    elif what == 4:
        values = (b"", b"9" * 5000, b"-1", b"NaN", b"true", b"\xff\xfe", b"a" * 100_000, b"\x00", "\u0662".encode())
        parts[at] = told + blank + rng.choice(values) + b"\r\n"
    else:
        return body.replace(mark, rng.choice((b"--", b"-", b"\r\n" + mark, mark + b"\x00", b"")), rng.choice((1, -1)))
    return mark + mark.join([*parts, b"--\r\n"])


def _chunked(body: bytes, rng: random.Random) -> bytes:
    size = b"%x" % len(body)
    size = rng.choice((size, size, size, b"-1", b"f" * 40, b"0x10", size + b";x=" + b"y" * 20_000, b""))
    return size + b"\r\n" + body + b"\r\n0\r\n" + rng.choice((b"", b"X: y\r\n")) + b"\r\n"


# The server


class _Errors(logging.Handler):
    """What the server logs as an error: nothing that a client sends may."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it for the case in which it came."""
        self.messages.append(self.format(record))


class FuzzedServer:
    """A server that runs until the process ends, its log of errors, and a photo that can be asked for."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        pipeline = tiny_pipeline()
        self._context = served(pipeline, index=index_of(pipeline, Path(self._folder.name)), limits=LIMITS)
        self.running: Served = self._context.__enter__()
        self.errors = _Errors()
        for name in ("asyncio", "uvicorn.error"):
            logging.getLogger(name).addHandler(self.errors)
        logging.getLogger("python_multipart").setLevel(logging.ERROR)  # as `sightline serve` has it
        photo = next((Path(self._folder.name) / "photos").iterdir())
        self.hit = self.running.service.found_photos.add(str(photo), photo.name).encode()

    def ask(self, request: bytes) -> tuple[int, str, bytes]:
        """Status, type and body of the answer; raises a DataError where the connection is closed without one."""
        address = urlsplit(self.running.address)
        with socket.create_connection((address.hostname, address.port), timeout=PATIENCE) as connection:
            with contextlib.suppress(ConnectionError):  # it may answer, and close, before it has read all
                connection.sendall(request)
            method = request.partition(b" ")[0].decode("latin-1")
            with http.client.HTTPResponse(connection, method=method) as response:
                try:
                    response.begin()
                    return response.status, response.headers.get("content-type", ""), response.read()
                except (ConnectionError, http.client.IncompleteRead) as error:
                    # a connection that is closed before all was read is reset, and may take h11's own 400 with it
                    if isinstance(error, http.client.IncompleteRead) and response.status != 400:
                        raise
                    raise DataError("the connection was closed without an answer") from error

    def check(self) -> None:
        """Raise what is wrong after a case: errors in the log, places in the queue that nobody has given back."""
        until = time.monotonic() + PATIENCE
        while self.running.service.worker.reserved and time.monotonic() < until:
            time.sleep(0.002)
        assert not self.running.service.worker.reserved, "places in the queue were not given back"
        logged, self.errors.messages = self.errors.messages, []
        assert not logged, "\n".join(logged)

    @property
    def folder(self) -> str:
        """Where its files are, which no client may learn."""
        return self._folder.name


server = functools.cache(FuzzedServer)


def send(path: Path) -> None:
    """Send the request in a file. An answer of 4xx is a refusal; 5xx, or words of our disk, are findings."""
    asked = server()
    try:
        status, kind, body = asked.ask(path.read_bytes().replace(HIT, asked.hit))
    finally:
        asked.check()
    assert 200 <= status < 500, (status, body[:500])
    assert asked.folder.encode() not in body, body[:500]
    assert not re.search(rb"Traceback|File \"", body), body[:500]
    if status >= 400:
        what = body.decode()
        if kind == "application/json" and what:  # what h11 itself refuses is text
            problem = json.loads(what)
            assert problem.keys() == {"error", "fix"}, problem
        raise DataError(f"{status} {what[:200]}")
