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
from pathlib import Path

import numpy as np

from sightline.errors import DataError, MissingExtraError, TruncatedError
from sightline.files import cache_dir, fingerprint, lock, open_bytes, sync_folder, write_json
from sightline.metrics import meteor_index as index

_CHUNK = 1 << 22  # bytes of text hashed at a time

Progress = Callable[[int], None]


def open_data() -> index.MeteorIndex:
    """The index in the user's cache, compiled first where it is not there yet (some seconds, once)."""
    source = Source.installed()
    folder = cache_dir() / f"meteor-1.5-{source.fingerprint}"
    if not folder.exists():
        _compile_once(source, folder)
    return index.MeteorIndex.open(folder)


@dataclass(frozen=True)
class Source:
    """Where METEOR's data lies: the tool's jar and its paraphrase table."""

    jar: Path
    paraphrases: Path

    @classmethod
    def installed(cls) -> Source:
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
            return fingerprint(index.LAYOUT, *sums, file.read())

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
        write_json(work / index.SMALL, small)
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
    np.save(folder / index.PHRASES, phrases)
    np.save(folder / index.BUCKETS, index.buckets(phrases))
    np.save(folder / index.SIEVE, index.sieve(phrases))
    left, right = ids.reshape(-1, 2).T.astype(np.uint64)
    del ids
    pairs = np.concatenate([left << 34 | right << 2 | index.FORWARD, right << 34 | left << 2 | index.BACKWARD])
    del left, right
    pairs.sort()
    both = np.flatnonzero(pairs[1:] >> 2 == pairs[:-1] >> 2)  # pairs that stand in the table in both directions
    pairs[both] |= np.uint64(index.BACKWARD)
    pairs = np.delete(pairs, both + 1)
    np.save(folder / index.PARTNERS, (pairs & 0xFFFFFFFF).astype(np.uint32))
    starts = np.searchsorted(pairs >> 34, np.arange(len(phrases) + 1, dtype=np.uint64))
    np.save(folder / index.STARTS, starts.astype(np.uint32))
    return longest


def _read_pairs(path: Path, tell: Progress) -> tuple[index.U64, int]:
    """Hashes of the phrases of every pair, one after the other, from records of three lines: score, phrase, phrase."""
    parts: list[index.U64] = []
    rest = b""
    lines = longest = 0
    with open_bytes(path) as file:
        while chunk := file.read(_CHUNK):
            text = rest + chunk
            cut = text.rfind(b"\n") + 1
            text, rest = text[:cut], text[cut:]
            found = index.line_hashes(text)
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
            entries.setdefault(index.IRREGULAR + form, []).extend(lemmas.get(base, ()))
    hashes = index.line_hashes("".join([word + "\n" for word in entries]).encode())
    values = list(entries.values())
    ordered = [values[k] for k in np.argsort(hashes)]
    np.save(folder / index.LEMMAS, np.sort(hashes))
    np.save(folder / index.SYNSET_STARTS, np.cumsum([0, *map(len, ordered)]).astype(np.uint32))
    np.save(folder / index.SYNSETS, np.array([int(number) for numbers in ordered for number in numbers], np.uint32))


def _prefixes(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Words that keep a full stop behind them, and whether only before a number."""
    for line in lines:
        if line and not line.startswith("#"):
            yield line.split()[0], "#NUMERIC_ONLY#" in line
