"""METEOR 1.5's English data, compiled once from the `pycocoevalcap` wheel into an index in the user's cache.

The wheel holds 5.3 million pairs of paraphrases as text; reading them costs the Java tool ten seconds and a gigabyte at
every start. The index is memory-mapped and opens at once.
"""

from __future__ import annotations

import importlib.util
import io
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.errors import DataError, MissingExtraError, TruncatedError
from sightline.files import cache_dir, fingerprint, lock, open_bytes, read_json, sync_folder, write_json

_CHUNK = 1 << 22  # bytes of text hashed at a time

Progress = Callable[[int], None]


def open_data() -> MeteorIndex:
    """The index in the user's cache, compiled first where it is not there yet (some seconds, once)."""
    source = Source.from_wheel()
    folder = cache_dir() / f"meteor-1.5-{source.fingerprint}"
    if not folder.exists():
        _compile_once(source, folder)
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
            found = cls(Path(place) / "meteor/meteor-1.5.jar", Path(place) / "meteor/data/paraphrase-en.gz")
            if found.jar.is_file() and found.paraphrases.is_file():
                return found
        raise MissingExtraError.of("pycocoevalcap", "meteor", "METEOR")

    @cached_property
    def fingerprint(self) -> str:
        """Of the contents, by the checksums that zip and gzip files carry: nothing large is read."""
        with self._open_jar() as jar:
            sums = [f"{item.filename}:{item.CRC}" for item in jar.infolist() if not item.filename.endswith(".class")]
        with self.paraphrases.open("rb") as file:
            file.seek(max(0, self.paraphrases.stat().st_size - 8))
            return fingerprint(LAYOUT, *sums, file.read())

    def lines(self, name: str) -> list[str]:
        """The lines of a text file in the jar."""
        with self._open_jar() as jar, io.TextIOWrapper(jar.open(name), encoding="utf-8") as text:
            return text.read().splitlines()

    @contextmanager
    def _open_jar(self) -> Iterator[zipfile.ZipFile]:
        try:
            with zipfile.ZipFile(self.jar) as jar:
                yield jar
        except (zipfile.BadZipFile, KeyError) as error:
            raise DataError(
                f"METEOR's jar is damaged: {error}", where=self.jar, fix="install pycocoevalcap again"
            ) from error


def _compile_once(source: Source, folder: Path) -> None:
    """Compile, or wait while another process does."""
    while not folder.exists():
        try:
            folder.parent.mkdir(
                parents=True, exist_ok=True
            )  # a cache that is no folder is told as that, by what follows
            with lock(folder.with_name(folder.name + ".lock")):
                if not folder.exists():
                    compile_index(source, folder)
        except OSError as error:
            raise DataError(
                f"the METEOR index cannot be written: {error.strerror}",
                where=folder,
                fix="set SIGHTLINE_CACHE to a folder you can write to",
            ) from error
        except DataError as error:
            if "another process" not in error.what:
                raise
            time.sleep(0.2)


