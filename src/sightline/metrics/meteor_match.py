"""The matches of METEOR 1.5 and its aligner: a beam search over the reference's words, exact down to its quirks.

All matches that could be part of an alignment are found first: words, stems, synonyms and paraphrases. The search keeps
the forty best partial alignments, ordered by most matches, then fewest chunks, then shortest distance. Found by
experiment, and needed for equal scores:

- an exact match counts its words in both sentences, another half of them, rounded down in each: a single-word stem,
  synonym or paraphrase match counts nothing and is made only where it does not start another chunk;
- the distance grows by the matches that were passed over, not by those taken;
- a chunk counts when it ends, and the last one only after the last sorting;
- a match that competes with no other is always made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter

import numpy as np

from sightline.metrics.meteor_data import BACKWARD, FORWARD, MeteorIndex
from sightline.metrics.meteor_words import EXACT, PARAPHRASE, Lexicon, Related, Sentence

BEAM = 40
_MATCH, _CHUNK = 1 << 60, 1 << 40  # one number orders partial alignments: the distance is in the low bits

# A match: its change of the order, where it starts and ends in the hypothesis, those words as a bit mask, how many
# words of the reference it takes, its module.
Match = tuple[int, int, int, int, int, int]
Alignment = tuple[int, Match]  # with its place in the reference
# The matches that start at one word of the reference, in METEOR's order of preference; masks of the words of the
# hypothesis that they take, take exactly, take more than once.
Place = tuple[list[Match], int, int, int]
_Trace = tuple["_Trace", int, Match] | None
_Path = tuple[int, int, int, int, _Trace]  # order, hypothesis words taken, ends of the last match in both, how it came

_order = itemgetter(0)
NOTHING: Place = ([], 0, 0, 0)


def match(start: int, length: int, width: int, module: int) -> Match:
    """A match of `length` words of the hypothesis from `start` with `width` words of the reference."""
    gain = length + width if module == EXACT else length // 2 + width // 2
    return (-gain * _MATCH, start, start + length, ((1 << length) - 1) << start, width, module)


def align(places: Sequence[Place], fixed: int) -> list[Alignment]:
    """The best alignment.

    Args:
        places: the matches at each word of the reference.
        fixed: bit mask of the reference words whose only match competes with no other.
    """
    if all(fixed >> at & 1 for at, place in enumerate(places) if place[0]):  # there is no choice
        return [(at, place[0][0]) for at, place in enumerate(places) if place[0]]
    paths: list[_Path] = [(0, 0, -1, -1, None)]
    for here, (matches, _, _, _) in enumerate(places):
        extended: list[_Path] = []
        for path in paths:
            order, used, reached, end, trace = path
            if reached > here or (not matches and reached < here):  # inside a match of several words, or between two
                extended.append(path)
                continue
            ends_chunk = _CHUNK if reached == here else 0
            for taken in matches:
                gain, start, stop, mask, width, _ = taken
                if not used & mask:
                    chunk = 0 if start == end else ends_chunk
                    extended.append((order + gain + chunk, used | mask, here + width, stop, (trace, here, taken)))
                    order += start - here if start > here else here - start
            if not fixed >> here & 1:
                extended.append((order + ends_chunk, used, -1, -1, trace))
        paths = sorted(extended, key=_order)[:BEAM] if len(extended) > 1 else extended
    ends = [order + _CHUNK if reached == len(places) else order for order, _, reached, _, _ in paths]
    trace = paths[ends.index(min(ends))][4]
    chosen: list[Alignment] = []
    while trace:
        trace, here, taken = trace
        chosen.append((here, taken))
    return chosen[::-1]


_Paraphrases = dict[int, list[tuple[int, int, int]]]  # for a phrase: start, number of words, directions of others


@dataclass(slots=True)
class Candidates:
    """What could be matched between a hypothesis and one reference; words are bits of masks."""

    places: list[Place]  # for each word of the reference, the matches that start there
    said: int  # words of the hypothesis that some match takes
    said_exactly: int
    said_twice: int  # that several matches take
    heard: int  # words of the reference that some match takes
    heard_exactly: int
    heard_twice: int
    word_by_word: bool = True  # no match takes several words

    def sole_starts(self) -> int:
        """The words of the reference where a match starts that competes with no other, as a mask."""
        fixed = 0
        for at, (matches, taken, _, _) in enumerate(self.places):
            if len(matches) == 1 and not taken & self.said_twice:
                width = matches[0][4]
                if not ((1 << width) - 1) << at & self.heard_twice:
                    fixed |= 1 << at
        return fixed


class Matcher:
    """Finds the matches of hypotheses with references; made for a batch, it relates each word and phrase once."""

    def __init__(self, lexicon: Lexicon, hypotheses: Iterable[Sentence], references: Iterable[Sentence]) -> None:
        self._lexicon = lexicon
        self._related: dict[int, Related] = {}
        self._partners = _partners(lexicon.index, hypotheses, references)

    def candidates(self, hypothesis: Sentence, references: Sequence[Sentence]) -> list[Candidates]:
        words = self._words(hypothesis, set().union(*[reference.ids for reference in references]))
        phrases = self._paraphrases(hypothesis, set().union(*[reference.phrases for reference in references]))
        found = []
        for reference in references:
            if self._lexicon.same(hypothesis, reference):
                found.append(_word_candidates(reference, _exact_only(words)))
                continue
            pair = _word_candidates(reference, words)
            if not phrases.keys().isdisjoint(reference.phrases):
                _add_paraphrases(pair, hypothesis, reference, phrases)
            found.append(pair)
        return found

    def _words(self, hypothesis: Sentence, wanted: set[int]) -> dict[int, Place]:
        """For each word of the references its matches with single words of the hypothesis."""
        table: dict[int, tuple[list[Match], list[Match], list[Match]]] = defaultdict(lambda: ([], [], []))
        for start, number in enumerate(hypothesis.ids):
            if number not in self._related:
                self._related[number] = self._lexicon.relatives(number)
            known = self._related[number]
            for other in known.keys() & wanted:
                for module in known[other]:
                    table[other][module].append(_single(start, module))
        return {other: _place(*by_module) for other, by_module in table.items()}

    def _paraphrases(self, hypothesis: Sentence, wanted: set[int]) -> _Paraphrases:
        """For each phrase of the references its paraphrases in the hypothesis."""
        table: _Paraphrases = defaultdict(list)
        for start, length, phrase in zip(hypothesis.starts, hypothesis.lengths, hypothesis.phrases, strict=True):
            found = self._partners.get(phrase, {})
            for other in found.keys() & wanted:
                table[other].append((start, length, found[other]))
        return table


@cache
def _single(start: int, module: int) -> Match:
    return match(start, 1, 1, module)


def _place(exact: list[Match], stems: list[Match], synonyms: list[Match]) -> Place:
    matches = exact + stems + synonyms
    exactly = said = twice = 0
    for found in exact:
        exactly |= found[3]
    for found in matches:
        twice |= said & found[3]
        said |= found[3]
    return matches, said, exactly, twice


def _exact_only(words: dict[int, Place]) -> dict[int, Place]:
    """METEOR compares identical sentences by exact matches alone."""
    return {
        number: _place([found for found in matches if found[5] == EXACT], [], [])
        for number, (matches, _, exactly, _) in words.items()
        if exactly
    }


def _word_candidates(reference: Sentence, words: dict[int, Place]) -> Candidates:
    places: list[Place] = []
    said = said_exactly = said_twice = heard = heard_exactly = heard_twice = 0
    bit = 1
    for number in reference.ids:
        if number in words:
            place = words[number]
            matches, taken, exactly, twice = place
            places.append(place)
            said_twice |= said & taken | twice
            said |= taken
            heard |= bit
            if len(matches) > 1:
                heard_twice |= bit
            if exactly:
                said_exactly |= exactly
                heard_exactly |= bit
        else:
            places.append(NOTHING)
        bit <<= 1
    return Candidates(places, said, said_exactly, said_twice, heard, heard_exactly, heard_twice)


def _add_paraphrases(pair: Candidates, hypothesis: Sentence, reference: Sentence, phrases: _Paraphrases) -> None:
    """Add paraphrase matches, in METEOR's order.

    It looks first for the paraphrases of the reference's phrases, in the order of the table, then for those of the
    hypothesis' phrases. A pair that stands in the table in both directions gives two matches, which compete.
    """
    by_start: dict[int, list[tuple[tuple[int, int, str, int], Match]]] = {}
    for phrase, start, width in zip(reference.phrases, reference.starts, reference.lengths, strict=True):
        if phrase in phrases:
            here = by_start.setdefault(start, [])
            for place, length, directions in phrases[phrase]:
                found = match(place, length, width, PARAPHRASE)
                if directions & BACKWARD:
                    here.append(((0, width, " ".join(hypothesis.words[place : place + length]), place), found))
                if directions & FORWARD:
                    here.append(((1, place, "", length << 8 | width), found))
    for start, here in by_start.items():
        here.sort()
        matches, said, exactly, twice = pair.places[start]
        for _, (_, _, _, mask, width, _) in here:
            twice |= said & mask
            said |= mask
            taken = ((1 << width) - 1) << start
            pair.said_twice |= pair.said & mask
            pair.said |= mask
            pair.heard_twice |= pair.heard & taken
            pair.heard |= taken
            if width > 1 or mask & mask - 1:
                pair.word_by_word = False
        pair.places[start] = (matches + [found for _, found in here], said, exactly, twice)


def _partners(
    index: MeteorIndex, hypotheses: Iterable[Sentence], references: Iterable[Sentence]
) -> dict[int, dict[int, int]]:
    """For each phrase of the hypotheses the phrases of the references it is paired with, and in which directions."""
    ours = np.array(sorted(set().union(*[sentence.phrases for sentence in hypotheses])), np.int64)
    theirs = np.array(sorted(set().union(*[sentence.phrases for sentence in references])), np.int64)
    which, others, directions = index.pairs(ours)
    kept = np.isin(others, theirs)
    found: dict[int, dict[int, int]] = defaultdict(dict)
    columns = (ours[which[kept]], others[kept], directions[kept])
    for phrase, other, direction in zip(*(column.tolist() for column in columns), strict=True):
        found[phrase][other] = direction
    return found
