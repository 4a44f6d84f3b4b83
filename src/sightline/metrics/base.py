"""The contract of a language metric: `update / compute / reset`, over the corpus and per image."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sightline.errors import DuplicateRecordError, MissingRecordError


@dataclass(frozen=True)
class Scores:
    """Scores of one or several metrics: over the corpus, and for every image id."""

    corpus: dict[str, float]
    per_image: dict[str, dict[str, float]] = field(default_factory=dict)


class LanguageMetric(ABC):
    """A metric of captions against references. Sentences are PTB-tokenised strings, words parted by single spaces.

    `update` takes any number of images at a time, in any order; the outcome depends only on the set of images.
    """

    keys: tuple[str, ...]  # what it computes, as the scorecard names it: ("Bleu_1", "Bleu_2", …)
    title: str  # what people read

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every image."""
        self._hypotheses: dict[str, str] = {}
        self._references: dict[str, tuple[str, ...]] = {}

    def update(self, hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> None:
        """Add images: one hypothesis and one or more references each."""
        for id, hypothesis in hypotheses.items():
            if id in self._hypotheses:
                raise DuplicateRecordError(
                    f"image {id} was scored already", fix="give each image once, or call reset()"
                )
            if not references.get(id):
                raise MissingRecordError(f"image {id} has no reference", fix="add references for it or leave it out")
            self._hypotheses[id] = hypothesis
            self._references[id] = tuple(references[id])

    @abstractmethod
    def compute(self) -> Scores:
        """Scores of everything since the last reset."""
