"""Text corpora without photos: one sentence per line, `.txt`."""

from __future__ import annotations

from pathlib import Path

from sightline.data.caption_format import checked, collect, line_of, mostly, numbered_lines
from sightline.data.format import Format, Probe, Report
from sightline.data.records import Problems


def matches(probe: Probe) -> bool:
    """A `.txt` whose lines are several words. Other line formats are more exact, so this one is tried last."""
    return probe.name.endswith(".txt") and not probe.json_start and mostly(probe.lines, _is_sentence)


def read_sentences(path: Path, problems: Problems | None = None) -> list[str]:
    """Every line, as it is."""
    met = Problems() if problems is None else problems
    return [checked(line, line_of(path, number), met) for number, line in numbered_lines(path, met)]


def inspect(path: Path) -> Report:
    """Counts of sentences and of their words, split at spaces."""
    sentences, problems = collect(path, read_sentences)
    counts: dict[str, int | str] = {
        "sentences": len(sentences or ()),
        "different sentences": len(set(sentences or ())),
        "words": sum(len(sentence.split()) for sentence in sentences or ()),
    }
    return Report.of(path, FORMAT, counts, problems)


def _is_sentence(line: str) -> bool:
    words = line.split()
    return len(words) > 1 and "\t" not in line and not words[1].isdigit()


FORMAT = Format("corpus", "A text corpus, a sentence per line", matches, inspect)
