"""The outermost layer: how much comes at once, until when, and headers that keep a browser from helping others."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sightline.serve.limits import Limits
from sightline.serve.refusal import Refusal
from sightline.serve.security import Door

POLICY = (
    "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """Every answer leaves through it, with headers, and never with a traceback."""

    def __init__(self, app: ASGIApp, door: Door, limits: Limits) -> None:
        self.app, self.door, self.limits = app, door, limits
        self._flight = 0  # bytes of requests on their way; only the event loop's thread counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False
        body = RequestBody(receive, self.limits, self._charge, read=scope["method"] == "POST")

        async def leave(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._release(body)  # before the client can know that it may send the next
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            headers = Headers(scope=scope)
            self.door.check(headers, scope["path"])
            self._check_length(headers)
            await _run_until_left(self.app(scope, body.receive, leave), body)
        except ClientDisconnect:
            pass  # nobody is there to be answered
        except Refusal as refusal:
            if not started:
                await JSONResponse(refusal.to_json(), refusal.status, refusal.headers())(scope, receive, leave)
        except Exception as error:
            print(f"{scope['path']!r}: unexpected {type(error).__name__}: {error}", file=sys.stderr)
            if not started:
                problem = {"error": f"unexpected {type(error).__name__}", "fix": "the server's terminal tells more"}
                await JSONResponse(problem, 500)(scope, receive, leave)
        finally:
            self._release(body)

    def _check_length(self, headers: Headers) -> None:
        """Refuse a body that says itself that it is too large; none of it is received."""
        given = headers.get("content-length", "0")
        if given.isdecimal() and (len(given) > 18 or int(given) > self.limits.body):
            raise _too_large(self.limits.body)

    def _charge(self, size: int) -> None:
        if self._flight + size > self.limits.flight:
            raise Refusal.busy(2)
        self._flight += size

    def _release(self, body: RequestBody) -> None:
        self._flight -= body.charged
        body.charged = 0


class RequestBody:
    """What a client sends.

    Args:
        receive: of the server.
        limits: bytes, and seconds of silence.
        charge: is given the bytes of each part; raises where there is no room for them.
        read: whether the application reads it.
    """

    def __init__(self, receive: Receive, limits: Limits, charge: Callable[[int], None], *, read: bool) -> None:
        self._receive, self._limits, self._charge = receive, limits, charge
        self.charged = 0  # bytes
        self._whole = asyncio.Event()
        if not read:
            self._whole.set()

    async def receive(self) -> Message:
        """The next part; a refusal where the body is too large or does not come."""
        if self._whole.is_set():
            return await self._receive()
        try:
            async with asyncio.timeout(self._limits.silent_seconds):
                message = await self._receive()
        except TimeoutError as error:
            seconds = f"{self._limits.silent_seconds:g}"
            raise Refusal(408, f"nothing more of the request came for {seconds} s", "send it again") from error
        size = len(message.get("body", b""))
        if self.charged + size > self._limits.body:
            raise _too_large(self._limits.body)
        self._charge(size)
        self.charged += size
        if not message.get("more_body", False):
            self._whole.set()
        return message

    async def client_left(self) -> None:
        """Return when the client has left; before its request is whole, `receive` tells."""
        await self._whole.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _run_until_left(work: Awaitable[None], body: RequestBody) -> None:
    """Do the work of a request, but stop where nobody waits for the answer any more."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(body.client_left())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


def _too_large(most: int) -> Refusal:
    """The answer to a body of more than so many bytes."""
    return Refusal(413, f"the request has more than {most >> 20} MB", "send fewer or smaller photos at a time")
