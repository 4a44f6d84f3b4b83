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

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter

import numpy as np

from sightline.metrics.meteor_data import BACKWARD, FORWARD, MeteorIndex
from sightline.metrics.meteor_words import EXACT, PARAPHRASE, Lexicon, Related, Sentence

BEAM = 40  # partial alignments that are kept, as the Java tool keeps them
_MATCH, _CHUNK = 1 << 60, 1 << 40  # one number orders partial alignments: the distance is in the low bits

# A match: its change of the order, where it starts and ends in the hypothesis, those words as a bit mask, how many
# words of the reference it takes, its module.
Match = tuple[int, int, int, int, int, int]
Alignment = tuple[int, Match]  # with its place in the reference
# The matches of one word of the reference, in METEOR's order of preference; masks of the words of the hypothesis that
# they take, take exactly, take more than once.
_WordMatches = tuple[list[Match], int, int, int]
_Trace = tuple["_Trace", int, Match] | None
_Path = tuple[int, int, int, int, _Trace]  # order, hypothesis words taken, ends of the last match in both, how it came

_order = itemgetter(0)


def match(start: int, length: int, width: int, module: int) -> Match:
    """A match of `length` words of the hypothesis from `start` with `width` words of the reference."""
    gain = length + width if module == EXACT else length // 2 + width // 2
    return (-gain * _MATCH, start, start + length, ((1 << length) - 1) << start, width, module)


def align(places: Sequence[list[Match]], fixed: int) -> list[Alignment]:
    """The best alignment.

    Args:
        places: the matches that start at each word of the reference.
        fixed: bit mask of the reference words whose only match competes with no other.
    """
    if all(fixed >> at & 1 for at, matches in enumerate(places) if matches):  # there is no choice
        return [(at, matches[0]) for at, matches in enumerate(places) if matches]
    paths: list[_Path] = [(0, 0, -1, -1, None)]
    for here, matches in enumerate(places):
        extended: list[_Path] = []
        for path in paths:
            order, used, reached, end, trace = path
            if reached > here or (not matches and reached < here):  # inside a match of several words, or between two
                extended.append(path)
                continue
            ends_chunk = _CHUNK if reached == here else 0
            for step in matches:
                gain, start, stop, mask, width, _ = step
                if not used & mask:
                    chunk = 0 if start == end else ends_chunk
                    extended.append((order + gain + chunk, used | mask, here + width, stop, (trace, here, step)))
                    order += start - here if start > here else here - start
            if not fixed >> here & 1:
                extended.append((order + ends_chunk, used, -1, -1, trace))
        paths = sorted(extended, key=_order)[:BEAM] if len(extended) > 1 else extended
    ends = [order + _CHUNK if reached == len(places) else order for order, _, reached, _, _ in paths]
    trace = paths[ends.index(min(ends))][4]
    alignment: list[Alignment] = []
    while trace:
        trace, here, step = trace
        alignment.append((here, step))
    return alignment[::-1]


_Paraphrases = dict[int, list[tuple[int, int, int]]]  # for a phrase: start, number of words, directions of others


@dataclass(slots=True)
class Candidates:
    """What could be matched between a hypothesis and one reference; words are bits of masks."""

    places: list[list[Match]]  # for each word of the reference, the matches that start there
    hyp_matched: int  # words of the hypothesis that some match takes
    hyp_exact: int
    hyp_contested: int  # that several matches take
    ref_matched: int  # words of the reference that some match takes
    ref_exact: int
    ref_contested: int

    def sole_starts(self) -> int:
        """The words of the reference where a match starts that competes with no other, as a mask."""
        fixed = 0
        for at, matches in enumerate(self.places):
            if len(matches) == 1:
                _, _, _, mask, width, _ = matches[0]
                if not mask & self.hyp_contested and not ((1 << width) - 1) << at & self.ref_contested:
                    fixed |= 1 << at
        return fixed


class Matcher:
    """Finds the matches of hypotheses with references; made for a batch, it relates each word and phrase once."""

    def __init__(self, lexicon: Lexicon, hypotheses: Iterable[Sentence], references: Iterable[Sentence]) -> None:
        self._lexicon = lexicon
        self._related: dict[int, Related] = {}
        self._partners = _partners(lexicon.index, hypotheses, references)

    def candidates(self, hypothesis: Sentence, references: Sequence[Sentence]) -> list[Candidates]:
        """What could be matched with each reference."""
        words = self._words(hypothesis, set().union(*[reference.ids for reference in references]))
        phrases = self._paraphrases(hypothesis, set().union(*[reference.phrases for reference in references]))
        candidates = []
        for reference in references:
            if self._lexicon.same(hypothesis, reference):
                candidates.append(_word_candidates(reference, _exact_only(words)))
                continue
            pair = _word_candidates(reference, words)
            if not phrases.keys().isdisjoint(reference.phrases):
                _add_paraphrases(pair, hypothesis, reference, phrases)
            candidates.append(pair)
        return candidates

    def _words(self, hypothesis: Sentence, reference_words: set[int]) -> dict[int, _WordMatches]:
        """For each word of the references its matches with single words of the hypothesis."""
        table: dict[int, tuple[list[Match], list[Match], list[Match]]] = defaultdict(lambda: ([], [], []))
        for start, number in enumerate(hypothesis.ids):
            if number not in self._related:
                self._related[number] = self._lexicon.relatives(number)
            related = self._related[number]
            for other in related.keys() & reference_words:
                for module in related[other]:
                    table[other][module].append(_single(start, module))
        return {other: _word_matches(*by_module) for other, by_module in table.items()}

    def _paraphrases(self, hypothesis: Sentence, reference_phrases: set[int]) -> _Paraphrases:
        """For each phrase of the references its paraphrases in the hypothesis."""
        table: _Paraphrases = defaultdict(list)
        for start, length, phrase in zip(hypothesis.starts, hypothesis.lengths, hypothesis.phrases, strict=True):
            partners = self._partners.get(phrase, {})
            for other in partners.keys() & reference_phrases:
                table[other].append((start, length, partners[other]))
        return table


