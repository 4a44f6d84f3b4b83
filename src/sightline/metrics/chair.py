"""CHAIR (Rohrbach et al. 2018, "Object Hallucination in Image Captioning"): objects said that the photo does not have.

`chair_objects.tsv` has a line for each of COCO's 80 objects: the object, and the words and phrases that name it,
separated by commas. `/n` behind one says that it counts only as a noun. A word of several lines may be any of these
objects: a *van* may be annotated as a car, a bus or a truck. The line of object `-` lists phrases that name none of
them, though a word in them does: *train track*. The table is our own, not the paper's: rates compare with each other.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sightline.errors import some
from sightline.files import open_text
from sightline.metrics.language_metric import LanguageMetric, Scores
from sightline.text.phrase_table import PhraseTable

TABLE = Path(__file__).parent / "chair_objects.tsv"
NONE = "-"
ANIMALS = ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe")
# Words for people that are said of animals, too. "A baby elephant" is no person, as in the paper; nor, in a caption
# that names an animal, is "a mother and her baby".
FAMILY = frozenset(
    "baby infant mother mom father parent adult male female son daughter twin sibling family couple".split()
)
FAMILIES = FAMILY | {f"{word}s" for word in FAMILY} | {"babies", "families"}


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
        self.objects = objects
        self.variant = f"chair:coco80-sightline-synonyms-refs{'' if objects is None else '+boxes'}"
        super().__init__()

    def note(self) -> str:
        missing = [] if self.objects is None else [id for id in self._hypotheses if id not in self.objects]
        if not missing:
            return ""
        what = f"{len(missing):,} of {len(self._hypotheses):,} images are not in the file of boxes"
        return f"{what}; CHAIR knows their objects from references alone: {some(missing)}"

    def compute(self) -> Scores:
        mentions = self._mentions()
        counts = _counts(mentions)
        (corpus,) = _rates(counts.sum(axis=0, keepdims=True))
        per_image = [dict(zip(self.keys, row, strict=True)) for row in _rates(counts)]
        words = [
            {"mentioned": [mention.words for mention in all_], "hallucinated": [mention.words for mention in wrong]}
            for all_, wrong in mentions
        ]
        return Scores(
            dict(zip(self.keys, corpus, strict=True)),
            dict(zip(self._hypotheses, per_image, strict=True)),
            dict(zip(self._hypotheses, words, strict=True)),
        )

    def resample(self, weights: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        rates = np.array(_rates(weights @ _counts(self._mentions())))
        return {key: rates[:, column] for column, key in enumerate(self.keys)}

    def _mentions(self) -> list[tuple[list[ObjectMention], list[ObjectMention]]]:
        """The mentions of every image's hypothesis, and those of them that are hallucinated."""
        texts = [text for id, caption in self._hypotheses.items() for text in (caption, *self._references[id])]
        rows = iter(mentions_all(texts))
        both = []
        for id in self._hypotheses:
            mentions = next(rows)
            if any(mention.objects & set(ANIMALS) for mention in mentions):
                mentions = [mention for mention in mentions if mention.words not in FAMILIES]
            in_photo = {name for _ in self._references[id] for mention in next(rows) for name in mention.objects}
            in_photo.update((self.objects or {}).get(id, ()))
            both.append((mentions, [mention for mention in mentions if mention.objects.isdisjoint(in_photo)]))
        return both


def mentions_all(captions: Sequence[str]) -> list[list[ObjectMention]]:
    """The mentions of COCO's objects in PTB-tokenised captions, in order, one as often as it is said.

    >>> [(one.words, *one.objects) for one in mentions_all(["two men near a baby elephant and a train track"])[0]]
    [('men', 'person'), ('baby elephant', 'elephant')]
    """
    table, meaning = _table()
    sentences = [caption.split() for caption in captions]
    return [
        [
            ObjectMention(" ".join(words[match.first : match.last + 1]), meaning[match.phrase])
            for match in matches
            if meaning[match.phrase]
        ]
        for words, matches in zip(sentences, table.find_all(sentences), strict=True)
    ]


@cache
def _table() -> tuple[PhraseTable, dict[str, frozenset[str]]]:
    """The phrases, and the objects that each may mean: none where it is listed as naming none."""
    meaning: dict[str, frozenset[str]] = {}
    phrases: list[str] = []
    with open_text(TABLE) as file:
        for line in file:
            name, listed = line.rstrip("\n").split("\t")
            names = listed.split(", ")
            family = [f"{word} {animal}" for animal in names for word in sorted(FAMILY)] if name in ANIMALS else []
            for phrase in (*names, *family):
                key = phrase.removesuffix("/n")
                phrases.append(phrase)
                meaning[key] = meaning.get(key, frozenset()) | (frozenset() if name == NONE else {name})
    return PhraseTable(phrases), meaning


def _counts(mentions: Sequence[tuple[Sequence[ObjectMention], Sequence[ObjectMention]]]) -> npt.NDArray[np.float64]:
    """(I, 4): hallucinated mentions, mentions, captions with a hallucinated one, captions."""
    return np.array([(len(wrong), len(all_), bool(wrong), 1) for all_, wrong in mentions], np.float64).reshape(-1, 4)


def _rates(counts: npt.NDArray[np.float64]) -> list[list[float]]:
    """(n, 2) CHAIRi and CHAIRs in % of (n, 4) counts; 0 where nothing is mentioned."""
    hits, totals = counts[:, ::2], counts[:, 1::2]
    rates: list[list[float]] = (100 * np.divide(hits, totals, out=np.zeros_like(hits), where=totals > 0)).tolist()
    return rates
