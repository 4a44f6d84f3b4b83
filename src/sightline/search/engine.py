"""What keeps and searches the rows of an index: `exact` and `lance` are the two there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from sightline.scene import Array
from sightline.search.rows import Candidate, Row, RowState


class Engine(Protocol):
    """Rows of one making in one place. Many may read while one writes; whoever reads sees whole batches.

    Attributes:
        kind: exact or lance.
        batch: rows that are best written together.
    """

    kind: str
    batch: int

    @property
    def maker(self) -> str:
        """The fingerprint of the model that made the rows; "" while there are none."""

    def __len__(self) -> int:
        """How many photos there are."""

    def known(self) -> dict[str, RowState]:
        """What is known of every photo, by path."""

    def rows(self, paths: Collection[str]) -> list[Row]:
        """The rows of some photos, as far as there are any."""

    def write(self, add: Sequence[Row], drop: Collection[str] = ()) -> None:
        """Drop the photos of some paths, and add rows of paths that are then not there; return when that is safe."""

    def clear(self, maker: str) -> None:
        """Drop everything, for rows of another model."""

    def tidy(self) -> None:
        """After much was written: make searching fast."""

    def find(self, vector: Array, words: Sequence[str], count: int, exact: bool | None = None) -> list[Candidate]:
        """The `count` photos nearest to a vector, and the `count` whose captions say most of some words.

        Args:
            vector: (d,) of length 1.
            words: `keywords` of a query; none for the nearest alone.
            count: of each kind; a photo of both kinds is there once.
            exact: compare every vector (True), or use the approximate index (False); None for what is usual there.
        """
