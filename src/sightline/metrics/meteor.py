"""METEOR 1.5 (Denkowski and Lavie 2014) for English, equal to the Java tool as coco-caption runs it, without Java.

Parameters of the ranking task: alpha 0.85, beta 0.2, gamma 0.6, delta 0.75; weights of the modules 1, 0.6, 0.8, 0.6.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from sightline.errors import MissingRecordError
from sightline.metrics.language_metric import LanguageMetric, Scores
from sightline.metrics.meteor_data import open_data
from sightline.metrics.meteor_match import Alignment, Candidates, Matcher, align
from sightline.metrics.meteor_words import MODULES, Lexicon, Sentence

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # exact, stem, synonym, paraphrase
_WEIGHTS = (*(weight * DELTA for weight in WEIGHTS), *(weight * (1 - DELTA) for weight in WEIGHTS))
_BATCH = 1024  # images at a time: progress is told after each
_MARGIN = 1e-9  # wider than rounding errors of a score

Statistics = tuple[int, ...]
"""What METEOR counts in one pair of sentences, 23 numbers: the words of hypothesis and reference; the function words of
both; for each module the content words matched in hypothesis and reference and the function words matched in both; the
chunks; the words matched in hypothesis and reference."""


@dataclass(frozen=True)
class MeteorMatch:
    """Words of a hypothesis matched with words of a reference, where they stand, and by which module."""

    hypothesis: str
    reference: str
    module: str
    hypothesis_span: tuple[int, int]
    reference_span: tuple[int, int]


@dataclass(frozen=True)
class MeteorAlignment:
    """The alignment with the best reference. Spans count the words that METEOR's normaliser made."""

    score: float
    best: int  # which reference
    hypothesis: tuple[str, ...]
    reference: tuple[str, ...]
    matches: tuple[MeteorMatch, ...]
    statistics: Statistics


