"""METEOR 1.5's English data, compiled once from the `pycocoevalcap` wheel into an index in the user's cache.

The wheel holds 5.3 million pairs of paraphrases as text; reading them costs the Java tool ten seconds and a gigabyte at
every start. The index is memory-mapped and opens at once.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sightline.data.feature_source import atomic_folder
from sightline.errors import DataError, MissingExtraError, TruncatedError
from sightline.files import cache_dir, fingerprint, open_bytes, read_json, write_json
from sightline.metrics.ngrams import IntArray, spans
from sightline.text.lemmas import DETACHMENT

LAYOUT = "4"  # a new one makes old caches useless
PHRASES, STARTS, PARTNERS, SMALL = "phrases.npy", "partner-starts.npy", "partners.npy", "small.json"
FORWARD, BACKWARD = 1, 2  # a pair stands in the table in this direction, against it, or both
_CHUNK = 1 << 22  # bytes of text hashed at a time
# WordNet's detachment rules, whatever the part of speech; the first that gives a lemma counts.
_ENDINGS = tuple(dict.fromkeys((old, new) for rules in DETACHMENT.values() for old, new, _ in rules))
_MULTIPLIER = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64
_INVERSE = pow(_MULTIPLIER, -1, 1 << 64)
# A random number for each byte, of which hashes are sums.
_BYTE_VALUES = np.frombuffer(
    b"".join(blake2b(bytes([byte]), digest_size=8, person=b"sightline").digest() for byte in range(256)), "<u8"
).astype(np.uint64)

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]


def open_data() -> MeteorIndex:
    """The index in the user's cache, compiled first where it is not there yet (some seconds, once)."""
    source = Source.from_wheel()
    folder = cache_dir() / f"meteor-1.5-{source.fingerprint}"
    if not folder.exists():
        compile_index(source, folder)
    return MeteorIndex.open(folder)


@dataclass(frozen=True)
class Source:
    """Where METEOR's data lies: the tool's jar and its paraphrase table."""

    jar: Path
    paraphrases: Path

    @classmethod
    def from_wheel(cls) -> Source:
        """Inside the wheel, which is found without importing anything of it."""
        spec = importlib.util.find_spec("pycocoevalcap")
        for place in (spec.submodule_search_locations or ()) if spec else ():
            source = cls(Path(place) / "meteor/meteor-1.5.jar", Path(place) / "meteor/data/paraphrase-en.gz")
            if source.jar.is_file() and source.paraphrases.is_file():
                return source
        raise MissingExtraError.of("pycocoevalcap", "meteor", "METEOR")

    @cached_property
    def fingerprint(self) -> str:
        """Made of the checksums that zip and gzip files carry, so that nothing large is read."""
        with self._open_jar() as jar:
            sums = [f"{item.filename}:{item.CRC}" for item in jar.infolist() if not item.filename.endswith(".class")]
        return fingerprint(LAYOUT, *sums, self.table_end)

    @cached_property
    def table_end(self) -> bytes:
        """The end of the paraphrase table, a gzip file: checksum and size of what it unpacks to."""
        with self.paraphrases.open("rb") as file:
            file.seek(max(0, self.paraphrases.stat().st_size - 8))
            return file.read()

    def lines(self, name: str) -> list[str]:
        with self._open_jar() as jar, io.TextIOWrapper(jar.open(name), encoding="utf-8") as text:
            return text.read().splitlines()

    @contextmanager
    def _open_jar(self) -> Iterator[zipfile.ZipFile]:
        try:
            with zipfile.ZipFile(self.jar) as jar:
                yield jar
        except (zipfile.BadZipFile, KeyError) as error:
            fix = "install pycocoevalcap again"
            raise DataError(f"METEOR's jar is damaged: {error}", where=self.jar, fix=fix) from error


