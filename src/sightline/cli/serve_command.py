"""`sightline serve`: a page and an HTTP API before one model."""

import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from sightline.cli.console import Arg, ModelFile, show
from sightline.errors import ConfigError, MissingExtraError


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    no_token: bool = False,
    store: Annotated[str | None, Arg("PATH")] = None,
    model: ModelFile = None,
    compare: ModelFile = None,
    device: str = "auto",
    threads: int | None = None,
    batch: int = 8,
    queue: int = 64,
    max_mb: int = 48,
    open: bool = False,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Show a page that captions, searches and audits photos, and answer the same over HTTP. Ctrl-C stops it.

    The address that is printed has a token: with it, nobody else on a shared machine can ask.

        sightline serve
        sightline serve --store photos.index --open
        sightline serve --compare runs/mine
        SIGHTLINE_TOKEN=… sightline serve --host 0.0.0.0

    Args:
        host: the address to listen on. By default only this machine can ask; elsewhere a token must be given.
        port: 0 takes a free one.
        token: that requests must bring, 16 characters or more; SIGHTLINE_TOKEN hides it from lists of processes. By
            default a new one at every start.
        no_token: whoever reaches this machine's own addresses may ask: every user of it.
        store: an index of photos to search, as `sightline index` makes it.
        compare: another model file, or the folder of a run: the page shows its captions beside the others.
        batch: photos that are looked at together.
        queue: photos that may wait; more are refused until there is room.
        max_mb: megabytes of one request.
        open: open the page in a browser.
        json: when it is ready, print one JSON object: its address and its model.
    """
    try:
        import uvicorn

        from sightline.serve.limits import Limits
        from sightline.serve.middleware import LOOPBACK, TOKEN_VARIABLE, Access
        from sightline.serve.protocol import server_config
    except ImportError as error:
        raise MissingExtraError.of(error.name or "fastapi", "serve", "`sightline serve`") from error
    if no_token and token is not None:
        raise ConfigError("`--token` and `--no-token` exclude each other", fix="leave one of them out")
    if token is None:
        token = "" if no_token else os.environ.get(TOKEN_VARIABLE, "")
    new_token = secrets.token_urlsafe() if not (no_token or token) and host in LOOPBACK else ""
    if new_token and quiet and not (json or open):
        raise ConfigError("nobody would know the token", fix=f"set {TOKEN_VARIABLE}, or leave --quiet out")
    access = Access(host, token or new_token)
    if max_mb < 1:
        raise ConfigError(f"`max_mb` is {max_mb}", fix="give 1 or more")
    body = max_mb << 20
    limits = Limits(queue=queue, batch=batch, body=body, flight=max(Limits.flight, body))
    with _listening(host, port) as listener:  # before the model is loaded: a port that is taken is told at once
        from sightline.search.query import PhotoIndex

        index = None if store is None else PhotoIndex(store)
        from sightline.pipeline import load
        from sightline.serve.app import make_app

        pipeline = load(model, device, threads)
        if index is not None:
            index.search(pipeline, "a photo", count=1)  # an index of another model is told now, not at the first search
        other = None if compare is None else load(compare, device)
        app = make_app(pipeline, index=index, compare=other, access=access, limits=limits)
        name = "localhost" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listener.getsockname()[1]}"
        page = f"{address}/?token={new_token}" if new_token else address
        as_json = {"address": address, "model": pipeline.bundle.card.get("name")}
        if new_token:
            as_json["token"] = new_token
        show(as_json, f"Sightline is at {page} (Ctrl-C stops it)", json=json, quiet=quiet)
        logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of every form that a client got wrong
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        # Ctrl-C and SIGTERM are no error; uvicorn raises them again when it has stopped.
        with _shown(page) if open else contextlib.nullcontext(), contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(server_config(app, limits)).run(sockets=[listener])
    if not quiet:
        print("Stopped.", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _shown(page: str) -> Iterator[None]:
    """A browser opens the page. It is led there by a file that only its owner reads: all users see its command line."""
    with tempfile.TemporaryDirectory(prefix="sightline-") as folder:
        file = Path(folder) / "page.html"
        file.write_text(f'<meta http-equiv="refresh" content="0; url={page}">\n')
        webbrowser.open(file.as_uri())
        yield


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ConfigError(f"`port` is {port}", fix="give one from 0 to 65535")
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise ConfigError(f"there is no address {host!r} ({error.strerror})", fix="check --host") from error
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # `::` is every address, also of IPv4
    try:
        return socket.create_server(place, family=family, backlog=128, dualstack_ipv6=both)
    except OSError as error:
        raise ConfigError(f"{host} port {port} cannot be used ({error.strerror})", fix="name another --port") from error
