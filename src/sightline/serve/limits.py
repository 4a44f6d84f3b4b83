"""How much a server takes on. What is beyond is refused with a sentence, never with a crash."""

from __future__ import annotations

from dataclasses import dataclass

from sightline.config import check_ranges
from sightline.errors import ConfigError


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
