"""What METEOR 1.5 knows of words and phrases: stems, synonyms, function words, the paraphrase table.

Each word is stemmed and looked up once; the phrases of a batch of sentences are found with a few array operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sightline.metrics.meteor_align import EXACT, STEM, SYNONYM
from sightline.metrics.meteor_index import MeteorIndex, TextHashes
from sightline.metrics.meteor_text import java_hash, normalise
from sightline.text.stemmer import stem

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
