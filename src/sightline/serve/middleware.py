"""The outermost layer: who may ask, how much comes at once and until when, and what a browser is told to forbid.

A server on loopback has neighbours: pages of other sites, open in the same browser. They may not read answers (there is
no CORS), may not reach it under a name of their own (the Host header is checked), and their requests are refused.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sightline.errors import ConfigError
from sightline.serve.limits import Limits, Refusal

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_VARIABLE = "SIGHTLINE_TOKEN"
SHORTEST_TOKEN = 16  # characters
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


@dataclass(frozen=True)
class Access:
    """Who may ask."""

    host: str = "127.0.0.1"  # the address that is listened on
    token: str = ""  # that requests to /v1 must bring; may be empty on loopback

    def __post_init__(self) -> None:
        if not self.token and self.host not in LOOPBACK:
            fix = f"set {TOKEN_VARIABLE}, or leave --host out"
            raise ConfigError(f"a server at {self.host} can be reached from other machines, and has no token", fix=fix)
        if self.token and (len(self.token) < SHORTEST_TOKEN or not all("!" <= c <= "~" for c in self.token)):
            fix = 'python -c "import secrets; print(secrets.token_urlsafe())" makes one'
            raise ConfigError(f"a token is {SHORTEST_TOKEN} or more letters, digits and signs, without spaces", fix=fix)

    def check(self, headers: Headers, path: str) -> None:
        """Raise the refusal of a request that may not come in."""
        host = headers.get("host", "")
        name = _host_name(host)
        if (host and not name) or (not self.token and name not in LOOPBACK):  # no other site knows a token
            raise Refusal(403, "this server answers to its own address only", f"ask for http://{self.host}")
        if not path.startswith("/v1"):
            return
        if _is_cross_site(headers):
            raise Refusal(403, "requests of other sites are not answered", "open the page of this server")
        if self.token and not self._authorizes(headers.get("authorization", "")):
            raise Refusal(401, "the token is missing or wrong", "send the header `Authorization: Bearer TOKEN`")

    def _authorizes(self, header: str) -> bool:
        scheme, _, token = header.partition(" ")
        equal = hmac.compare_digest(token.strip().encode(), self.token.encode())  # takes as long for a wrong one
        return equal and scheme.lower() == "bearer"


def _is_cross_site(headers: Headers) -> bool:
    """Whether a browser says that a page of another site asks; without TLS, some tell the origin only."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site not in ("none", "same-origin")
    return origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower()


def _host_name(header: str) -> str:
    """The name in a Host header, without its port; "" where it is none.

    >>> _host_name("Localhost:8000"), _host_name("[::1]:8000"), _host_name("::1"), _host_name("[::1]evil.com")
    ('localhost', '::1', '::1', '')
    """
    match = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]*)?|(::1)", header.lower())
    return "" if match is None else next(filter(None, match.groups()))


class Guard:
    """Every answer leaves through it, with headers, and never with a traceback."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits) -> None:
        self.app, self.access, self.limits = app, access, limits
        self._flight = 0  # bytes of requests on their way; only the event loop's thread counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False
        body = IncomingBody(receive, self.limits, self._charge, read=scope["method"] == "POST")

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._release(body)  # before the client can know that it may send the next
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            headers = Headers(scope=scope)
            self.access.check(headers, scope["path"])
            length = headers.get("content-length", "0")
            if length.isdecimal() and (len(length) > 18 or int(length) > self.limits.body):
                raise _too_large(self.limits.body)  # by what it says itself: none of it is received
            await _run_until_left(self.app(scope, body.receive, send_guarded), body)
        except ClientDisconnect:
            pass  # nobody is there to be answered
        except Refusal as refusal:
            if not started:
                await JSONResponse(refusal.to_json(), refusal.status, refusal.headers())(scope, receive, send_guarded)
        except Exception as error:
            print(f"{scope['path']!r}: unexpected {type(error).__name__}: {error}", file=sys.stderr)
            if not started:
                problem = {"error": f"unexpected {type(error).__name__}", "fix": "the server's terminal shows more"}
                await JSONResponse(problem, 500)(scope, receive, send_guarded)
        finally:
            self._release(body)

    def _charge(self, size: int) -> None:
        if self._flight + size > self.limits.flight:
            raise Refusal.busy(2)
        self._flight += size

    def _release(self, body: IncomingBody) -> None:
        self._flight -= body.charged
        body.charged = 0


class IncomingBody:
    """What a client sends; `charge` is given the bytes of each part, and raises where there is no room for them."""

    def __init__(self, receive: Receive, limits: Limits, charge: Callable[[int], None], *, read: bool) -> None:
        self._receive, self._limits, self._charge = receive, limits, charge
        self.charged = 0  # bytes
        self._complete = asyncio.Event()
        if not read:  # by the application
            self._complete.set()

    async def receive(self) -> Message:
        """The next part; a refusal where the body is too large or does not come."""
        if self._complete.is_set():
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
            self._complete.set()
        return message

    async def client_left(self) -> None:
        """Return when the client has left; before its request is whole, `receive` tells."""
        await self._complete.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _run_until_left(work: Awaitable[None], body: IncomingBody) -> None:
    """Do the work of a request, but stop where nobody waits for the answer any more."""
    answer, left = asyncio.ensure_future(work), asyncio.ensure_future(body.client_left())
    try:
        await asyncio.wait((answer, left), return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            await answer
    finally:
        answer.cancel()
        left.cancel()
        await asyncio.gather(answer, left, return_exceptions=True)


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"the request has more than {most >> 20} MB", "send fewer or smaller photos at a time")
