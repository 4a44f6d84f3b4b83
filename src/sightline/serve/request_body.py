"""The body of a request, counted as it comes; and whether the client is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import Message, Receive

from sightline.serve.limits import Limits
from sightline.serve.refusal import Refusal


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
            raise too_large(self._limits.body)
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


async def run_until_left(work: Awaitable[None], body: RequestBody) -> None:
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


def too_large(most: int) -> Refusal:
    """The answer to a body of more than so many bytes."""
    return Refusal(413, f"the request has more than {most >> 20} MB", "send fewer or smaller photos at a time")