@cache
def _single(start: int, module: int) -> Match:
    return match(start, 1, 1, module)


def _word_matches(exact: list[Match], stems: list[Match], synonyms: list[Match]) -> _WordMatches:
    matches = exact + stems + synonyms
    exact_mask = mask = contested = 0
    for one in exact:
        exact_mask |= one[3]
    for one in matches:
        contested |= mask & one[3]
        mask |= one[3]
    return matches, mask, exact_mask, contested


def _exact_only(words: dict[int, _WordMatches]) -> dict[int, _WordMatches]:
    """METEOR compares identical sentences by exact matches alone."""
    return {
        number: _word_matches([one for one in matches if one[5] == EXACT], [], [])
        for number, (matches, _, exact_mask, _) in words.items()
        if exact_mask
    }


def _word_candidates(reference: Sentence, words: dict[int, _WordMatches]) -> Candidates:
    places: list[list[Match]] = []
    hyp_matched = hyp_exact = hyp_contested = ref_matched = ref_exact = ref_contested = 0
    bit = 1
    for number in reference.ids:
        if number in words:
            matches, mask, exact_mask, contested = words[number]
            places.append(matches)
            hyp_contested |= hyp_matched & mask | contested
            hyp_matched |= mask
            ref_matched |= bit
            if len(matches) > 1:
                ref_contested |= bit
            if exact_mask:
                hyp_exact |= exact_mask
                ref_exact |= bit
        else:
            places.append([])
        bit <<= 1
    return Candidates(places, hyp_matched, hyp_exact, hyp_contested, ref_matched, ref_exact, ref_contested)


def _add_paraphrases(pair: Candidates, hypothesis: Sentence, reference: Sentence, phrases: _Paraphrases) -> None:
    """Add paraphrase matches, in METEOR's order.

    It looks first for the paraphrases of the reference's phrases, in the order of the table, then for those of the
    hypothesis' phrases. A pair that stands in the table in both directions gives two matches, which compete.
    """
    by_start: dict[int, list[tuple[tuple[int, int, str, int], Match]]] = {}  # each with what sorts it
    for phrase, start, width in zip(reference.phrases, reference.starts, reference.lengths, strict=True):
        if phrase in phrases:
            matches = by_start.setdefault(start, [])
            for place, length, directions in phrases[phrase]:
                paraphrase = match(place, length, width, PARAPHRASE)
                if directions & BACKWARD:
                    text = " ".join(hypothesis.words[place : place + length])
                    matches.append(((0, width, text, place), paraphrase))
                if directions & FORWARD:
                    matches.append(((1, place, "", length << 8 | width), paraphrase))
    for start, matches in by_start.items():
        matches.sort()
        pair.places[start] = pair.places[start] + [paraphrase for _, paraphrase in matches]
        for _, (_, _, _, mask, width, _) in matches:
            reference_mask = ((1 << width) - 1) << start
            pair.hyp_contested |= pair.hyp_matched & mask
            pair.hyp_matched |= mask
            pair.ref_contested |= pair.ref_matched & reference_mask
            pair.ref_matched |= reference_mask


def _partners(
    index: MeteorIndex, hypotheses: Iterable[Sentence], references: Iterable[Sentence]
) -> dict[int, dict[int, int]]:
    """For each phrase of the hypotheses the phrases of the references it is paired with, and in which directions."""
    ours = np.array(sorted(set().union(*[sentence.phrases for sentence in hypotheses])), np.int64)
    theirs = np.array(sorted(set().union(*[sentence.phrases for sentence in references])), np.int64)
    which, others, directions = index.pairs(ours)
    in_references = np.isin(others, theirs)
    columns = (ours[which[in_references]], others[in_references], directions[in_references])
    partners: dict[int, dict[int, int]] = defaultdict(dict)
    for phrase, other, direction in zip(*(column.tolist() for column in columns), strict=True):
        partners[phrase][other] = direction
    return partners
