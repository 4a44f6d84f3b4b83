"""Words as METEOR 1.5 sees them: its `-norm` normaliser, and Java's hash, by which it compares words.

Found by experiment on the tool's output. The normaliser parts punctuation from words in the manner of the Moses
tokenizer; each rule consumes the characters around its match, which is why `a-b-c` becomes `a b-c`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from math import comb, perm, prod
from operator import itemgetter

import numpy as np

from sightline.metrics.meteor_data import BACKWARD, FORWARD, MeteorIndex, TextHashes
from sightline.text.stemmer import stem

_LETTERS = "A-Za-zÀ-ÖØ-öø-ž\u0400-\u0527\u1d00-\u1d7f\ua640-\ua66e\ua67e-\ua697"
_SPACES = "[\u00a0\u2000-\u200a\u202f\u205f\u3000]"
_EDGES = "".join(map(chr, range(33)))

_PLAIN = re.compile(r"[a-z0-9 ]*")
_QUOTES = str.maketrans("‘’“”", "''\"\"")
_SYMBOL = re.compile(rf"([^{_LETTERS}0-9 \t\n\x0b\f\r.'`,\-])")
_DOTS = re.compile(r"(\.\.+)")
_COMMAS = (
    re.compile(r"([^0-9]),([^0-9])"),
    re.compile(r"([0-9]),([^0-9])"),
    re.compile(r"([^0-9]),([0-9])"),
)
_APOSTROPHES = (
    (re.compile(rf"([^{_LETTERS}])'([^{_LETTERS}])"), r"\1 ' \2"),
    (re.compile(rf"([^{_LETTERS}0-9])'([{_LETTERS}])"), r"\1 ' \2"),
    (re.compile(rf"([{_LETTERS}])'([^{_LETTERS}])"), r"\1 ' \2"),
    (re.compile(rf"([{_LETTERS}])'([{_LETTERS}])"), r"\1 '\2"),
    (re.compile(r"([0-9])'(s)"), r"\1 '\2"),
)
_HYPHEN = re.compile(rf"([{_LETTERS}0-9.])-([{_LETTERS}0-9])")
_LETTER = re.compile(f"[{_LETTERS}]")
_SPACE = re.compile(_SPACES)
_BETWEEN = re.compile(r"[ \t\n\f\r]+")


def normalise(sentence: str, prefixes: Mapping[str, bool]) -> list[str]:
    """The words of a sentence after `-norm`, in lower case.

    Args:
        sentence: any text.
        prefixes: words that keep a full stop behind them; True for those that keep it only before a number.
    """
    if _PLAIN.fullmatch(sentence):
        return sentence.split()
    text = f" {sentence.translate(_QUOTES).strip(_EDGES)} "
    text = _DOTS.sub(r" \1 ", _SYMBOL.sub(r" \1 ", text))
    for comma in _COMMAS:
        text = comma.sub(r"\1 , \2", text)
    text = text.replace("--", "-").replace("`", "'").replace("''", ' " ')
    for apostrophe, parted in _APOSTROPHES:
        text = apostrophe.sub(parted, text)
    text = _HYPHEN.sub(r"\1 \2", text.replace("–", "-"))
    text = " ".join(_full_stops(_split(text), prefixes))
    return _split(_SPACE.sub(" ", text).strip(_EDGES).lower())


def _split(text: str) -> list[str]:
    return [word for word in _BETWEEN.split(text) if word]


def _full_stops(words: list[str], prefixes: Mapping[str, bool]) -> list[str]:
    """Part the full stop that ends a sentence; abbreviations with inner ones lose them all."""
    parted: list[str] = []
    for word, following in pairwise([*words, ""]):
        stem = word[:-1]
        if not word.endswith(".") or not stem.strip("."):
            parted.append(word)
        elif "." in stem and _LETTER.search(stem):
            parted.append(word.replace(".", ""))
        elif _keeps_full_stop(stem, following, prefixes):
            parted.append(word)
        else:
            parted += (stem, ".")
    return parted


def _keeps_full_stop(stem: str, following: str, prefixes: Mapping[str, bool]) -> bool:
    if "a" <= following[:1] <= "z":
        return True
    if prefixes.get(stem):
        return "0" <= following[:1] <= "9"
    return stem in prefixes


@lru_cache(maxsize=1 << 16)
def java_hash(word: str) -> int:
    """Java's `String.hashCode`, unsigned. METEOR takes words with equal hashes for the same word: `2n` and `40`."""
    value = 0
    for unit in np.frombuffer(word.encode("utf-16-le", "surrogatepass"), "<u2").tolist():
        value = value * 31 + unit & 0xFFFFFFFF
    return value


Related = dict[int, tuple[int, ...]]  # words, and the modules that match them


