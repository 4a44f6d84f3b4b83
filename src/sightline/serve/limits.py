"""How much a server takes on. What is beyond is refused with a sentence, never with a crash: a `Refusal`, which clients
see as a status and {"error": what, "fix": what to do}.
"""

from __future__ import annotations

from dataclasses import dataclass

from sightline.config import check_ranges
from sightline.errors import ConfigError, SightlineError

STATUS = {
    400: "The body is not what its type says.",
    401: "The token is missing or wrong.",
    403: "The request comes from another site or for another host.",
    404: "There is nothing of that name.",
    405: "The address takes another method.",
    408: "Nothing more of the body came.",
    409: "What is asked for is not here, or excludes itself.",
    413: "The request is too large.",
    415: "The body is of a type that is not read.",
    422: "What was sent cannot be used.",
    500: "A defect of the server.",
    503: "The server is busy; Retry-After says when to ask again.",
}


@dataclass(frozen=True)
class Limits:
    """The numbers."""

    queue: int = 64  # photos that are waiting or worked on at once; one more is refused until there is room
    batch: int = 8  # photos that are looked at together, whichever requests they came with
    wait: float = 0.004  # seconds that a photo waits for others to be looked at with it
    body: int = 48 << 20  # bytes of a request
    flight: int = 384 << 20  # bytes of all requests that are being received or answered, as far as they have come
    photos: int = 32  # of one request
    pixels: int = 100_000_000  # of a photo
    connections: int = 512  # open at once; one more takes the place of one that keeps the server waiting
    header_seconds: float = 10  # in which the headers of a request must come
    silent_seconds: float = 15  # without a byte of a body that comes or of an answer that is taken: it is given up

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("queue", "batch", "body", "photos", "pixels", "connections"), "[1, ∞)")
        check_ranges(self, **counts, wait="[0, ∞)", header_seconds="(0, ∞)", silent_seconds="(0, ∞)")
        if self.flight < self.body:
            raise ConfigError(f"`flight` is {self.flight}, less than one request", fix=f"give {self.body} or more")

    @property
    def photos_at_once(self) -> int:
        """Photos of one request that can ever be taken."""
        return min(self.photos, self.queue)


class Refusal(Exception):  # noqa: N818 - it is an answer, not a defect
    """An answer that is no result."""

    def __init__(self, status: int, what: str, fix: str, *, again: int | None = None) -> None:
        super().__init__(status, what, fix)
        self.status, self.what, self.fix, self.again = status, what, fix, again

    @classmethod
    def of(cls, error: SightlineError, name: str = "", status: int = 422) -> Refusal:
        """The answer for an error of Sightline's, about what was sent as `name`."""
        where = f"{name}: " if name else ""
        return cls(status, where + error.what, error.fix or "check what was sent")

    @classmethod
    def busy(cls, seconds: float) -> Refusal:
        """The answer of a server that has no room for about so many seconds."""
        again = max(1, min(60, round(seconds)))
        return cls(503, "the server is busy", f"ask again in {again} s", again=again)

    def to_json(self) -> dict[str, str]:
        return {"error": self.what, "fix": self.fix}

    def headers(self) -> dict[str, str]:
        headers = {401: {"WWW-Authenticate": "Bearer"}, 408: {"Connection": "close"}}.get(self.status, {})
        return headers if self.again is None else {**headers, "Retry-After": str(self.again)}
