"""METEOR 1.5 (Denkowski and Lavie 2014) for English, equal to the Java tool as coco-caption runs it, without Java.

Parameters of the ranking task: alpha 0.85, beta 0.2, gamma 0.6, delta 0.75; weights of the modules 1, 0.6, 0.8, 0.6.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from sightline.metrics.language_metric import LanguageMetric, Scores
from sightline.metrics.meteor_data import open_data
from sightline.metrics.meteor_match import Alignment, Candidates, Matcher, align
from sightline.metrics.meteor_words import MODULES, Lexicon, Sentence

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # exact, stem, synonym, paraphrase
_WEIGHTS = (*(weight * DELTA for weight in WEIGHTS), *(weight * (1 - DELTA) for weight in WEIGHTS))
_BATCH = 1024  # images at a time: progress is reported after each
_MARGIN = 1e-9  # wider than rounding errors of a score

Statistics = tuple[int, ...]
"""What METEOR counts in one pair of sentences, 23 numbers: the words of hypothesis and reference; the function words of
both; for each module the content words matched in hypothesis and reference and the function words matched in both; the
chunks; the words matched in hypothesis and reference."""


class Meteor(LanguageMetric):
    """METEOR 1.5: the best reference of each image. Corpus: the score of the summed statistics."""

    keys = ("METEOR",)
    title = "METEOR 1.5"
    variant = "meteor:1.5-en-norm"

    def __init__(self) -> None:
        super().__init__()
        self._lexicon: Lexicon | None = None

    def reset(self) -> None:
        super().reset()
        self._scores: dict[str, tuple[float, Statistics]] = {}

    def compute(self) -> Scores:
        scores = self._scored()
        corpus = corpus_score(statistics for _, statistics in scores.values())
        return Scores({"METEOR": corpus}, {id: {"METEOR": score} for id, (score, _) in scores.items()})

    def statistics(self) -> dict[str, Statistics]:
        """For each image what METEOR counts with its best reference."""
        return {id: statistics for id, (_, statistics) in self._scored().items()}

    def resample(self, weights: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        table = np.array([_summands(statistics) for statistics in self.statistics().values()], dtype=np.float64)
        return {"METEOR": np.array([score(total) for total in (weights @ table).tolist()])}

    def _scored(self) -> dict[str, tuple[float, Statistics]]:
        """Score and statistics of each image; those of images seen before are kept."""
        new = (id for id in self._hypotheses if id not in self._scores)
        with _no_cycles():
            while batch := list(islice(new, _BATCH)):
                best = self._best([self._hypotheses[id] for id in batch], [self._references[id] for id in batch])
                self._scores.update((id, (pair.score, pair.statistics)) for id, pair in zip(batch, best, strict=True))
                self.progress(len(self._scores))
        return self._scores

    def explain(self, hypothesis: str, references: Sequence[str]) -> list[tuple[str, str, str]]:
        """The matches with the best reference: words of the hypothesis, of the reference, and the module."""
        (pair,) = self._best([hypothesis], [references])
        matches = []
        for place, (_, start, stop, _, width, module) in pair.alignment:
            ours = " ".join(pair.hypothesis.words[start:stop])
            theirs = " ".join(pair.reference.words[place : place + width])
            matches.append((ours, theirs, MODULES[module]))
        return matches

    def _best(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[_Pair]:
        """Each hypothesis aligned with the best of its references."""
        if self._lexicon is None:
            self._lexicon = Lexicon(open_data())
        # As coco-caption hands them to the tool, on one line parted by `|||`.
        texts = [text.replace("|||", "").replace("  ", " ") for text in hypotheses]
        parts = [[part for text in sentences for part in text.split("|||")] for sentences in references]
        sentences = self._lexicon.sentences([*texts, *chain.from_iterable(parts)])
        ours, theirs = sentences[: len(texts)], sentences[len(texts) :]
        matcher, rest = Matcher(self._lexicon, ours, theirs), iter(theirs)
        return [
            _best_pair(matcher, hypothesis, list(islice(rest, len(own))))
            for hypothesis, own in zip(ours, parts, strict=True)
        ]


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
    alignment: list[Alignment]
    statistics: Statistics
    score: float


def _best_pair(matcher: Matcher, hypothesis: Sentence, references: Sequence[Sentence]) -> _Pair:
    """The first reference with the highest score; those that cannot reach it are not aligned."""
    candidates = matcher.candidates(hypothesis, references)
    bounds = [_bound(hypothesis, *pair) for pair in zip(references, candidates, strict=True)]
    best, best_place = None, -1
    for place in sorted(range(len(references)), key=lambda place: -bounds[place]):
        if best and bounds[place] < best.score - _MARGIN:
            break
        alignment = align(candidates[place].places, candidates[place].sole_starts())
        statistics = _count(hypothesis, references[place], alignment)
        own_score = score(statistics)
        if best is None or (own_score, -place) > (best.score, -best_place):
            best, best_place = _Pair(hypothesis, references[place], alignment, statistics, own_score), place
    assert best is not None
    return best


def _count(hypothesis: Sentence, reference: Sentence, alignment: Sequence[Alignment]) -> Statistics:
    modules = [0] * 16
    hypothesis_matched = reference_matched = chunks = 0
    end = (-1, -1)  # of the last match in both sentences
    for place, (_, start, stop, mask, width, module) in sorted(alignment, key=lambda pair: pair[1][1]):
        reference_mask = ((1 << width) - 1) << place
        ours = (mask & hypothesis.functions).bit_count()
        theirs = (reference_mask & reference.functions).bit_count()
        modules[4 * module] += stop - start - ours
        modules[4 * module + 1] += width - theirs
        modules[4 * module + 2] += ours
        modules[4 * module + 3] += theirs
        hypothesis_matched += stop - start
        reference_matched += width
        chunks += (start, place) != end
        end = (stop, place + width)
    lengths = (len(hypothesis.ids), len(reference.ids))
    functions = (hypothesis.functions.bit_count(), reference.functions.bit_count())
    return (*lengths, *functions, *modules, chunks, hypothesis_matched, reference_matched)


def score(statistics: Sequence[float]) -> float:
    """The METEOR score of statistics: weighted F times one minus the fragmentation penalty."""
    hypothesis, reference, hypothesis_functions, reference_functions = statistics[:4]
    chunks, hypothesis_matched, reference_matched = statistics[20:]
    if not hypothesis_matched:
        return 0.0
    precision = _weighted(statistics[4:20:4], statistics[6:20:4]) / _weight(hypothesis, hypothesis_functions)
    recall = _weighted(statistics[5:20:4], statistics[7:20:4]) / _weight(reference, reference_functions)
    penalty = _penalty(chunks, hypothesis_matched, reference_matched, _is_one_chunk(statistics))
    return _f(precision, recall) * (1 - penalty)


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
    return [*statistics[:20], statistics[20] - _is_one_chunk(statistics), *statistics[21:]]


def _weight(words: float, functions: float) -> float:
    return DELTA * (words - functions) + (1 - DELTA) * functions


def _f(precision: float, recall: float) -> float:
    return 1 / ((1 - ALPHA) / precision + ALPHA / recall)


def _is_one_chunk(statistics: Sequence[float]) -> bool:
    """Whether all words of both sentences are matched in one chunk: nothing is fragmented then."""
    return statistics[20] == 1 and statistics[21] == statistics[0] and statistics[22] == statistics[1]


def _penalty(chunks: float, hypothesis_matched: float, reference_matched: float, one_chunk: bool) -> float:
    return 0.0 if one_chunk else GAMMA * float((2 * chunks / (hypothesis_matched + reference_matched)) ** BETA)


def _bound(hypothesis: Sentence, reference: Sentence, candidates: Candidates) -> float:
    """A score that no alignment can exceed: everything that could be matched is, in one chunk."""
    if not candidates.hyp_matched:
        return 0.0
    ours, theirs = candidates.hyp_matched.bit_count(), candidates.ref_matched.bit_count()
    our_weight = _covered(candidates.hyp_matched, candidates.hyp_exact, hypothesis.functions)
    their_weight = _covered(candidates.ref_matched, candidates.ref_exact, reference.functions)
    precision = our_weight / _weight(len(hypothesis.ids), hypothesis.functions.bit_count())
    recall = their_weight / _weight(len(reference.ids), reference.functions.bit_count())
    one_chunk = ours == len(hypothesis.ids) and theirs == len(reference.ids)
    return _f(precision, recall) * (1 - _penalty(1, ours, theirs, one_chunk))


def _covered(matched: int, exact: int, functions: int) -> float:
    """The most that matched words can weigh; a content word weighs thrice a function word."""
    other = matched ^ exact
    exact_weight = 2 * (exact & ~functions).bit_count() + exact.bit_count()
    other_weight = 2 * (other & ~functions).bit_count() + other.bit_count()
    return (1 - DELTA) * (exact_weight + WEIGHTS[2] * other_weight)