@dataclass(slots=True)
class Sentence:
    """The words of a sentence, as text and as numbers, and the phrases of the paraphrase table in it."""

    words: list[str]
    ids: list[int]
    functions: int  # function words, as a bit mask
    phrases: list[int]
    starts: list[int]  # of the phrases
    lengths: list[int]  # of the phrases, in words


class Lexicon:
    """Looks up sentences; grows with the words it meets."""

    def __init__(self, index: MeteorIndex) -> None:
        self.index = index
        self._ids: dict[str, int] = {}
        self._functions: set[int] = set()
        self._codes: list[int] = []  # METEOR compares words, and stems, by their hashes
        self._stems: list[int] = []
        self._synsets: list[frozenset[int]] = []
        self._with_code: dict[int, list[int]] = defaultdict(list)
        self._with_stem: dict[int, list[int]] = defaultdict(list)
        self._with_synset: dict[int, list[int]] = defaultdict(list)

    def sentences(self, texts: Sequence[str]) -> list[Sentence]:
        """Normalise and look up sentences."""
        prefixes = self.index.prefixes
        words = [normalise(text, prefixes) for text in texts]
        self._learn(set().union(*words).difference(self._ids))
        phrases, starts, lengths, ends = self._phrases(words)
        number, functions = self._ids.__getitem__, self._functions
        found = []
        begin = 0
        for sentence, end in zip(words, ends, strict=True):
            ids = list(map(number, sentence))
            mask = 0
            for place, id in enumerate(ids):
                if id in functions:
                    mask |= 1 << place
            found.append(Sentence(sentence, ids, mask, phrases[begin:end], starts[begin:end], lengths[begin:end]))
            begin = end
        return found

    def same(self, sentence: Sentence, other: Sentence) -> bool:
        """Whether METEOR takes two sentences for identical."""
        codes = self._codes
        return len(sentence.ids) == len(other.ids) and all(
            codes[a] == codes[b] for a, b in zip(sentence.ids, other.ids, strict=True)
        )

    def related(self, number: int) -> Related:
        """The words met so far that match a word."""
        found: Related = dict.fromkeys(self._with_stem[self._stems[number]], (STEM,))
        with_synset = self._with_synset
        for other in {other for synset in self._synsets[number] for other in with_synset[synset]}:
            found[other] = (STEM, SYNONYM) if other in found else (SYNONYM,)
        for other in self._with_code[self._codes[number]]:
            found[other] = (EXACT,)
        return found

    def _learn(self, words: Iterable[str]) -> None:
        new = sorted(words)
        for word, synsets in zip(new, self.index.synsets.of(new), strict=True):
            number = self._ids[word] = len(self._ids)
            code, root = java_hash(word), java_hash(stem(word))
            if word in self.index.function_words:
                self._functions.add(number)
            self._codes.append(code)
            self._stems.append(root)
            self._synsets.append(synsets)
            self._with_code[code].append(number)
            self._with_stem[root].append(number)
            for synset in synsets:
                self._with_synset[synset].append(number)

    def _phrases(self, sentences: Sequence[Sequence[str]]) -> tuple[list[int], list[int], list[int], list[int]]:
        """The phrases of the paraphrase table in the sentences, their starts and lengths, and each sentence's end."""
        counts = np.array([len(words) for words in sentences], np.int64)
        if not counts.sum():
            return [], [], [], [0] * len(sentences)
        text = " ".join([" ".join(words) for words in sentences if words]).encode("utf-8", "surrogatepass")
        spaces = np.flatnonzero(np.frombuffer(text, np.uint8) == ord(" "))
        starts, ends = np.append(0, spaces + 1), np.append(spaces, len(text))
        last = np.repeat(np.cumsum(counts), counts)  # behind the sentence of each word
        hashes, firsts, lengths = [], [], []
        of = TextHashes(text)
        for length in range(1, min(self.index.longest_phrase, int(counts.max())) + 1):
            first = np.flatnonzero(np.arange(length, len(last) + length) <= last)
            hashes.append(of(starts[first], ends[first + length - 1]))
            firsts.append(first)
            lengths.append(np.full(len(first), length))
        phrases = self.index.phrase_ids(np.concatenate(hashes))
        known = np.flatnonzero(phrases >= 0)
        first = np.concatenate(firsts)[known]
        order = np.argsort(first, kind="stable")
        known, first = known[order], first[order]
        begins = np.repeat(np.cumsum(counts) - counts, counts)
        return (
            phrases[known].tolist(),
            (first - begins[first]).tolist(),
            np.concatenate(lengths)[known].tolist(),
            np.searchsorted(first, np.cumsum(counts)).tolist(),
        )


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