class Meteor(LanguageMetric):
    """METEOR 1.5: the best reference of each image. Corpus: the score of the summed statistics."""

    keys = ("METEOR",)
    title = "METEOR 1.5"

    def __init__(self) -> None:
        super().__init__()
        self._lexicon: Lexicon | None = None

    def reset(self) -> None:
        super().reset()
        self._found: dict[str, tuple[float, Statistics]] = {}

    def compute(self) -> Scores:
        found = self._scored()
        per_image = {id: {"METEOR": own} for id, (own, _) in found.items()}
        return Scores({"METEOR": corpus_score(numbers for _, numbers in found.values())}, per_image)

    def statistics(self) -> dict[str, Statistics]:
        """For each image what METEOR counts with its best reference."""
        return {id: numbers for id, (_, numbers) in self._scored().items()}

    def resample(self, weights: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        table = np.array([_summands(numbers) for numbers in self.statistics().values()], dtype=np.float64)
        return {"METEOR": np.array([score(total) for total in (weights @ table).tolist()])}

    def _scored(self) -> dict[str, tuple[float, Statistics]]:
        """Score and statistics of each image; those of images seen before are kept."""
        new = (id for id in self._hypotheses if id not in self._found)
        with _no_cycles():
            while batch := list(islice(new, _BATCH)):
                best = self._best([self._hypotheses[id] for id in batch], [self._references[id] for id in batch])
                self._found.update((id, (pair.score, pair.statistics)) for id, pair in zip(batch, best, strict=True))
                self.done(len(batch))
        return self._found

    def explain(self, hypothesis: str, references: Sequence[str]) -> MeteorAlignment:
        if not references:
            raise MissingRecordError("there is no reference to align with", fix="give one reference or more")
        (pair,) = self._best([hypothesis], [references])
        said, heard = pair.hypothesis.words, pair.reference.words
        matches = []
        for at, (_, start, stop, _, width, module) in pair.chosen:
            ours, theirs = (start, stop), (at, at + width)
            words = " ".join(said[slice(*ours)]), " ".join(heard[slice(*theirs)])
            matches.append(MeteorMatch(*words, MODULES[module], ours, theirs))
        return MeteorAlignment(pair.score, pair.index, tuple(said), tuple(heard), tuple(matches), pair.statistics)

    def _best(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[_Pair]:
        if self._lexicon is None:
            self._lexicon = Lexicon(open_data())
        # As coco-caption hands them to the tool, on one line parted by `|||`.
        said = [text.replace("|||", "").replace("  ", " ") for text in hypotheses]
        heard = [[(part, k) for k, text in enumerate(of) for part in text.split("|||")] for of in references]
        sentences = self._lexicon.sentences([*said, *(part for of in heard for part, _ in of)])
        ours, theirs = sentences[: len(said)], iter(sentences[len(said) :])
        matcher = Matcher(self._lexicon, ours, sentences[len(said) :])
        best = []
        for hypothesis, parts in zip(ours, heard, strict=True):
            pair = _best_pair(matcher, hypothesis, list(islice(theirs, len(parts))))
            pair.index = parts[pair.index][1]
            best.append(pair)
        return best


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Pause the search for reference cycles: none are made here, and it would take a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(slots=True)
class _Pair:
    """A hypothesis aligned with one of its references."""

    hypothesis: Sentence
    reference: Sentence
    index: int
    chosen: list[Alignment]
    statistics: Statistics
    score: float


def _best_pair(matcher: Matcher, hypothesis: Sentence, references: Sequence[Sentence]) -> _Pair:
    """The first reference with the highest score; those that cannot reach it are not aligned."""
    candidates = matcher.candidates(hypothesis, references)
    bounds = [_bound(hypothesis, *pair) for pair in zip(references, candidates, strict=True)]
    best: _Pair | None = None
    for k in sorted(range(len(references)), key=lambda k: -bounds[k]):
        if best and bounds[k] < best.score - _MARGIN:
            break
        chosen = align(candidates[k].places, candidates[k].sole_starts())
        numbers = _count(hypothesis, references[k], chosen)
        own = score(numbers)
        if best is None or (own, -k) > (best.score, -best.index):
            best = _Pair(hypothesis, references[k], k, chosen, numbers, own)
    assert best is not None
    return best


def _count(hypothesis: Sentence, reference: Sentence, chosen: Sequence[Alignment]) -> Statistics:
    modules = [0] * 16
    said = heard = chunks = 0
    end = (-1, -1)
    for place, (_, start, stop, mask, width, module) in sorted(chosen, key=lambda pair: pair[1][1]):
        taken = ((1 << width) - 1) << place
        ours, theirs = (mask & hypothesis.functions).bit_count(), (taken & reference.functions).bit_count()
        modules[4 * module] += stop - start - ours
        modules[4 * module + 1] += width - theirs
        modules[4 * module + 2] += ours
        modules[4 * module + 3] += theirs
        said += stop - start
        heard += width
        chunks += (start, place) != end
        end = (stop, place + width)
    lengths = (len(hypothesis.ids), len(reference.ids))
    functions = (hypothesis.functions.bit_count(), reference.functions.bit_count())
    return (*lengths, *functions, *modules, chunks, said, heard)


def score(statistics: Sequence[float]) -> float:
    """The METEOR score of statistics: weighted F times one minus the fragmentation penalty."""
    said, heard, said_functions, heard_functions = statistics[:4]
    chunks, said_matched, heard_matched = statistics[20:]
    if not said_matched:
        return 0.0
    precision = _weighted(statistics[4:20:4], statistics[6:20:4]) / _weight(said, said_functions)
    recall = _weighted(statistics[5:20:4], statistics[7:20:4]) / _weight(heard, heard_functions)
    return _f(precision, recall) * (1 - _penalty(chunks, said_matched, heard_matched, _whole(statistics)))


def _weighted(content: Sequence[float], functions: Sequence[float]) -> float:
    """Matched words by weight, added in the tool's order: the last bit may decide which of two references is best."""
    total = 0.0
    for weight, words in zip(_WEIGHTS, (*content, *functions), strict=True):
        total += weight * words
    return total


def corpus_score(statistics: Iterable[Statistics]) -> float:
    total = [sum(column) for column in zip(*map(_summands, statistics), strict=True)]
    return score(total) if total else 0.0


def _summands(statistics: Statistics) -> list[int]:
    """What one image adds to the corpus' statistics; a hypothesis that is matched whole in one chunk adds no chunk."""
    return [*statistics[:20], statistics[20] - _whole(statistics), *statistics[21:]]


def _weight(words: float, functions: float) -> float:
    return DELTA * (words - functions) + (1 - DELTA) * functions


def _f(precision: float, recall: float) -> float:
    return 1 / ((1 - ALPHA) / precision + ALPHA / recall)


def _whole(statistics: Sequence[float]) -> bool:
    """Whether all words of both sentences are matched in one chunk: nothing is fragmented then."""
    return statistics[20] == 1 and statistics[21] == statistics[0] and statistics[22] == statistics[1]


def _penalty(chunks: float, said: float, heard: float, whole: bool) -> float:
    return 0.0 if whole else GAMMA * float((2 * chunks / (said + heard)) ** BETA)


def _bound(hypothesis: Sentence, reference: Sentence, candidates: Candidates) -> float:
    """A score that no alignment can exceed: everything that could be matched is, in one chunk."""
    if not candidates.said:
        return 0.0
    said, heard = candidates.said.bit_count(), candidates.heard.bit_count()
    ours = _covered(candidates.said, candidates.said_exactly, hypothesis.functions)
    theirs = _covered(candidates.heard, candidates.heard_exactly, reference.functions)
    if candidates.word_by_word:  # as many words here as there: the rest, at best function words, stays unmatched
        lightest = (1 - DELTA) * WEIGHTS[2]
        ours -= max(0, said - heard) * lightest
        theirs -= max(0, heard - said) * lightest
        said = heard = min(said, heard)
    precision = ours / _weight(len(hypothesis.ids), hypothesis.functions.bit_count())
    recall = theirs / _weight(len(reference.ids), reference.functions.bit_count())
    whole = said == len(hypothesis.ids) and heard == len(reference.ids)
    return _f(precision, recall) * (1 - _penalty(1, said, heard, whole))


def _covered(matched: int, exactly: int, functions: int) -> float:
    """The most that matched words can weigh; a content word weighs thrice a function word."""
    other = matched ^ exactly
    exact = 2 * (exactly & ~functions).bit_count() + exactly.bit_count()
    return (1 - DELTA) * (exact + WEIGHTS[2] * (2 * (other & ~functions).bit_count() + other.bit_count()))
