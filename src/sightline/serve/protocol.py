"""The lowest layer: connections. uvicorn takes any number of them, waits for ever for a request that was begun and for
an answer to be taken, and reads on while it answers.

Here a connection has to send its headers soon and to take its answers, nothing more is read of one that asks on before
it is answered, and the number of connections is bounded: one more takes the place of the one that has kept the server
waiting longest. So clients that only open connections, or never read, can use up neither descriptors nor memory, nor
keep others out.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from sightline.serve.limits import Limits

MOST_DESCRIPTORS = 4096  # that are made use of, where more are allowed
SEND_BUFFER = 1 << 17  # bytes of answers in the system's hands: of megabytes there, a slow reader seems to take nothing
STOP_SECONDS = 10  # that requests have to end in when the server is stopped


class BoundedProtocol(H11Protocol):
    """One connection."""

    limits: Limits  # seconds for headers and without progress, and connections at once
    waiting: dict[BoundedProtocol, None]  # connections that keep the server waiting, the longest first
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it; beyond the bound, another one goes: this one, if all others are being answered."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self._asks_on)
        transport.set_write_buffer_limits(0)  # writing is paused while anything is left that the client has not taken
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
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

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_clock()
        self._note_progress()

    def _note_progress(self) -> None:
        if self.flow.write_paused:
            return  # the clock of `_await_reader` runs
        answering = self._is_answering()
        if self.transport.is_closing() or (answering and not self.cycle.more_body and not self._asks_on()):
            self.waiting.pop(self, None)
        else:
            self.waiting.setdefault(self)
        if answering:
            self._stop_clock()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.header_seconds, self.transport.abort)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _asks_on(self) -> bool:
        """Whether more came behind a whole request that is not answered yet."""
        return self._is_answering() and not self.cycle.more_body and bool(self.conn.trailing_data[0])

    def _await_reader(self) -> None:
        """Cut the client off unless it takes something of its answer meanwhile; then it gets as much time again."""
        self._stop_clock()
        self.waiting.pop(self, None)
        self.waiting[self] = None
        left = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < left:
                self._await_reader()
            else:
                self.transport.abort()

        self._deadline = self.loop.call_later(self.limits.silent_seconds, look)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Flow(FlowControl):
    """uvicorn's, which reads on whenever the application looks whether its client is still there.

    With requests behind the one that is answered, this would add a part to them each time, without end.
    """

    def __init__(self, transport: asyncio.Transport, hold: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._hold = hold

    def resume_reading(self) -> None:
        if not self._hold():
            super().resume_reading()


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
