"""Probabilities by fitted logistic functions: that a caption is good, and that a photo shows a noun. numpy only.

A caption is called good if it names nothing that neither people nor boxes say is in the photo, and its CIDEr-D against
what people said about it is at least the median of what people's own captions get, each against the others of its
photo. `confidence` estimates the probability of that by a logistic function of some numbers of the caption
(`features`), fitted on photos that the captioner was not trained on (tools/fit_confidence.py). Where more speaks for a
caption, the confidence is never lower. What is not known of a caption counts as usual.

`support`, the probability that a photo shows what a noun names, is made of the noun's `Evidence`, fitted on captions of
which some had a noun replaced by another (tools/measure_audit.py). More evidence never means less support, and what no
model knows counts neither way. `place_probability`, that the box of a thing that is there overlaps by half or more what
people would draw, is made of the share of evidence that the box has (`sightline.grounding.box_chooser`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sightline.caption import Caption
from sightline.errors import ConfigError, CountError
from sightline.grounding.evidence import Evidence
from sightline.text.lemmas import lemma

Floats = npt.NDArray[np.float64]

FEATURES = (
    "mean log-probability of words and END",
    "log-probability of the least likely word",
    "words",
    "cosine with the photo, by the matcher",
    "support of the noun with the least",
    "1 less the score of the surest concept that it does not mention",
)


class Signs(NamedTuple):
    """What speaks for a caption beside the captioner: the last of the `FEATURES`; NaN where unknown."""

    cosine: float = math.nan
    least: float = math.nan
    agreement: float = math.nan


UNKNOWN = Signs()


def logistic(log_odds: Floats) -> Floats:
    """Log-odds to probabilities; no number is too large."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * log_odds)))


@dataclass(frozen=True)
class Calibration:
    """The logistic function of confidence; the defaults are a guess, for captioners that nothing was fitted for."""

    weights: tuple[float, ...] = (3.0, 0.0, 0.0)  # of the features; of those at the end that are left out, 0
    bias: float = 2.0
    low: float = 1 / 3  # a confidence below this is called low: two of three such captions are not good
    captions: int = 0  # how many it was fitted on; 0 for the guess
    usual: tuple[float, ...] = ()  # averages of the features, which stand in for unknown ones; else 0

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (*self.weights, self.bias, *self.usual))):
            raise ConfigError("a calibration with coefficients that are not numbers", fix="fit it again")
        if len(self.weights) > len(FEATURES) or len(self.usual) > len(FEATURES):
            raise ConfigError(f"{len(self.weights)} weights for {len(FEATURES)} features", fix="fit it again")
        if not 0 <= self.low <= 1:
            raise ConfigError(f"`low` is {self.low}", fix="give a probability")

    def confidence(self, features: npt.ArrayLike) -> Floats:
        """(n, features) to (n,) probabilities that the captions are good."""
        count = len(self.weights)
        usual = np.array([*self.usual, *[0.0] * len(FEATURES)][:count])
        known = np.asarray(features, np.float64)[:, :count]
        return logistic(np.where(np.isnan(known), usual, known) @ np.array(self.weights) + self.bias)

    def of(self, caption: Caption) -> float:
        """The confidence of one caption, whose words must carry their log-probabilities."""
        return float(self.confidence([features(caption)])[0])


def features(caption: Caption, signs: Signs = UNKNOWN) -> tuple[float, ...]:
    """What the confidence of a caption is made from; its words must carry their log-probabilities."""
    words = [trace.log_prob for trace in caption.trace if trace.log_prob is not None]
    if len(words) != len(caption):
        raise CountError("a caption whose words have no log-probability", where=caption.text, fix="decode with traces")
    mean = caption.log_prob / (len(words) + 1)
    return mean, min(words, default=caption.log_prob), float(len(words)), *signs


PARTS = len(Evidence._fields)


@dataclass(frozen=True)
class SupportModel:
    """The logistic functions of support and place; the defaults are a guess, for models that nothing was fitted for."""

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
            what = f"{len(self.weights)} weights and {len(self.usual)} usual values for {PARTS} parts of the evidence"
            raise ConfigError(what, fix="fit it again")
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
    if not 0 <= least <= 1:
        raise ConfigError(f"the threshold is {least}", fix="give a number from 0 to 1")
    return least
