"""A whole server on loopback, with a tiny random model and an index of the example photos."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.types import ASGIApp

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.pipeline import Pipeline
from sightline.search.query import PhotoIndex
from sightline.serve.app import make_app
from sightline.serve.limits import Limits
from sightline.serve.protocol import server_config
from sightline.serve.service import Service

PHOTOS = sorted(EXAMPLES.glob("*.jpg"))


def tiny_pipeline() -> Pipeline:
    return Pipeline(tiny_bundle())


def index_of(pipeline: Pipeline, folder: Path) -> PhotoIndex:
    """An index of copies of the example photos."""
    photos = folder / "photos"
    photos.mkdir()
    for photo in PHOTOS:
        shutil.copy(photo, photos)
    store = folder / "index"
    pipeline.index(photos, store, engine="exact")
    return PhotoIndex(store)


def waited_for(true: Callable[[], bool], seconds: float = 15) -> bool:
    """Whether something is true within some seconds."""
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    return true()


class Served:
    """A server that runs: its address, a client, what stands behind it, and how many jobs its worker did together."""

    def __init__(self, address: str, service: Service) -> None:
        self.address, self.service = address, service
        self.client = httpx.Client(base_url=address, timeout=30, trust_env=False)
        self.batch_sizes: list[int] = []
        run = service.worker._run

        def recording(batch: list[Any]) -> None:
            run(batch)
            self.batch_sizes.append(len(batch))

        service.worker._run = recording  # type: ignore[method-assign]

    @property
    def queue_length(self) -> int:
        """Jobs that no batch has begun with, and that somebody still waits for."""
        return sum(not job.result.cancelled() for job in self.service.worker._jobs)


@contextlib.contextmanager
def served(pipeline: Pipeline, **options: Any) -> Iterator[Served]:
    app = make_app(pipeline, **options)
    with listening(app, options.get("limits") or Limits()) as address:
        running = Served(address, app.state.service)
        try:
            yield running
        finally:
            running.client.close()


@contextlib.contextmanager
def listening(app: ASGIApp, limits: Limits) -> Iterator[str]:
    """The address at which an application answers."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(app, limits))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
