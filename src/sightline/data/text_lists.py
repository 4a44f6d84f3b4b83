"""Words and sentences without photos, a line each: corpora, R2M's word counts, class names of a detector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sightline.data.caption_format import Counts, mostly, parse_lines, record_format
from sightline.data.format import Probe
from sightline.data.records import STRICT, Problems, check_caption
from sightline.errors import DataError, DuplicateRecordError
from sightline.files import write_text

START, END = "<S>", "</S>"
_COUNT = re.compile(r"(\S+) (\d{1,18})$")


def read_sentences(path: Path, problems: Problems = STRICT) -> list[str]:
    """The sentences of a corpus: every line, as it is."""
    return list(parse_lines(path, problems, lambda line, where: check_caption(line, where, problems)))


def _count_sentences(sentences: list[str]) -> tuple[Counts, tuple[str, ...]]:
    words = sum(len(sentence.split()) for sentence in sentences)
    return {"sentences": len(sentences), "different sentences": len(set(sentences)), "words": words}, ()


def _is_corpus(probe: Probe) -> bool:
    """A `.txt` whose lines are several words. Other line formats are more exact, so this one is tried last."""
    return probe.name.endswith(".txt") and not probe.json_start and mostly(probe.lines, _is_sentence)


def _is_sentence(line: str) -> bool:
    words = line.split()
    return len(words) > 1 and "\t" not in line and not words[1].isdigit()


def read_counts(path: Path, problems: Problems = STRICT) -> dict[str, int]:
    """Word to count of R2M's and UC-GAN's `word_counts.txt`, in file order: the position is the word's id."""
    counts: dict[str, int] = {}

    def add(line: str, where: str) -> None:
        parts = _COUNT.match(line)
        if parts is None:
            raise DataError(f"{line[:60]!r} is not a word, a space and a count", where=where)
        if parts[1] in counts:
            raise DuplicateRecordError(f"the word {parts[1]!r} appears twice", where=where, fix="add the counts")
        counts[check_caption(parts[1], where, problems)] = int(parts[2])

    for _ in parse_lines(path, problems, add):
        pass
    return counts


def write_counts(path: Path, counts: Mapping[str, int]) -> int:
    """Write `<S>` and `</S>`, then the words by falling count (ties in alphabetical order); returns the lines."""
    words = sorted((-count, word) for word, count in counts.items() if word not in (START, END))
    rows = [(mark, counts.get(mark, 0)) for mark in (START, END)] + [(word, -count) for count, word in words]
    for word, count in rows:
        if word.split() != [word] or count < 0:
            raise DataError(f"{word!r} with count {count} cannot be a line of a word list", where=path)
    write_text(path, "".join(f"{word} {count}\n" for word, count in rows))
    return len(rows)


def _count_words(counts: dict[str, int]) -> tuple[Counts, list[str]]:
    values = [count for word, count in counts.items() if word not in (START, END)]
    notes = [] if list(counts)[:2] == [START, END] else [f"{START} and {END} are not the first two words"]
    if values != sorted(values, reverse=True):
        notes.append("the words are not sorted by count")
    return {"words": len(counts)}, notes


def read_class_names(path: Path, problems: Problems = STRICT) -> list[str]:
    """The names of GVD's `flickr30k_class_name.txt` and its like; the position is the class, counted from 0."""
    names: dict[str, None] = {}

    def add(line: str, where: str) -> None:
        if line.strip() in names:
            raise DuplicateRecordError(f"the class {line.strip()!r} appears twice", where=where)
        names[line.strip()] = None

    for _ in parse_lines(path, problems, add):
        pass
    return list(names)


def _holds_class_names(probe: Probe) -> bool:
    """A text file that says so in its name: its lines could be anything's."""
    return probe.name.endswith(".txt") and "class_name" in probe.name and bool(probe.lines)


CORPUS = record_format("corpus", "A text corpus, a sentence per line", _is_corpus, read_sentences, _count_sentences)
WORD_COUNTS = record_format(
    "word-counts",
    "R2M / UC-GAN word list (word_counts.txt)",
    lambda probe: mostly(probe.lines, _COUNT.match),
    read_counts,
    _count_words,
)
CLASS_NAMES = record_format(
    "class-names",
    "Class names, one per line (flickr30k_class_name.txt)",
    _holds_class_names,
    read_class_names,
    lambda names: ({"classes": len(names)}, ()),
)
