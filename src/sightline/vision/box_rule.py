"""How many regions a scene has: always so many, or as many as the photo has things worth a box."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sightline.errors import ConfigError

SCORE = 0.1  # the overlap with a thing that a box expects of itself: below, it is most likely background


@dataclass(frozen=True)
class BoxRule:
    """Every box of a score of `score`, at least `least` and at most `most`, the best first."""

    least: int
    most: int
    score: float = SCORE

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ConfigError(f"{self.least} to {self.most} boxes were asked for", fix="give 36, or 10..100")
        if not 0 <= self.score <= 1:
            raise ConfigError(f"the score of boxes is {self.score}", fix="give 0 to 1")

    @classmethod
    def parse(cls, text: str) -> BoxRule:
        """The rule that people write as `36` or `10..100`.

        >>> BoxRule.parse("10..100")
        BoxRule(least=10, most=100, score=0.1)
        """
        found = re.fullmatch(r"(\d{1,4})(?:\.\.(\d{1,4}))?", text.strip(), re.ASCII)
        if found is None:
            raise ConfigError(f"`boxes` is {text!r}", fix="give a number such as 36, or a range such as 10..100")
        return cls(int(found[1]), int(found[2] or found[1]))

    @property
    def is_fixed(self) -> bool:
        """Whether all photos get the same number of boxes."""
        return self.least == self.most

    def __str__(self) -> str:
        return str(self.most) if self.is_fixed else f"{self.least}..{self.most} of score {self.score}"
