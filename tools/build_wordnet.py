"""Compact the WordNet database into `src/sightline/text/assets/wordnet.npz`.

Source: Princeton WordNet 3.0 as the Debian package `wordnet-base` (version 1:3.0-37) ships it. Fetch and run:

    apt-get download wordnet-base && dpkg -x wordnet-base*.deb /tmp/wordnet
    python tools/build_wordnet.py /tmp/wordnet/usr/share/wordnet

Kept: lemmas with their senses in frequency order, how often each was seen in the sense-tagged texts (`cntlist.rev`),
hypernyms, lexicographer files, and the irregular inflections (`*.exc`). Left out: glosses, other relations.
The licence at the head of the database goes beside the asset as `WORDNET-LICENSE`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sightline.files import atomic_write, write_text

FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
ASSETS = Path(__file__).parents[1] / "src" / "sightline" / "text" / "assets"


@dataclass
class Synset:
    """One line of a data file: its lexicographer file, and the offsets of its hypernyms."""

    lexfile: int
    hypernyms: list[int] = field(default_factory=list)


def records(path: Path) -> list[list[str]]:
    """The fields of each line of a database file, without the licence at its head (lines that start with a space)."""
    return [line.split() for line in path.read_text("utf-8").splitlines() if not line.startswith(" ")]


def read_synsets(path: Path) -> dict[int, Synset]:
    """Offset to synset, in file order; `@` and `@i` (instance) pointers are the hypernyms."""
    synsets = {}
    for fields in records(path):
        words = int(fields[3], 16)
        first = 4 + 2 * words
        synset = Synset(int(fields[1]))
        for start in range(first + 1, first + 1 + 4 * int(fields[first]), 4):
            if fields[start] in ("@", "@i"):
                synset.hypernyms.append(int(fields[start + 1]))
        synsets[int(fields[0])] = synset
    return synsets


def read_senses(path: Path) -> dict[str, list[int]]:
    """Lemma (spaces for underscores) to the offsets of its senses, most frequent first."""
    senses = {}
    for fields in records(path):
        count, pointers = int(fields[2]), int(fields[3])
        senses[fields[0].replace("_", " ")] = [int(offset) for offset in fields[6 + pointers : 6 + pointers + count]]
    return senses


def read_counts(path: Path) -> Counter[tuple[str, str]]:
    """How often each (part of speech, lemma) was seen in the sense-tagged texts."""
    kinds = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
    counts: Counter[tuple[str, str]] = Counter()
    for key, _, count in records(path):
        lemma, rest = key.split("%")
        counts[kinds[rest[0]], lemma.replace("_", " ")] += int(count)
    return counts


def delta(values: list[int] | np.ndarray) -> np.ndarray:
    """Differences of neighbours: small numbers compress well. The reader sums them again."""
    return np.diff(np.asarray(values, dtype=np.int64), prepend=0).astype(np.int32)


def text(lines: list[str]) -> np.ndarray:
    """Lines as one byte array."""
    return np.frombuffer("\n".join(lines).encode("utf-8"), dtype=np.uint8)


def build(source: Path) -> dict[str, np.ndarray]:
    """Every array of the asset."""
    synsets = {pos: read_synsets(source / f"data.{name}") for pos, name in FILES.items()}
    senses = {pos: read_senses(source / f"index.{name}") for pos, name in FILES.items()}
    counts = read_counts(source / "cntlist.rev")
    words = sorted(set().union(*senses.values()))
    place = {word: i for i, word in enumerate(words)}
    # A synset's id is its offset, prefixed by 1 to 4 for noun, verb, adjective, adverb, as in WordNet's Prolog files.
    ids = [(k + 1) * 100_000_000 + offset for k, pos in enumerate(FILES) for offset in sorted(synsets[pos])]
    row = {synset: i for i, synset in enumerate(ids)}
    arrays = {"words": text(words), "ids": delta(ids)}
    lexfiles, parents, parent_counts = [], [], []
    for k, pos in enumerate(FILES):
        prefix = (k + 1) * 100_000_000
        for offset in sorted(synsets[pos]):
            synset = synsets[pos][offset]
            lexfiles.append(synset.lexfile)
            parent_counts.append(len(synset.hypernyms))
            parents += [row[prefix + parent] - row[prefix + offset] for parent in synset.hypernyms]
        ordered = sorted(senses[pos])
        arrays[f"{pos}_words"] = delta([place[lemma] for lemma in ordered])
        arrays[f"{pos}_counts"] = np.array([len(senses[pos][lemma]) for lemma in ordered], dtype=np.uint8)
        arrays[f"{pos}_senses"] = np.array(
            [row[prefix + offset] for lemma in ordered for offset in senses[pos][lemma]], dtype=np.int32
        )
        arrays[f"{pos}_seen"] = np.array([min(counts[pos, lemma], 65535) for lemma in ordered], dtype=np.uint16)
        exceptions = (source / f"{FILES[pos]}.exc").read_text("utf-8").splitlines()
        arrays[f"{pos}_exceptions"] = text(exceptions)
    arrays["lexfiles"] = np.array(lexfiles, dtype=np.uint8)
    arrays["parents"] = np.array(parents, dtype=np.int32)
    arrays["parent_counts"] = np.array(parent_counts, dtype=np.uint8)
    return arrays


def licence(source: Path) -> str:
    """The licence from the head of the noun database, without its line numbers."""
    head = [line for line in (source / "data.noun").read_text("utf-8").splitlines() if line.startswith(" ")]
    return "\n".join(line.split(None, 1)[1].rstrip() if len(line.split()) > 1 else "" for line in head) + "\n"


def main() -> None:
    """Read the database folder named on the command line, write the two assets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder with data.noun, index.noun, noun.exc, …, cntlist.rev")
    parser.add_argument("--out", type=Path, default=ASSETS)
    options = parser.parse_args()
    arrays = build(options.source)
    with atomic_write(options.out / "wordnet.npz") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type,unused-ignore]
    write_text(options.out / "WORDNET-LICENSE", licence(options.source))
    print(f"{options.out / 'wordnet.npz'}: {(options.out / 'wordnet.npz').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
