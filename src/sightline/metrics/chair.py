"""CHAIR (Rohrbach et al. 2018, "Object Hallucination in Image Captioning"): objects said that the photo does not have.

`chair_objects.tsv` has a line for each of COCO's 80 objects: the object, and the words and phrases that name it,
separated by commas. `/n` behind one says that it counts only as a noun. A word of several lines may be any of these
objects: a *van* may be annotated as a car, a bus or a truck. The line of object `-` lists phrases that name none of
them, though a word in them does: *train track*. The table is our own, not the paper's: rates compare with each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sightline.files import open_text
from sightline.metrics.language_metric import LanguageMetric, Scores
from sightline.text.phrase_table import PhraseTable

TABLE = Path(__file__).parent / "chair_objects.tsv"
NONE = "-"
ANIMALS = ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe")
# Words for people that are said of animals, too. "A baby elephant" is no person, as in the paper; nor, in a caption
# that names an animal, is "a mother and her baby".
KIN = frozenset(
    "baby infant mother mom father parent adult male female son daughter twin sibling family couple".split()
)


@dataclass(frozen=True, slots=True)
class ObjectMention:
    """A word or phrase of a caption that names an object of COCO, and which objects it may mean."""

    words: str
    objects: frozenset[str]


class Chair(LanguageMetric):
    """CHAIRi and CHAIRs, in %: lower is better.

    An object is hallucinated where neither the references of the image nor its `objects` have it.

    - `CHAIRi`: hallucinated mentions of objects over all mentions. Corpus: of all captions together.
    - `CHAIRs`: captions with at least one. Per image: 0 or 100.

    Args:
        objects: COCO's names of the objects in each image, by id, from boxes; images may be missing.
    """

    keys = ("CHAIRi", "CHAIRs")
    title = "CHAIR"
    titles = ("CHAIRi (%)", "CHAIRs (%)")
    fraction = False

    def __init__(self, objects: Mapping[str, Collection[str]] | None = None) -> None:
        self.objects = objects or {}
        super().__init__()

    def compute(self) -> Scores:
        """Scores of everything since the last reset; zero for no image at all."""
        said, wrong = self._found()
        counts = self._counts(said, wrong)
        rates = dict(zip(self._hypotheses, _rates(counts), strict=True))
        corpus = _rates(counts.sum(axis=0, keepdims=True))[0]
        return Scores(
            dict(zip(self.keys, corpus, strict=True)),
            {id: dict(zip(self.keys, row, strict=True)) for id, row in rates.items()},
            {
                id: {"mentioned": [one.words for one in said[id]], "hallucinated": [one.words for one in wrong[id]]}
                for id in self._hypotheses
            },
        )

    def resample(self, weights: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """Corpus scores of resamples: of the summed counts, not a mean over images."""
        rates = np.array(_rates(weights @ self._counts(*self._found())))
        return {key: rates[:, column] for column, key in enumerate(self.keys)}

    def _found(self) -> tuple[dict[str, list[ObjectMention]], dict[str, list[ObjectMention]]]:
        """The mentions of every image's hypothesis, and those of them that are hallucinated."""
        texts = [text for id, said in self._hypotheses.items() for text in (said, *self._references[id])]
        rows = iter(mentions_all(texts))
        said: dict[str, list[ObjectMention]] = {}
        wrong: dict[str, list[ObjectMention]] = {}
        for id in self._hypotheses:
            said[id] = _counted(next(rows))
            heard = _objects(next(rows) for _ in self._references[id])
            wrong[id] = _unsupported(said[id], heard | set(self.objects.get(id, ())))
        return said, wrong

    def _counts(
        self, said: Mapping[str, Sequence[ObjectMention]], wrong: Mapping[str, Sequence[ObjectMention]]
    ) -> npt.NDArray[np.float64]:
        """(I, 4): hallucinated mentions, mentions, captions with a hallucinated one, captions."""
        rows = [(len(wrong[id]), len(said[id]), bool(wrong[id]), 1) for id in self._hypotheses]
        return np.array(rows, np.float64).reshape(-1, 4)


def mentions_all(captions: Sequence[str]) -> list[list[ObjectMention]]:
    """The mentions of COCO's objects in PTB-tokenised captions, in order, one as often as it is said.

    >>> [(one.words, *one.objects) for one in mentions_all(["two men near a baby elephant and a train track"])[0]]
    [('men', 'person'), ('baby elephant', 'elephant')]
    """
    table, meaning = _table()
    sentences = [caption.split() for caption in captions]
    return [
        [
            ObjectMention(" ".join(words[one.first : one.last + 1]), meaning[one.phrase])
            for one in found
            if meaning[one.phrase]
        ]
        for words, found in zip(sentences, table.find_all(sentences), strict=True)
    ]


def object_names() -> tuple[str, ...]:
    """COCO's 80 objects, in COCO's order."""
    return tuple(name for name, _ in _lines() if name != NONE)


@cache
def _table() -> tuple[PhraseTable, dict[str, frozenset[str]]]:
    """The phrases, and the objects that each may mean: none where it is listed as naming none."""
    meaning: dict[str, frozenset[str]] = {}
    phrases: list[str] = []
    for name, listed in _lines():
        kin = [f"{word} {one}" for one in listed for word in sorted(KIN)] if name in ANIMALS else []
        for phrase in (*listed, *kin):
            key = phrase.removesuffix("/n")
            phrases.append(phrase)
            meaning[key] = meaning.get(key, frozenset()) | (frozenset() if name == NONE else {name})
    return PhraseTable(phrases), meaning


def _lines() -> list[tuple[str, tuple[str, ...]]]:
    with open_text(TABLE) as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return [(name, tuple(phrases.split(", "))) for name, phrases in rows]


def _counted(said: Sequence[ObjectMention]) -> list[ObjectMention]:
    """A hypothesis' mentions without those kin that may be an animal's."""
    animals = any(one.objects & set(ANIMALS) for one in said)
    return [one for one in said if not (animals and _names_kin(one))]


def _names_kin(mention: ObjectMention) -> bool:
    word = mention.words
    return word in KIN or word.removesuffix("s") in KIN or word in ("babies", "families")


def _objects(captions: Iterable[Sequence[ObjectMention]]) -> set[str]:
    return {name for mentions in captions for one in mentions for name in one.objects}


def _unsupported(said: Iterable[ObjectMention], objects: Collection[str]) -> list[ObjectMention]:
    return [one for one in said if one.objects.isdisjoint(objects)]


def _rates(counts: npt.NDArray[np.float64]) -> list[list[float]]:
    """(n, 2) CHAIRi and CHAIRs in % of (n, 4) counts; 0 where nothing is mentioned."""
    parts, wholes = counts[:, ::2], counts[:, 1::2]
    rates = 100 * np.divide(parts, wholes, out=np.zeros_like(parts), where=wholes > 0)
    found: list[list[float]] = rates.tolist()
    return found
