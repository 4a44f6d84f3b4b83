"""What is not done, as clients see it: a status and {"error": what, "fix": what to do}."""

from __future__ import annotations

from sightline.errors import SightlineError

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
