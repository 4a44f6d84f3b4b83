"""How far a caption is to be trusted: a probability made from what speaks for it. numpy only.

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
from sightline.errors import ConfigError, CountError, NonFiniteError
from sightline.grounding.logistic import fit_logistic, logistic

Floats = npt.NDArray[np.float64]

FEATURES = (
    "mean log-probability of words and END",
    "log-probability of the least likely word",
    "words",
    "cosine with the photo, by the matcher",
    "support of the noun with the least",
    "1 less the score of the surest concept that it does not mention",
)
RISING = (True, True, False, True, True, True)  # which features may not lower the confidence


class Signs(NamedTuple):
    """What speaks for a caption beside the captioner: the last of the `FEATURES`; NaN where nobody knows."""

    cosine: float = math.nan
    least: float = math.nan
    agreement: float = math.nan


UNKNOWN = Signs()


@dataclass(frozen=True)
class Calibration:
    """The logistic function; the defaults are a guess, for captioners that nothing was fitted for.

    Attributes:
        weights: of the features, in their order; of those at the end that are left out, 0.
        bias: added to their sum.
        low: a confidence below this is called low. At a third, two of three such captions are not good.
        captions: how many captions it was fitted on; 0 for the guess.
        usual: what features are on average, in their order, which those are taken for that nobody knows; else 0.
    """

    weights: tuple[float, ...] = (3.0, 0.0, 0.0)
    bias: float = 2.0
    low: float = 1 / 3
    captions: int = 0
    usual: tuple[float, ...] = ()

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

    def of(self, caption: Caption, signs: Signs = UNKNOWN) -> float:
        """The confidence of one caption, whose words must carry their log-probabilities."""
        return float(self.confidence([features(caption, signs)])[0])


def features(caption: Caption, signs: Signs = UNKNOWN) -> tuple[float, ...]:
    """What the confidence of a caption is made from; its words must carry their log-probabilities."""
    words = [trace.log_prob for trace in caption.trace if trace.log_prob is not None]
    if len(words) != len(caption):
        raise CountError("a caption whose words have no log-probability", where=caption.text, fix="decode with traces")
    own = caption.log_prob / (len(words) + 1), min(words, default=caption.log_prob), float(len(words))
    return (*own, *signs)


def fit(features: npt.ArrayLike, good: npt.ArrayLike, low: float = 1 / 3) -> Calibration:
    """The calibration under which `good` (n,) is most likely, given the captions' features (n, features).

    Newton's method on standardised features. One that may not lower the confidence, and would, is left out; so is one
    that nobody knows of any caption.
    """
    x, y = np.asarray(features, np.float64), np.asarray(good, np.float64)
    if x.ndim != 2 or x.shape != (len(y), len(FEATURES)):
        raise CountError(
            f"features of shape {x.shape} for {y.shape} captions", fix=f"give (n, {len(FEATURES)}) and (n,)"
        )
    if np.isinf(x).any() or np.isnan(x[:, : -len(UNKNOWN)]).any():
        raise NonFiniteError("a feature is NaN or infinite", fix="leave captions without probability out")
    if len(np.unique(y)) < 2:
        raise CountError("all captions are good, or none is", fix="fit on captions of both kinds")
    usual = np.array([0.0 if np.isnan(column).all() else np.nanmean(column) for column in x.T])
    x = np.where(np.isnan(x), usual, x)
    scale = np.where(x.std(0) > 0, x.std(0), 1)
    coefficients, bias = fit_logistic((x - usual) / scale, y, RISING)
    weights = coefficients / scale
    return Calibration(tuple(weights.tolist()), float(bias - weights @ usual), low, len(y), tuple(usual.tolist()))


def calibration_error(confidence: npt.ArrayLike, good: npt.ArrayLike, bins: int = 10) -> float:
    """Expected calibration error: how far confidence and share of good captions are apart, in bins of equal count."""
    said, was = np.asarray(confidence, np.float64), np.asarray(good, np.float64)
    order = np.argsort(said, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(part) * abs(said[part].mean() - was[part].mean()) for part in parts) / len(said))
