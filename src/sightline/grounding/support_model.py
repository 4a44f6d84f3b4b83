"""Whether a photo shows what a noun names, and at its box: probabilities made from what models say. numpy only.

`support`, the probability that it is in the photo, is a logistic function of the noun's `Evidence`, fitted on captions
of which some had a noun replaced by another (tools/measure_audit.py). More evidence never means less support. What no
model knows counts neither way. `place_probability`, that the box of a thing that is there overlaps by half or more what
people would draw, is one of the share of evidence that the box has (`sightline.grounding.box_chooser`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sightline.errors import ConfigError
from sightline.grounding.calibration import Floats, logistic
from sightline.grounding.evidence import Evidence
from sightline.text.lemmas import lemma

PARTS = len(Evidence._fields)


@dataclass(frozen=True)
class SupportModel:
    """The logistic functions; the defaults are a guess, for models that nothing was fitted for."""

    weights: tuple[float, ...] = (0.53, 0.17, 0.79, 0.33, 1.67, 0.0)  # of the parts of the evidence; 0 of the last ones
    usual: tuple[float, ...] = (-4.65, -7.75, 5.47, -0.1, 0.43, 0.33)  # their averages, from which they are counted
    bias: float = 3.59  # the log-odds of a noun whose evidence is all usual, or unknown
    least: float = 0.81  # a noun with less support than this is not supported
    place: tuple[float, float] = (1.57, 1.95)  # of `place_probability`: coefficient of the share's logarithm, and bias
    nouns: int = 0  # how many it was fitted on; 0 for the guess
    # Log-odds that are added for some nouns, by their lemmas: a captioner may say *frisbee* too often.
    reputation: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (*self.weights, *self.usual, self.bias, *self.place, *self.reputation.values()))):
            raise ConfigError("an audit with coefficients that are not numbers", fix="fit it again")
        if len(self.weights) != len(self.usual) or len(self.weights) > PARTS:
            raise ConfigError(
                f"{len(self.weights)} weights and {len(self.usual)} usual values for {PARTS} parts of the evidence",
                fix="fit it again",
            )
        check_least(self.least)

    def support(self, evidence: Sequence[Evidence], nouns: Sequence[str] | None = None) -> Floats:
        """(n,) probabilities that the photo shows what each noun names; their reputation counts if they are given."""
        parts = np.array(evidence, np.float64).reshape(-1, PARTS)[:, : len(self.usual)]
        centred = np.where(np.isnan(parts), 0.0, parts - np.array(self.usual))  # what is unknown is as usual
        odds = centred @ np.array(self.weights) + self.bias
        if nouns is not None and self.reputation:
            odds = odds + np.array([self.reputation.get(lemma(noun, "n"), 0.0) for noun in nouns])
        return logistic(odds)

    def place_probability(self, share: npt.ArrayLike) -> Floats:
        """Probabilities that boxes are right, given their shares of evidence."""
        slope, bias = self.place
        return logistic(slope * np.log(np.maximum(np.asarray(share, np.float64), 1e-6)) + bias)


def check_least(least: float) -> float:
    """The threshold, if it is a probability."""
    if not 0 <= least <= 1:
        raise ConfigError(f"the threshold is {least}", fix="give a number from 0 to 1")
    return least
