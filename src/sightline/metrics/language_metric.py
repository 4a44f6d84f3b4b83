"""The contract of a language metric: `update / compute / reset`, over the corpus and per image."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sightline.errors import DuplicateRecordError, MissingRecordError


@dataclass(frozen=True)
class Scores:
    """Scores of one or several metrics: over the corpus, and for every image id.

    `words` holds what a metric found in an image's caption, such as the hallucinated objects.
    """

    corpus: dict[str, float]
    per_image: dict[str, dict[str, float]] = field(default_factory=dict)
    words: dict[str, dict[str, list[str]]] = field(default_factory=dict)


def mean_scores(key: str, scores: Mapping[str, float]) -> Scores:
    """The scores of a metric whose corpus score is the mean over images; zero where there is no image."""
    mean = float(np.mean([*scores.values()])) if scores else 0.0
    return Scores({key: mean}, {id: {key: score} for id, score in scores.items()})


class LanguageMetric(ABC):
    """A metric of captions against references. Sentences are PTB-tokenised strings, words parted by single spaces.

    `update` takes any number of images at a time, in any order; the outcome depends only on the set of images.
    """

    keys: tuple[str, ...]  # what it computes, as the scorecard names it: ("Bleu_1", "Bleu_2", …)
    title: str  # what people read
    titles: tuple[str, ...] = ()  # of each key, where there are several
    fraction: bool = True  # papers print it times 100; otherwise percentages and counts, as people read them
    variant: str = ""  # for the signature of a scorecard: which of several variants it is
    progress: Callable[[int], None] = staticmethod(lambda images: None)  # slow ones say how many images are scored

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._hypotheses: dict[str, str] = {}
        self._references: dict[str, tuple[str, ...]] = {}

    def update(self, hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> None:
        """Add images: one hypothesis and one or more references each."""
        for id, hypothesis in hypotheses.items():
            if id in self._hypotheses:
                fix = "give each image once, or call reset()"
                raise DuplicateRecordError(f"image {id} was scored already", fix=fix)
            if not references.get(id):
                raise MissingRecordError(f"image {id} has no reference", fix="add references for it or leave it out")
            self._hypotheses[id] = hypothesis
            self._references[id] = tuple(references[id])

    @abstractmethod
    def compute(self) -> Scores:
        """Scores of everything since the last reset; zero for no image at all."""

    def note(self) -> str:
        """What the reader of these scores should know; "" for nothing."""
        return ""

    def resample(self, weights: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """Corpus scores of R resamples of the images, each key an (R,) array, for bootstrap intervals.

        `weights` is (R, I): how often resample r draws image i, in the order of `update`. This mean of per-image scores
        is right for metrics whose corpus score is that mean; the others override it with their summed statistics.
        """
        per_image = self.compute().per_image.values()
        table = np.array([[scores[key] for key in self.keys] for scores in per_image])
        means = weights @ table / weights.sum(axis=1, keepdims=True)
        return {key: means[:, column] for column, key in enumerate(self.keys)}