def compile_index(source: Source, folder: Path) -> None:
    """Compile the index; the folder appears when it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with _progress(source.paraphrases) as tell:
            longest = _compile_paraphrases(source.paraphrases, work, tell)
        _compile_synsets(source, work)
        small = {
            "function_words": source.lines("function/english.words"),
            "prefixes": dict(_prefixes(source.lines("nonbreaking/english.prefixes"))),
            "longest_phrase": longest,
        }
        write_json(work / SMALL, small)
        work.chmod(0o755)
        work.rename(folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


@contextmanager
def _progress(path: Path) -> Iterator[Progress]:
    """A bar over the bytes of a file, on a terminal; silent elsewhere."""
    if not sys.stderr.isatty():
        yield lambda position: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True)) as bar:
        task = bar.add_task("compiling METEOR's paraphrases, once", total=path.stat().st_size)
        yield lambda position: bar.update(task, completed=position)


def _compile_paraphrases(path: Path, folder: Path, tell: Progress) -> int:
    """Write the phrases and their pairs; the number of words of the longest phrase."""
    hashes, longest = _read_pairs(path, tell)
    phrases, ids = np.unique(hashes, return_inverse=True)
    del hashes
    np.save(folder / PHRASES, phrases)
    np.save(folder / SIEVE, sieve(phrases))
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


def _read_pairs(path: Path, tell: Progress) -> tuple[U64, int]:
    """Hashes of the phrases of every pair, one after the other, from records of three lines: score, phrase, phrase."""
    parts: list[U64] = []
    rest = b""
    lines = longest = 0
    with open_bytes(path) as file:
        while chunk := file.read(_CHUNK):
            text = rest + chunk
            cut = text.rfind(b"\n") + 1
            text, rest = text[:cut], text[cut:]
            found = line_hashes(text)
            parts.append(found[np.arange(lines, lines + len(found)) % 3 != 0])
            longest = max(longest, _most_words(text))
            lines += len(found)
            tell(getattr(file, "fileobj", file).tell())
    if lines % 3 or rest:
        raise TruncatedError("the paraphrase table ends within a record", where=path, fix="install pycocoevalcap again")
    return np.concatenate(parts), longest


def _most_words(lines: bytes) -> int:
    text = np.frombuffer(lines, np.uint8)
    spaces = np.cumsum(text == ord(" "))[text == ord("\n")]
    return int(np.diff(spaces, prepend=0).max(initial=0)) + 1


def _compile_synsets(source: Source, folder: Path) -> None:
    lines = source.lines("synonym/english.synsets")
    entries = {word: numbers.split() for word, numbers in zip(lines[::2], lines[1::2], strict=True)}
    lemmas = dict(entries)
    lines = source.lines("synonym/english.exceptions")
    for base, forms in zip(lines[::2], lines[1::2], strict=True):
        for form in forms.split():
            entries.setdefault(IRREGULAR + form, []).extend(lemmas.get(base, ()))
    hashes = line_hashes("".join([word + "\n" for word in entries]).encode())
    values = list(entries.values())
    ordered = [values[k] for k in np.argsort(hashes)]
    np.save(folder / LEMMAS, np.sort(hashes))
    np.save(folder / SYNSET_STARTS, np.cumsum([0, *map(len, ordered)]).astype(np.uint32))
    np.save(folder / SYNSETS, np.array([int(number) for numbers in ordered for number in numbers], np.uint32))


def _prefixes(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Words that keep a full stop behind them, and whether only before a number."""
    for line in lines:
        if line and not line.startswith("#"):
            yield line.split()[0], "#NUMERIC_ONLY#" in line


LAYOUT = "3"  # a new one makes old caches useless
PHRASES, SIEVE = "phrases.npy", "phrase-sieve.npy"
STARTS, PARTNERS = "partner-starts.npy", "partners.npy"
LEMMAS, SYNSET_STARTS, SYNSETS = "lemmas.npy", "synset-starts.npy", "synsets.npy"
SMALL = "small.json"

FORWARD, BACKWARD = 1, 2  # a pair stands in the table in this direction, against it, or both
IRREGULAR = "\x00"  # before an inflected form that WordNet lists as irregular
# WordNet's detachment rules; the first that gives a lemma counts.
_ENDINGS = (
    ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"), ("ies", "y"),
    ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""),
    ("er", ""), ("est", ""), ("er", "e"), ("est", "e"),
)  # fmt: skip

_SIEVE_BITS = 24

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]

_MULTIPLIER = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64
_INVERSE = pow(_MULTIPLIER, -1, 1 << 64)
_BYTE_VALUES = np.frombuffer(
    b"".join(blake2b(bytes([byte]), digest_size=8, person=b"sightline").digest() for byte in range(256)), "<u8"
).astype(np.uint64)


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


def find(table: U64, wanted: U64) -> Places:
    """Where each wanted hash stands in a sorted table, or -1."""
    order = np.argsort(wanted)  # neighbours in the table are looked up one after the other
    ascending = wanted[order]
    places = np.minimum(np.searchsorted(table, ascending), len(table) - 1)
    found = np.empty(len(order), np.int64)
    found[order] = np.where(table[places] == ascending, places, -1)
    return found


def sieve(table: U64) -> npt.NDArray[np.uint8]:
    """The first bits of hashes, as a bit map: small enough to stay in the processor's cache."""
    first = np.zeros(1 << _SIEVE_BITS, np.bool_)
    first[table >> np.uint64(64 - _SIEVE_BITS)] = True
    return np.packbits(first, bitorder="little")


