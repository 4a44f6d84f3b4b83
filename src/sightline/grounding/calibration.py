"""How far a caption is to be trusted: a probability made from how sure the captioner was of its words. numpy only.

A caption is called good if its CIDEr-D against what people said about the photo is at least the median of what people's
own captions get, each against the others of its photo. `confidence` estimates the probability of that by a logistic
function of three numbers of the caption (`features`), fitted on photos that the captioner was not trained on. Where the
captioner is surer of its words, the confidence is never lower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sightline.caption import Caption
from sightline.errors import ConfigError, CountError, NonFiniteError
from sightline.grounding.logistic import fit_logistic, logistic

Floats = npt.NDArray[np.float64]

FEATURES = ("mean log-probability of words and END", "log-probability of the least likely word", "words")
RISING = (True, True, False)  # which features may not lower the confidence


@dataclass(frozen=True)
class Calibration:
    """The logistic function; the defaults are a guess, for captioners that nothing was fitted for.

    Attributes:
        weights: of the three features.
        bias: added to their sum.
        low: a confidence below this is called low. At a third, two of three such captions are not good.
        captions: how many captions it was fitted on; 0 for the guess.
    """

    weights: tuple[float, float, float] = (3.0, 0.0, 0.0)
    bias: float = 2.0
    low: float = 1 / 3
    captions: int = 0

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (*self.weights, self.bias))):
            raise ConfigError("a calibration with coefficients that are not numbers", fix="fit it again")
        if not 0 <= self.low <= 1:
            raise ConfigError(f"`low` is {self.low}", fix="give a probability")

    def confidence(self, features: npt.ArrayLike) -> Floats:
        """(n, 3) features to (n,) probabilities that the captions are good."""
        return logistic(np.asarray(features, np.float64) @ np.array(self.weights) + self.bias)

    def of(self, caption: Caption) -> float:
        """The confidence of one caption, whose words must carry their log-probabilities."""
        return float(self.confidence([features(caption)])[0])


def features(caption: Caption) -> tuple[float, float, float]:
    """What the confidence of a caption is made from; its words must carry their log-probabilities."""
    words = [trace.log_prob for trace in caption.trace if trace.log_prob is not None]
    if len(words) != len(caption):
        raise CountError("a caption whose words have no log-probability", where=caption.text, fix="decode with traces")
    return caption.log_prob / (len(words) + 1), min(words, default=caption.log_prob), float(len(words))


def fit(features: npt.ArrayLike, good: npt.ArrayLike, low: float = 1 / 3) -> Calibration:
    """The calibration under which `good` (n,) is most likely, given the captions' features (n, 3).

    Newton's method on standardised features. One that may not lower the confidence, and would, is left out.
    """
    x, y = np.asarray(features, np.float64), np.asarray(good, np.float64)
    if x.ndim != 2 or x.shape != (len(y), len(FEATURES)):
        raise CountError(f"features of shape {x.shape} for {y.shape} captions", fix="give (n, 3) and (n,)")
    if not np.isfinite(x).all():
        raise NonFiniteError("a feature is NaN or infinite", fix="leave captions without probability out")
    if len(np.unique(y)) < 2:
        raise CountError("all captions are good, or none is", fix="fit on captions of both kinds")
    mean, deviation = x.mean(0), x.std(0)
    scale = np.where(deviation > 0, deviation, 1)
    coefficients, bias = fit_logistic((x - mean) / scale, y, RISING)
    weights = coefficients / scale
    first, second, third = weights.tolist()
    return Calibration((first, second, third), float(bias - weights @ mean), low, len(y))


def calibration_error(confidence: npt.ArrayLike, good: npt.ArrayLike, bins: int = 10) -> float:
    """Expected calibration error: how far confidence and share of good captions are apart, in bins of equal count."""
    said, was = np.asarray(confidence, np.float64), np.asarray(good, np.float64)
    order = np.argsort(said, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(part) * abs(said[part].mean() - was[part].mean()) for part in parts) / len(said))
