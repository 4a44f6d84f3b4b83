"""The confidence of a caption: the probability that it is good, made from what speaks for it. numpy only.

A caption is called good if it names nothing that neither people nor boxes say is in the photo, and its CIDEr-D against
what people said about it is at least the median of what people's own captions get, each against the others of its
photo. `confidence` estimates the probability of that by a logistic function of some numbers of the caption
(`features`), fitted on photos that the captioner was not trained on (tools/fit_confidence.py). Where more speaks for a
caption, the confidence is never lower. What is not known of a caption counts as usual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sightline.caption import Caption
from sightline.errors import ConfigError, CountError

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
    """The logistic function; the defaults are a guess, for captioners that nothing was fitted for."""

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
