"""How much a server takes on. What is beyond is refused with a sentence, never with a crash."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sightline.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """The numbers.

    Attributes:
        queue: photos that are waiting or worked on at once; one more is refused until there is room.
        batch: photos that are looked at together, whichever requests they came with.
        wait: seconds that a photo waits for others to be looked at with it.
        body: bytes of a request.
        flight: bytes of all requests that are being received or answered, as far as they have come.
        photos: of one request.
        pixels: that a photo may have.
        connections: open at once; one more takes the place of one that has not sent a whole request.
        header_seconds: in which the headers of a request must come.
        silent_seconds: without a byte of a body that is still coming, after which it is given up.
    """

    queue: int = 64
    batch: int = 8
    wait: float = 0.004
    body: int = 48 << 20
    flight: int = 384 << 20
    photos: int = 32
    pixels: int = 100_000_000
    connections: int = 512
    header_seconds: float = 10
    silent_seconds: float = 15

    def __post_init__(self) -> None:
        for name in ("queue", "batch", "body", "photos", "pixels", "connections"):
            if getattr(self, name) < 1:
                raise ConfigError(f"`{name}` is {getattr(self, name)}", fix="give 1 or more")
        for name in ("header_seconds", "silent_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"`{name}` is {getattr(self, name)}", fix="give more than 0 seconds")
        if self.wait < 0:
            raise ConfigError(f"`wait` is {self.wait}", fix="give 0 or more seconds")
        if self.flight < self.body:
            raise ConfigError(f"`flight` is {self.flight}, less than one request", fix=f"give {self.body} or more")

    @property
    def most(self) -> int:
        """Photos of one request that can ever be taken."""
        return min(self.photos, self.queue)

    def within(self, *, connections: int) -> Limits:
        """The same limits, but not more connections than that."""
        return replace(self, connections=min(self.connections, connections))
