"""Who may ask.

A server on loopback has neighbours: pages of other sites, open in the same browser. They may not read answers (there is
no CORS), may not reach it under a name of their own (the Host header is checked), and their requests are refused.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass

from starlette.datastructures import Headers

from sightline.errors import ConfigError
from sightline.serve.refusal import Refusal

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_VARIABLE = "SIGHTLINE_TOKEN"
SHORTEST = 16  # characters of a token


@dataclass(frozen=True)
class Door:
    """Who may ask.

    Attributes:
        host: the address that is listened on.
        token: that requests to /v1 must bring; may be empty on loopback.
    """

    host: str = "127.0.0.1"
    token: str = ""

    def __post_init__(self) -> None:
        if not self.token and self.host not in LOOPBACK:
            raise ConfigError(
                f"a server at {self.host} can be reached from other machines, and has no token",
                fix=f"set {TOKEN_VARIABLE}, or leave --host out",
            )
        if self.token and (len(self.token) < SHORTEST or not all("!" <= c <= "~" for c in self.token)):
            raise ConfigError(
                f"a token is {SHORTEST} or more letters, digits and signs, without spaces",
                fix='python -c "import secrets; print(secrets.token_urlsafe())" makes one',
            )

    def check(self, headers: Headers, path: str) -> None:
        """Raise the refusal of a request that may not come in."""
        if not self.token and _name(headers.get("host", "")) not in LOOPBACK:  # no other site knows a token
            raise Refusal(403, "this server answers to its own address only", f"ask for http://{self.host}")
        if not path.startswith("/v1"):
            return
        if _from_elsewhere(headers):
            raise Refusal(403, "requests of other sites are not answered", "open the page of this server")
        if self.token and not self._knows(headers.get("authorization", "")):
            raise Refusal(401, "the token is missing or wrong", "send the header `Authorization: Bearer TOKEN`")

    def _knows(self, given: str) -> bool:
        scheme, _, token = given.partition(" ")
        right = hmac.compare_digest(token.strip().encode(), self.token.encode())  # as long for a wrong one
        return right and scheme.lower() == "bearer"


def _from_elsewhere(headers: Headers) -> bool:
    """Whether a browser says that a page of another site asks; without TLS, some tell the origin only."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site not in ("none", "same-origin")
    return origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower()


def _name(host: str) -> str:
    """The name in a Host header, without its port; "" where it is none.

    >>> _name("Localhost:8000"), _name("[::1]:8000"), _name("::1"), _name("[::1]evil.com")
    ('localhost', '::1', '::1', '')
    """
    found = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]*)?|(::1)", host.lower())
    return "" if found is None else next(filter(None, found.groups()))