def sift(sieve: npt.NDArray[np.uint8], wanted: U64) -> Places:
    """Which of the wanted hashes may be in the table: all that are, and few of the others."""
    first = wanted >> np.uint64(64 - _SIEVE_BITS)
    return np.flatnonzero(sieve[first >> np.uint64(3)] >> (first & np.uint64(7)).astype(np.uint8) & 1)


@dataclass(frozen=True)
class MeteorIndex:
    """METEOR's data: small lists in memory, large arrays memory-mapped on first use."""

    folder: Path
    function_words: frozenset[str]
    prefixes: dict[str, bool]  # words whose final full stop stays; True: only before a number
    longest_phrase: int  # in words

    @classmethod
    def open(cls, folder: Path) -> MeteorIndex:
        """The index in a folder that `meteor_data` compiled."""
        small = read_json(folder / SMALL)
        return cls(folder, frozenset(small["function_words"]), small["prefixes"], small["longest_phrase"])

    def phrase_ids(self, hashes: U64) -> Places:
        """The phrase of the paraphrase table with each hash, or -1."""
        found = np.full(len(hashes), -1, np.int64)
        likely = sift(self._sieve, hashes)
        found[likely] = find(self._phrases, hashes[likely])
        return found

    def partners(self, phrases: Places) -> tuple[Places, U32, U32]:
        """Every pair that some phrases are in: which of them, the other phrase, and the directions."""
        starts = self._starts[phrases].astype(np.int64)
        counts = self._starts[phrases + 1].astype(np.int64) - starts
        which = np.repeat(np.arange(len(phrases)), counts)
        within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        found = self._partners[np.repeat(starts, counts) + within]
        return which, found >> 2, found & 3

    @cached_property
    def synsets(self) -> Synsets:
        """WordNet's synonym sets."""
        return Synsets(*(_load(self.folder / name) for name in (LEMMAS, SYNSET_STARTS, SYNSETS)))

    @cached_property
    def _phrases(self) -> U64:
        return _load(self.folder / PHRASES)

    @cached_property
    def _sieve(self) -> npt.NDArray[np.uint8]:
        return _load(self.folder / SIEVE)

    @cached_property
    def _starts(self) -> U32:
        return _load(self.folder / STARTS)

    @cached_property
    def _partners(self) -> U32:
        return _load(self.folder / PARTNERS)


class Synsets:
    """The synonym sets of words, those of their regular and irregular base forms included."""

    def __init__(self, lemmas: U64, starts: U32, synsets: U32) -> None:
        self._lemmas, self._starts, self._synsets = lemmas, starts.tolist(), synsets.tolist()

    def of(self, words: Sequence[str]) -> list[frozenset[int]]:
        """The synonym sets of each word."""
        forms: list[str] = []
        bounds = [0]
        for word in words:
            forms += (word, IRREGULAR + word, *_bases(word))
            bounds.append(len(forms))
        text = "".join([form.replace("\n", " ") + "\n" for form in forms])
        places = find(self._lemmas, line_hashes(text.encode("utf-8", "surrogatepass"))).tolist()
        return [self._union(_entries(*places[start:stop])) for start, stop in pairwise(bounds)]

    def _union(self, places: list[int]) -> frozenset[int]:
        starts = self._starts
        return frozenset([synset for at in places for synset in self._synsets[starts[at] : starts[at + 1]]])


def _entries(own: int, irregular: int, *bases: int) -> list[int]:
    """A word's own entry, and that of its irregular form or else of its first known base."""
    base = irregular if irregular >= 0 else next((at for at in bases if at >= 0), -1)
    return [at for at in (own, base) if at >= 0]


def _bases(word: str) -> list[str]:
    if len(word) <= 2 or word[-1] not in "sndgrt":
        return []
    return [
        word[: -len(ending)] + replacement
        for ending, replacement in _ENDINGS
        if word.endswith(ending) and not (ending == "s" and word.endswith("ss"))
    ]


def _load(path: Path) -> npt.NDArray[Any]:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, EOFError, ValueError) as error:
        raise DataError(
            "the METEOR index is damaged", where=path, fix="remove its folder; it is compiled again at the next use"
        ) from error
