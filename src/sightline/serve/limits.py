"""How much a server takes on. What is beyond is refused with a sentence, never with a crash."""

from __future__ import annotations

from dataclasses import dataclass

from sightline.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """The numbers.

    Attributes:
        queue: photos that are waiting or worked on at once; one more is refused until there is room.
        batch: photos that are looked at together, whichever requests they came with.
        wait: seconds that a photo waits for others to be looked at with it.
        body: bytes of a request.
        flight: bytes of all requests that are being received or answered.
        photos: of one request.
        pixels: that a photo may have.
    """

    queue: int = 64
    batch: int = 8
    wait: float = 0.004
    body: int = 48 << 20
    flight: int = 384 << 20
    photos: int = 32
    pixels: int = 100_000_000

    def __post_init__(self) -> None:
        for name in ("queue", "batch", "body", "photos", "pixels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"`{name}` is {getattr(self, name)}", fix="give 1 or more")
        if self.wait < 0:
            raise ConfigError(f"`wait` is {self.wait}", fix="give 0 or more seconds")
        if self.flight < self.body:
            raise ConfigError(f"`flight` is {self.flight}, less than one request", fix=f"give {self.body} or more")

    @property
    def most(self) -> int:
        """Photos of one request that can ever be taken."""
        return min(self.photos, self.queue)