def compile_index(source: Source, folder: Path) -> None:
    """Compile the index; the folder appears when it is complete. Of several processes the first one's stays."""
    try:
        with atomic_folder(folder, "set SIGHTLINE_CACHE to a folder you can write to") as work:
            longest = _compile_paraphrases(source, work)
            synsets, irregular = _synonyms(source)
            prefixes = [line for line in source.lines("nonbreaking/english.prefixes") if line and line[0] != "#"]
            small = {
                "longest_phrase": longest,
                "function_words": source.lines("function/english.words"),
                "prefixes": {line.split()[0]: "#NUMERIC_ONLY#" in line for line in prefixes},
                "synsets": synsets,
                "irregular": irregular,
            }
            write_json(work / SMALL, small)
    except DataError:
        if not folder.exists():
            raise


def _synonyms(source: Source) -> tuple[dict[str, str], dict[str, str]]:
    """The numbers of each lemma's synonym sets, and those that irregular forms have by their lemmas.

    Words with an underscore, which are compounds, are left out: the normaliser parts words there.
    """
    lines = source.lines("synonym/english.synsets")
    synsets = dict(zip(lines[::2], lines[1::2], strict=True))
    lines = source.lines("synonym/english.exceptions")
    irregular: dict[str, str] = {}
    for base, forms in zip(lines[::2], lines[1::2], strict=True):
        for form in forms.split():
            irregular[form] = f"{irregular.get(form, '')} {synsets.get(base, '')}"
    return {word: numbers for word, numbers in synsets.items() if "_" not in word}, irregular


def _compile_paraphrases(source: Source, folder: Path) -> int:
    """Write the phrases and their pairs; the number of words of the longest phrase."""
    hashes, longest = _read_pairs(source)
    phrases, ids = np.unique(hashes, return_inverse=True)
    del hashes
    np.save(folder / PHRASES, phrases)
    left, right = ids.reshape(-1, 2).T.astype(np.uint64)
    del ids
    pairs = np.concatenate([left << 34 | right << 2 | FORWARD, right << 34 | left << 2 | BACKWARD])
    del left, right
    pairs.sort()
    both = np.flatnonzero(pairs[1:] >> 2 == pairs[:-1] >> 2)  # pairs that stand in the table in both directions
    pairs[both] |= np.uint64(BACKWARD)
    pairs = np.delete(pairs, both + 1)
    np.save(folder / PARTNERS, (pairs & 0xFFFFFFFF).astype(np.uint32))
    starts = np.searchsorted(pairs >> 34, np.arange(len(phrases) + 1, dtype=np.uint64))
    np.save(folder / STARTS, starts.astype(np.uint32))
    return longest


