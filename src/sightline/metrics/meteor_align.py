"""The aligner of METEOR 1.5: a beam search over the reference's words, exact down to its quirks.

All matches that could be part of an alignment are given; the search keeps the forty best partial alignments, ordered by
most matches, then fewest chunks, then shortest distance. Found by experiment, and needed for equal scores:

- an exact match counts its words in both sentences, another half of them, rounded down in each: a single-word stem,
  synonym or paraphrase match counts nothing and is made only where it does not start another chunk;
- the distance grows by the matches that were passed over, not by those taken;
- a chunk counts when it ends, and the last one only after the last sorting;
- a match that competes with no other is always made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import comb, perm, prod
from operator import itemgetter

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)
MODULES = ("exact", "stem", "synonym", "paraphrase")
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
# How many ways there are to match some of a equal words with some of b.
_WAYS = [[sum(comb(a, k) * perm(b, k) for k in range(min(a, b) + 1)) for b in range(BEAM)] for a in range(BEAM)]


def match(start: int, length: int, width: int, module: int) -> Match:
    """A match of `length` words of the hypothesis from `start` with `width` words of the reference."""
    gain = length + width if module == EXACT else length // 2 + width // 2
    return (-gain * _MATCH, start, start + length, ((1 << length) - 1) << start, width, module)


def align(places: Sequence[Place], fixed: int) -> list[Alignment]:
    """The best alignment.

    Args:
        places: the matches at each word of the reference. Equal words share one place.
        fixed: bit mask of the reference words whose only match competes with no other.
    """
    left: dict[int, int] = {}  # how often each place comes, where there is a choice
    for at, place in enumerate(places):
        if place[0] and not fixed >> at & 1:
            left[id(place)] = left.get(id(place), 0) + 1
    if not left:
        return [(at, place[0][0]) for at, place in enumerate(places) if place[0]]
    paths = _search(places, fixed, left if _ways(places, left) <= BEAM else None)
    ends = [order + _CHUNK if reached == len(places) else order for order, _, reached, _, _ in paths]
    trace = paths[ends.index(min(ends))][4]
    chosen: list[Alignment] = []
    while trace:
        trace, here, taken = trace
        chosen.append((here, taken))
    return chosen[::-1]


def _ways(places: Sequence[Place], left: dict[int, int]) -> int:
    """At least as many as there are partial alignments."""
    sizes = {id(place): len(place[0]) for place in places}
    if max(left.values()) >= BEAM or max(sizes.values()) >= BEAM:
        return BEAM + 1
    return prod([_WAYS[sizes[place]][count] for place, count in left.items()])


def _search(places: Sequence[Place], fixed: int, left: dict[int, int] | None) -> list[_Path]:
    """The best paths through the reference.

    `left` says that the beam is never full, and how often each place comes; then paths that cannot win are left out.
    One that passes over a word, although the hypothesis has enough exact matches left for it and its repetitions, ends
    with fewer matches than one that takes it, unless those matches compete with others.
    """
    shared = _shared(places) if left else -1
    paths: list[_Path] = [(0, 0, -1, -1, None)]
    for here, place in enumerate(places):
        matches, words, exactly, _ = place
        if not matches:  # the chunk before ends
            paths = [(p[0] + _CHUNK, p[1], -1, -1, p[4]) if p[2] == here else p for p in paths]
        elif len(matches) > 2 * BEAM:
            paths = _extend_long(paths, here, matches)
        else:
            needed = words.bit_count()
            if fixed >> here & 1:
                needed = -1
            elif left:
                left[id(place)] -= 1
                if words == exactly and not words & shared:
                    needed = left[id(place)]
            paths = _extend(paths, here, place, needed, left is not None)
        if len(paths) > 1:
            paths.sort(key=_order)
            del paths[BEAM:]
    return paths


def _shared(places: Sequence[Place]) -> int:
    """The words of the hypothesis that matches of different places take."""
    seen = shared = 0
    for place in {id(place): place for place in places}.values():
        shared |= seen & place[1]
        seen |= place[1]
    return shared


def _extend(paths: list[_Path], here: int, place: Place, needed: int, few: bool) -> list[_Path]:
    """Every path with every match that starts here, and without one if no more than `needed` of them are left.

    Where the beam is never full, a second match of the same single words, by another module, is left out: it leads to
    the same path with more distance.
    """
    matches, all_words, _, _ = place
    extended: list[_Path] = []
    add = extended.append
    for path in paths:
        order, used, reached, end, trace = path
        if reached > here:  # inside a match of several words
            add(path)
            continue
        ends_chunk = _CHUNK if reached == here else 0
        made = 0
        for taken in matches:
            gain, start, stop, mask, width, _ = taken
            if not used & mask:
                if gain or not made & mask:
                    chunk = 0 if start == end else ends_chunk
                    add((order + gain + chunk, used | mask, here + width, stop, (trace, here, taken)))
                    if few and not gain:
                        made |= mask
                order += start - here if start > here else here - start
        if (all_words & ~used).bit_count() <= needed:
            add((order + ends_chunk, used, -1, -1, trace))
    return extended


def _extend_long(paths: list[_Path], here: int, matches: Sequence[Match]) -> list[_Path]:
    """As `_extend`, for a word that is repeated many times.

    Of one path's extensions by equal gain that start a chunk, the first forty have the lowest order: more of them
    cannot stay in the beam, so that only their distances are added up.
    """
    runs = _runs(matches)
    extended: list[_Path] = []
    for path in paths:
        order, used, reached, end, trace = path
        if reached > here:
            extended.append(path)
            continue
        ends_chunk = _CHUNK if reached == here else 0
        room: dict[int, int] = {}
        for words, run in runs:
            free = words & ~used
            gain, _, _, mask, _, _ = next(iter(run.values()))
            if len(run) == 1 and used & mask:  # a match of several words may be blocked behind its start
                continue
            offered = list(_first(free, room.get(gain, BEAM)))
            room[gain] = room.get(gain, BEAM) - len(offered)
            further = order
            for start in offered:
                taken = run[start]
                chunk = 0 if start == end else ends_chunk
                after = (used | taken[3], here + taken[4], taken[2], (trace, here, taken))
                extended.append((further + gain + chunk, *after))
                further += abs(start - here)
            if ends_chunk and free >> end & 1 and end not in offered:
                taken = run[end]
                passed = _distance(free & (1 << end) - 1, here)
                extended.append(
                    (order + passed + gain, used | taken[3], here + taken[4], taken[2], (trace, here, taken))
                )
            order += _distance(free, here)
        extended.append((order + ends_chunk, used, -1, -1, trace))
    return extended


def _runs(matches: Sequence[Match]) -> list[tuple[int, dict[int, Match]]]:
    """Single-word matches of equal gain, as long as they follow in rising order; others alone.

    Each run as a mask of its starts in the hypothesis, and its matches by their start.
    """
    runs: list[dict[int, Match]] = []
    before: Match | None = None
    for taken in matches:
        single = taken[2] - taken[1] == taken[4] == 1
        if single and before and before[0] == taken[0] and before[1] < taken[1]:
            runs[-1][taken[1]] = taken
        else:
            runs.append({taken[1]: taken})
        before = taken if single else None
    return [(sum([1 << start for start in run]), run) for run in runs]


def _first(words: int, count: int) -> Iterator[int]:
    """The lowest places in a mask."""
    while words and count:
        lowest = words & -words
        yield lowest.bit_length() - 1
        words ^= lowest
        count -= 1


def _distance(words: int, here: int) -> int:
    """The sum of the distances from the words in a mask to a place."""
    before = words & (1 << here) - 1
    return here * before.bit_count() - _sum_of_places(before) + _sum_of_places(words >> here)


def _sum_of_places(words: int) -> int:
    size = words.bit_length().bit_length()
    return sum([(words & plane).bit_count() << bit for bit, plane in enumerate(_planes(size))])


@cache
def _planes(size: int) -> list[int]:
    """For each bit of a place number the mask of the places below 2**size that have it."""
    return [sum(((1 << (1 << bit)) - 1) << at for at in range(1 << bit, 1 << size, 2 << bit)) for bit in range(size)]
