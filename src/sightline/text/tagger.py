"""Penn Treebank part-of-speech tags: a greedy perceptron with whole-number weights, fast on batches of captions.

Each tag is the one with the highest sum of weights over features of the five words around it and of the tags before it
(`features`, `clause_after`; `tools/build_tagger.py` learns a weight for each). All but the tags depend on word types
alone, so the sums of each type are kept once computed, and a batch is tagged position by position with a few array
operations. Sums of whole numbers know no rounding: a sentence gets the same tags alone and in any batch.

>>> Tagger.default().tag("a man rides a brown horse".split())
['DT', 'NN', 'VBZ', 'DT', 'JJ', 'NN']
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.errors import DataError
from sightline.text import wordnet
from sightline.text.lemmas import inflections, lemma

BEFORE = ("<s2>", "<s>")  # stand for the two words, and tags, before the first token
AFTER = ("</s>", "</s2>")
OFFSETS = (0, -1, -2, 1, 2)  # of the words whose features count, from the word being tagged
CLOSED = Path(__file__).parent / "assets" / "closed_classes.txt"

# Where a word stands in its clause, as the tags before it show. Captions are mostly one clause, and whether its verb
# is still to come, and whether its subject is one or many, decides what *jumps* and *watch* are.
CLAUSES = ("start", "one", "many", "and", "one passed", "many passed", "verb", "verb and")
RESTARTS = frozenset("while whilst as when because that who which where if although since until before after".split())


@cache
def closed_classes() -> dict[str, str]:
    """Function words, numbers, colours and punctuation, each with the tags it may have, joined by `/`."""
    lines = (line.split(" ") for line in CLOSED.read_text("utf-8").splitlines())
    return {word: tags for tags, *words in lines for word in words}


def form(token: str) -> str:
    """The word a token counts as: lower-cased, with years and other numbers made one."""
    if token[:1].isdigit():
        return "!YEAR" if len(token) == 4 and token.isdigit() else "!DIGITS"
    return token.lower()


def shape(token: str) -> str:
    """How a token is written: `0` with digits at an end, `.` without letters, `x`, `Xx` or `XX` by its capitals."""
    if token[:1].isdigit() or token[-1:].isdigit():
        return "0"
    if not any(character.isalpha() for character in token):
        return "."
    if token.islower():
        return "x"
    return "XX" if token.isupper() and len(token) > 1 else "Xx"


@lru_cache(wordnet.CACHE_SIZE)
def word_class(token: str) -> str:
    """The tags of a function word, else what WordNet says the word (or its last part) may be.

    `n/v+s?`: a noun as it stands, or a verb in -s, which WordNet's texts have less than once in twenty.
    """
    word = form(token)
    if token in BEFORE + AFTER or (word.startswith("!") and word != "!"):
        return word
    if word in closed_classes():
        return closed_classes()[word]
    compound = "-" in word[1:]
    if compound and not inflections(word):
        word = word.rsplit("-", 1)[-1]
    counts = {reading: _frequency(word, reading) for reading in sorted(inflections(word))}
    total = sum(counts.values())
    readings = (reading + ("?" if count * 20 < total else "") for reading, count in counts.items())
    return ("-" if compound else "") + "/".join(readings)


def _frequency(word: str, reading: str) -> int:
    pos = next(pos for pos in wordnet.POS if pos == reading[0])
    return wordnet.frequency(lemma(word, pos) if "+" in reading else word, pos)


def features(token: str, offset: int) -> list[str]:
    """The features of a token seen from a word `offset` places before it: 0 is the word being tagged itself."""
    word, hyphen = form(token), "-" in token[1:]
    if offset == 0:
        names = [
            "bias",
            f"w={word}",
            f"s={token[-3:]}",
            f"p={token[:1]}",
            f"x={shape(token)}",
            f"c={word_class(token)}",
        ]
        return [*names, "w=!HYPHEN"] if hyphen else names
    names = [f"{offset:+d}w={'!HYPHEN' if hyphen else word}"]
    if abs(offset) == 1:
        names += [f"{offset:+d}s={word[-3:]}", f"{offset:+d}c={word_class(token)}"]
    return names


def clause_after(clause: str, tag: str, restart: bool = False) -> str:
    """Where the next word stands, after a word with `tag` at `clause`; `restart`: that word is one of RESTARTS."""
    if restart and tag in ("IN", "WDT", "WP", "WRB"):
        return "start"
    if tag in ("VBZ", "VBP", "VBD", "MD"):
        return "verb"
    number = {"NN": "one", "NNP": "one", "NNS": "many", "NNPS": "many"}.get(tag)
    if clause == "start":
        return "one" if tag == "PRP" else number or clause
    if clause in ("one", "many"):
        passed = tag in ("IN", "VBG", "VBN", "TO", "WDT", "WP", "RP")
        return "and" if tag == "CC" else f"{clause} passed" if passed else number or clause
    if clause == "and":
        inside = tag in ("DT", "JJ", "CD", "PRP$", "RB")
        return "many" if number else clause if inside else "one passed"
    if clause in ("verb", "verb and"):
        return "verb and" if tag == "CC" and clause == "verb" else "verb"
    return clause


NOUNS = frozenset({"NN", "NNS", "NNP", "NNPS"})
ASSET = Path(__file__).parent / "assets" / "tagger.npz"
BATCH = 1024  # sentences that are tagged together
EXCLUDED = -10_000  # below any sum of weights
MOST_TYPES = 1 << 16  # more than these, and the types seen are forgotten, to bound memory

Ints = npt.NDArray[np.integer[Any]]


class Tagger:
    """Tags tokens as the PTB tokenizer gives them, cased or lower-cased. Safe to share between threads.

    Args:
        weights: the arrays of the asset, by name. With T tags, H = T + 2 (tags, then the two before the sentence), C
            classes (the first stands for those without weights): `lexical` (n, T) with its feature `names`; `history`
            (H, H, T) by the tags two and one before; `class_history` (C, H, T); `class_clause` (C, len(CLAUSES), T);
            `pairs` (p, T) and the row `pair_rows` (C, C) of a class and the next; `word_history` (m, T), with the
            `history_words` and `history_tags` each row is for. Row 0 of `pairs` and `word_history` is zero.
    """

    def __init__(self, weights: dict[str, Ints]) -> None:
        self.tags: list[str] = _lines(weights["tags"])
        self._lexical, self._row_of = weights["lexical"], _numbered(_lines(weights["names"]))
        self._class_of = _numbered(_lines(weights["classes"]))
        # One row for each combination of what a table goes by. Sums of weights fit 16 bits with room to spare.
        names = ("history", "class_history", "class_clause", "pairs", "word_history")
        self._history, self._class_history, self._class_clause, self._pairs, self._word_history = (
            weights[name].reshape(-1, len(self.tags)).astype(np.int16) for name in names
        )
        self._pair_rows = weights["pair_rows"]
        self._history_rows: dict[str, list[tuple[int, int]]] = {}
        history = zip(_lines(weights["history_words"]), weights["history_tags"].tolist(), strict=True)
        for row, (word, tag) in enumerate(history, start=1):
            self._history_rows.setdefault(word, []).append((tag, row))
        place = {clause: i for i, clause in enumerate(CLAUSES)}
        steps = ((restarts, clause, tag) for restarts in (False, True) for clause in CLAUSES for tag in self.tags)
        self._next_clause = np.array([place[clause_after(clause, tag, restarts)] for restarts, clause, tag in steps])
        self._lock = Lock()
        self._forget()

    @staticmethod
    @cache
    def default() -> Tagger:
        """The tagger that comes with the package; loaded once."""
        return Tagger.load(ASSET)

    @classmethod
    def load(cls, path: Path) -> Tagger:
        """A tagger from a file `tools/build_tagger.py` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            return cls({name: stored[name] for name in stored.files})

    def tag(self, tokens: Sequence[str]) -> list[str]:
        return self.tag_all([tokens])[0]

    def nouns(self, tokens: Sequence[str]) -> list[bool]:
        return [tag in NOUNS for tag in self.tag(tokens)]

    def tag_all(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """The tags of each sentence: the same, faster, as `tag` of one after the other."""
        if any(isinstance(sentence, str) for sentence in sentences):
            raise DataError("a sentence is a string, and tokens were expected", fix="split it into tokens first")
        # Batches of like lengths need little padding.
        by_length = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        tags: list[list[str]] = [[]] * len(sentences)
        for start in range(0, len(by_length), BATCH):
            batch = by_length[start : start + BATCH]
            with self._lock:
                numbers = self._tag_batch([sentences[i] for i in batch]).tolist()
            for i, row in zip(batch, numbers, strict=True):
                tags[i] = [self.tags[number] for number in row[: len(sentences[i])]]
        return tags

    def _tag_batch(self, sentences: list[Sequence[str]]) -> Ints:
        """(B, L) tag numbers, where L is the longest length; what comes after a shorter sentence means nothing."""
        types = self._types(sentences)  # (B, L + 4)
        length, size = types.shape[1] - 4, len(self.tags)
        classes = self._classes[types]  # (B, L + 4)
        scores = self._pairs[self._pair_rows[classes[:, 2 : 2 + length], classes[:, 3 : 3 + length]]]  # (B, L, T)
        for sums, offset in zip(self._sums, OFFSETS, strict=True):
            scores += sums[types[:, 2 + offset : 2 + offset + length]]
        tags = np.empty((length, len(types)), dtype=np.intp)
        two_before, before = np.full(len(types), size), np.full(len(types), size + 1)  # tags
        clause = np.zeros(len(types), dtype=np.intp)
        restarts = self._restarts[types].T * len(CLAUSES)
        for i, (word, kind) in enumerate(zip(types.T[2:-2], classes.T[2:-2], strict=True)):
            total = scores[:, i] + self._history.take(two_before * (size + 2) + before, axis=0)
            total += self._class_history.take(kind * (size + 2) + before, axis=0)
            total += self._class_clause.take(kind * len(CLAUSES) + clause, axis=0)
            total += self._word_history.take(self._rows.take(word * (size + 2) + before), axis=0)
            two_before, before = before, total.argmax(axis=1)
            clause = self._next_clause.take((restarts[2 + i] + clause) * size + before)
            tags[i] = before
        return tags.T

    def _types(self, sentences: list[Sequence[str]]) -> Ints:
        """(B, L + 4) numbers of the sentences' word types, with the two boundary types before and after."""
        unseen = dict.fromkeys(token for sentence in sentences for token in sentence if token not in self._number)
        if len(self._number) + len(unseen) > len(self._classes):
            unseen = dict.fromkeys(token for sentence in sentences for token in sentence)
            self._forget(max(MOST_TYPES, len(unseen) + len(BEFORE + AFTER)))
        for token in unseen:
            self._learn(token)
        number = self._number
        before, after = ([number[mark] for mark in marks] for marks in (BEFORE, AFTER))
        types = np.full((len(sentences), max(len(sentence) for sentence in sentences) + 4), after[-1])
        types[:, :2] = before
        for row, sentence in zip(types, sentences, strict=True):
            row[2 : 4 + len(sentence)] = [number[token] for token in sentence] + after
        return types

    def _forget(self, most: int = MOST_TYPES) -> None:
        """Drop all word types, and make room for `most`."""
        size = len(self.tags)
        self._number: dict[str, int] = {}
        self._sums: Ints = np.zeros((len(OFFSETS), most, size), dtype=np.int16)  # of each type's weights
        self._rows: Ints = np.zeros((most, size + 2), dtype=np.int32)  # of `word_history`, by type and tag before
        self._classes: Ints = np.zeros(most, dtype=np.intp)
        self._restarts: Ints = np.zeros(most, dtype=np.intp)
        for mark in BEFORE + AFTER:
            self._learn(mark)

    def _learn(self, token: str) -> None:
        number, word = len(self._number), form(token)
        for sums, offset in zip(self._sums, OFFSETS, strict=True):
            rows = [self._row_of[name] for name in features(token, offset) if name in self._row_of]
            sums[number] = self._lexical[rows].sum(axis=0, dtype=np.int16)
        if token in closed_classes():  # lower-cased: *May* and *US* may be names
            options = closed_classes()[token].split("/")
            self._sums[0, number, [tag not in options for tag in self.tags]] = EXCLUDED
        for tag, row in self._history_rows.get(word, ()):
            self._rows[number, tag] = row
        self._classes[number] = self._class_of.get(word_class(token), 0)
        self._restarts[number] = word in RESTARTS
        self._number[token] = number


def _lines(text: Ints) -> list[str]:
    return text.tobytes().decode("utf-8").split("\n")


def _numbered(names: list[str]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}