def _read_pairs(source: Source) -> tuple[U64, int]:
    """Hashes of the phrases of every pair, one after the other, from records of three lines: score, phrase, phrase."""
    from rich.console import Console
    from rich.progress import track

    parts: list[U64] = []
    rest = b""
    lines = longest = 0
    with open_bytes(source.paraphrases) as file:
        chunks = track(
            iter(lambda: file.read(_CHUNK), b""),
            "compiling METEOR's paraphrases, once",
            total=int.from_bytes(source.table_end[4:], "little") / _CHUNK,
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        for chunk in chunks:
            text, newline, rest = (rest + chunk).rpartition(b"\n")
            text += newline
            hashes = line_hashes(text)
            parts.append(hashes[np.arange(lines, lines + len(hashes)) % 3 != 0])  # not the scores
            characters = np.frombuffer(text, np.uint8)
            spaces = np.cumsum(characters == ord(" "))[characters == ord("\n")]
            longest = max(longest, int(np.diff(spaces, prepend=0).max(initial=0)) + 1)
            lines += len(hashes)
    if lines % 3 or rest:
        fix = "install pycocoevalcap again"
        raise TruncatedError("the paraphrase table ends within a record", where=source.paraphrases, fix=fix)
    return np.concatenate(parts), longest


class TextHashes:
    """64-bit hashes of any slices of one text: the sum of value(byte i) · multiplier^(i - start), modulo 2**64."""

    def __init__(self, text: bytes) -> None:
        powers = np.full(len(text) + 1, _MULTIPLIER, np.uint64)
        self._shifts = np.full(len(text) + 1, _INVERSE, np.uint64)
        powers[0] = self._shifts[0] = 1
        np.multiply.accumulate(powers, out=powers)
        np.multiply.accumulate(self._shifts, out=self._shifts)
        self._sums = np.zeros(len(text) + 1, np.uint64)
        np.cumsum(_BYTE_VALUES[np.frombuffer(text, np.uint8)] * powers[:-1], out=self._sums[1:])

    def __call__(self, starts: Places, ends: Places) -> U64:
        """The hashes of text[starts[k]:ends[k]]; equal slices have equal hashes."""
        hashes: U64 = (self._sums[ends] - self._sums[starts]) * self._shifts[starts]
        return hashes


def line_hashes(text: bytes) -> U64:
    """The hash of every line of a text that ends in a newline."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    return TextHashes(text)(np.append(0, ends[:-1] + 1)[: len(ends)], ends)


@dataclass(frozen=True, eq=False)
class MeteorIndex:
    """METEOR's data: small tables in memory, large arrays memory-mapped."""

    folder: Path
    phrases: U64  # (P,) hashes, ascending; a phrase goes by its place here
    starts: U32  # (P + 1,) where the pairs of each phrase begin in `partners`
    partners: U32  # the other phrase of a pair and, in the last two bits, the directions
    longest_phrase: int  # in words
    function_words: frozenset[str]
    prefixes: dict[str, bool]  # words whose final full stop stays; True: only before a number
    synsets: dict[str, str]  # the numbers of a lemma's synonym sets, parted by spaces
    irregular: dict[str, str]  # the same of inflected forms that WordNet lists as irregular, by their lemmas

    @classmethod
    def open(cls, folder: Path) -> MeteorIndex:
        small = read_json(folder / SMALL)
        small["function_words"] = frozenset(small["function_words"])
        try:
            phrases, starts, partners = (
                np.asarray(np.load(folder / name, mmap_mode="r", allow_pickle=False))
                for name in (PHRASES, STARTS, PARTNERS)
            )
        except (OSError, EOFError, ValueError) as error:
            fix = "remove this folder; the next use compiles it again"
            raise DataError("the METEOR index is damaged", where=folder, fix=fix) from error
        return cls(folder, phrases, starts, partners, **small)

    def phrase_ids(self, hashes: U64) -> Places:
        """The phrase of the paraphrase table with each hash, or -1."""
        distinct, which = np.unique(hashes, return_inverse=True)
        places = np.minimum(np.searchsorted(self.phrases, distinct), len(self.phrases) - 1)
        return np.where(self.phrases[places] == distinct, places, -1)[which]

    def pairs(self, phrases: Places) -> tuple[IntArray, IntArray, IntArray]:
        """Every pair that some phrases are in: which of them, the other phrase, and the directions."""
        starts = self.starts[phrases].astype(np.int64)
        counts = self.starts[phrases + 1].astype(np.int64) - starts
        partners = self.partners[spans(starts, counts)]
        return np.repeat(np.arange(len(phrases)), counts), partners >> 2, partners & 3

    def synsets_of(self, word: str) -> frozenset[str]:
        """The synonym sets of a word, and of its irregular base or else of the first base that its ending leads to."""
        of_base = self.irregular.get(word, "")
        if word not in self.irregular and len(word) > 2 and word[-1] in "sndgrt":
            for ending, replacement in _ENDINGS:
                base = word.removesuffix(ending) + replacement
                if word.endswith(ending) and base in self.synsets and not (ending == "s" and word.endswith("ss")):
                    of_base = self.synsets[base]
                    break
        return frozenset(f"{self.synsets.get(word, '')} {of_base}".split())
