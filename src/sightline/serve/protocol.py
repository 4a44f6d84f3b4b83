"""The lowest layer: connections. uvicorn waits for ever for a request that was begun, and takes any number of them.

Here a connection has to send its headers soon, and the number of connections is bounded: one more takes the place of
the one that has waited longest without a whole request. So clients that only open connections can neither use up the
descriptors of the process nor keep others out.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from sightline.serve.limits import Limits

MOST_DESCRIPTORS = 4096  # that are reckoned with, where more are allowed
STOP_SECONDS = 10  # that requests have to end in when the server is stopped


class BoundedProtocol(H11Protocol):
    """One connection."""

    limits: Limits  # seconds for headers, and connections at once
    waiting: dict[BoundedProtocol, None]  # connections that have not sent a whole request, the oldest first
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it; beyond the bound, another one goes: this one, if all others are being answered."""
        super().connection_made(transport)
        self._note_progress()
        if len(self.connections) > self.limits.connections:
            oldest = next(iter(self.waiting))
            self.waiting.pop(oldest)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.waiting.pop(self, None)
        self._stop_clock()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note_progress()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_progress()

    def _note_progress(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if self.transport.is_closing() or (answering and not self.cycle.more_body):
            self.waiting.pop(self, None)
        else:
            self.waiting.setdefault(self)
        if answering:
            self._stop_clock()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.header_seconds, self.transport.abort)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def server_config(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """How uvicorn runs an application within limits, and within the descriptors that the process may have.

    A quarter of these is for connections. asyncio takes up to `backlog` new ones in a turn of its loop and needs four
    turns to close one again: another quarter. The rest is for photos, the index and uploads on the disk.
    """
    descriptors = _descriptors()
    bounded = replace(limits, connections=min(limits.connections, max(1, descriptors // 4)))
    return uvicorn.Config(
        app,
        http=type("Connection", (BoundedProtocol,), {"limits": bounded, "waiting": {}}),
        backlog=max(1, descriptors // 16),
        timeout_graceful_shutdown=STOP_SECONDS,
        log_level="error",
        access_log=False,
        server_header=False,
        ws="none",
    )


def _descriptors() -> int:
    try:
        import resource
    except ImportError:  # Windows, where sockets are not counted among files
        return MOST_DESCRIPTORS
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if allowed == resource.RLIM_INFINITY else min(allowed, MOST_DESCRIPTORS)
