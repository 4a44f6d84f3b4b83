"""What METEOR 1.5 knows of words: its `-norm` normaliser, Java's hash, stems, synonyms, function words, paraphrases.

Found by experiment on the tool's output. The normaliser parts punctuation from words in the manner of the Moses
tokenizer; each rule consumes the characters around its match, which is why `a-b-c` becomes `a b-c`. Each word is
stemmed and looked up once; the phrases of a batch of sentences are found with a few array operations.
"""

import re
import sys
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from sightline.metrics.meteor_data import MeteorIndex, TextHashes
from sightline.text.stemmer import stem

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)
MODULES = ("exact", "stem", "synonym", "paraphrase")

_LETTERS = "A-Za-zÀ-ÖØ-öø-ž\u0400-\u0527\u1d00-\u1d7f\ua640-\ua66e\ua67e-\ua697"
_SPACES = "[\u00a0\u2000-\u200a\u202f\u205f\u3000]"
_EDGES = "".join(map(chr, range(33)))  # what Java's `trim` removes

_PLAIN = re.compile(r"[a-z0-9 ]*")
_QUOTES = str.maketrans("‘’“”", "''\"\"")
_SYMBOL = re.compile(rf"([^{_LETTERS}0-9 \t\n\x0b\f\r.'`,\-])")
_DOTS = re.compile(r"(\.\.+)")
_COMMAS = (re.compile(r"([^0-9]),([^0-9])"), re.compile(r"([0-9]),([^0-9])"), re.compile(r"([^0-9]),([0-9])"))
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
    """The words of a sentence after `-norm`, in lower case; `prefixes` as in `MeteorIndex`."""
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
        elif "a" <= following[:1] <= "z" or (stem in prefixes and ("0" <= following[:1] <= "9" or not prefixes[stem])):
            parted.append(word)
        else:
            parted += (stem, ".")
    return parted


@lru_cache(maxsize=1 << 16)
def java_hash(word: str) -> int:
    """Java's `String.hashCode`, unsigned. METEOR takes words with equal hashes for the same word: `2n` and `40`."""
    value = 0
    for unit in array("H", word.encode(f"utf-16-{sys.byteorder[0]}e", "surrogatepass")):
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
    """Looks up sentences; grows with the words it meets, which it numbers."""

    def __init__(self, index: MeteorIndex) -> None:
        self.index = index
        self._ids: dict[str, int] = {}
        self._functions: set[int] = set()
        # What each word has to be matched by, and the words that have it: METEOR compares words, and stems, by hashes.
        self._marks: list[tuple[int, int, frozenset[str]]] = []
        self._with_code: dict[int, list[int]] = defaultdict(list)
        self._with_stem: dict[int, list[int]] = defaultdict(list)
        self._with_synset: dict[str, list[int]] = defaultdict(list)

    def sentences(self, texts: Sequence[str]) -> list[Sentence]:
        words = [normalise(text, self.index.prefixes) for text in texts]
        for word in sorted(set().union(*words).difference(self._ids)):
            self._learn(word)
        phrases, starts, lengths, ends = self._phrases(words)
        sentences = []
        for own_words, begin, end in zip(words, [0, *ends], ends, strict=False):
            ids = [self._ids[word] for word in own_words]
            functions = sum([1 << place for place, id in enumerate(ids) if id in self._functions])
            own = slice(begin, end)
            sentences.append(Sentence(own_words, ids, functions, phrases[own], starts[own], lengths[own]))
        return sentences

    def _learn(self, word: str) -> None:
        number = self._ids[word] = len(self._ids)
        code, root, synsets = java_hash(word), java_hash(stem(word)), self.index.synsets_of(word)
        if word in self.index.function_words:
            self._functions.add(number)
        self._marks.append((code, root, synsets))
        self._with_code[code].append(number)
        self._with_stem[root].append(number)
        for synset in synsets:
            self._with_synset[synset].append(number)

    def same(self, sentence: Sentence, other: Sentence) -> bool:
        """Whether METEOR takes two sentences for identical."""
        marks = self._marks
        return len(sentence.ids) == len(other.ids) and all(
            marks[a][0] == marks[b][0] for a, b in zip(sentence.ids, other.ids, strict=True)
        )

    def relatives(self, number: int) -> Related:
        """The words met so far that match a word."""
        code, root, synsets = self._marks[number]
        related: Related = dict.fromkeys(self._with_stem[root], (STEM,))
        for other in {other for synset in synsets for other in self._with_synset[synset]}:
            related[other] = (STEM, SYNONYM) if other in related else (SYNONYM,)
        return related | dict.fromkeys(self._with_code[code], (EXACT,))

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
        hash_slices = TextHashes(text)
        for length in range(1, min(self.index.longest_phrase, int(counts.max())) + 1):
            first = np.flatnonzero(np.arange(length, len(last) + length) <= last)
            hashes.append(hash_slices(starts[first], ends[first + length - 1]))
            firsts.append(first)
            lengths.append(np.full(len(first), length))
        phrases = self.index.phrase_ids(np.concatenate(hashes))
        in_table = np.flatnonzero(phrases >= 0)
        first = np.concatenate(firsts)[in_table]
        order = np.argsort(first, kind="stable")
        in_table, first = in_table[order], first[order]
        begins = np.repeat(np.cumsum(counts) - counts, counts)
        return (
            phrases[in_table].tolist(),
            (first - begins[first]).tolist(),
            np.concatenate(lengths)[in_table].tolist(),
            np.searchsorted(first, np.cumsum(counts)).tolist(),
        )
