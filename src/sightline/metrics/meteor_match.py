"""Everything in a hypothesis and its references that METEOR 1.5 could match: words, stems, synonyms and paraphrases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from sightline.metrics.meteor_align import EXACT, NOTHING, PARAPHRASE, Match, Place, match
from sightline.metrics.meteor_index import BACKWARD, FORWARD, MeteorIndex
from sightline.metrics.meteor_lexicon import Lexicon, Related, Sentence

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

    def fixed(self) -> int:
        """The words of the reference where a match starts that competes with no other."""
        fixed = 0
        for at, (matches, taken, _, _) in enumerate(self.places):
            if len(matches) == 1 and not taken & self.said_twice:
                width = matches[0][4]
                if not ((1 << width) - 1) << at & self.heard_twice:
                    fixed |= 1 << at
        return fixed

    def fewest_chunks(self) -> int:
        """No alignment has fewer: fixed matches that nothing can precede start a chunk each."""
        fixed = self.fixed()
        ends = {(at + found[4], found[2]) for at, place in enumerate(self.places) for found in place[0]}
        starts = [(at, place[0][0][1]) for at, place in enumerate(self.places) if fixed >> at & 1]
        return max(1, len(starts) - len(ends.intersection(starts)))


class Matcher:
    """Finds the matches of hypotheses with references; made for a batch, it relates each word and phrase once."""

    def __init__(self, lexicon: Lexicon, hypotheses: Iterable[Sentence], references: Iterable[Sentence]) -> None:
        self._lexicon = lexicon
        self._related: dict[int, Related] = {}
        self._partners = _partners(lexicon.index, hypotheses, references)

    def candidates(self, hypothesis: Sentence, references: Sequence[Sentence]) -> list[Candidates]:
        """All possible matches with each reference."""
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
        table: dict[int, tuple[list[Match], list[Match], list[Match]]] = {}
        related = self._related
        for start, number in enumerate(hypothesis.ids):
            known = related.get(number)
            if known is None:
                known = related[number] = self._lexicon.related(number)
            for other in known.keys() & wanted:
                by_module = table.get(other)
                if by_module is None:
                    by_module = table[other] = ([], [], [])
                for module in known[other]:
                    by_module[module].append(_single(start, module))
        return {other: _place(*by_module) for other, by_module in table.items()}

    def _paraphrases(self, hypothesis: Sentence, wanted: set[int]) -> _Paraphrases:
        """For each phrase of the references its paraphrases in the hypothesis."""
        table: _Paraphrases = {}
        partners = self._partners
        for start, length, phrase in zip(hypothesis.starts, hypothesis.lengths, hypothesis.phrases, strict=True):
            if phrase in partners:
                found = partners[phrase]
                for other in found.keys() & wanted:
                    table.setdefault(other, []).append((start, length, found[other]))
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
    if not len(ours) or not len(theirs):
        return {}
    which, others, directions = index.partners(ours)
    wanted = np.zeros(int(max(others.max(initial=0), theirs[-1])) + 1, np.bool_)
    wanted[theirs] = True
    kept = np.flatnonzero(wanted[others])
    found: dict[int, dict[int, int]] = {}
    columns = (ours[which[kept]], others[kept], directions[kept])
    for phrase, other, direction in zip(*(column.tolist() for column in columns), strict=True):
        found.setdefault(phrase, {})[other] = direction
    return found
