"""Files of one thing a line: captions of Flickr8k, Flickr30k and Conceptual Captions, Flickr8k's expert judgements,
text corpora, R2M's word counts, class names of a detector.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sightline.data.caption_format import (
    caption_format,
    count_captions,
    join_rows,
    line_of,
    mostly,
    numbered_lines,
    parse_lines,
    photo_of,
    record_format,
)
from sightline.data.format import Probe, Summary
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption
from sightline.errors import DataError, DuplicateRecordError
from sightline.files import write_text
from sightline.vision.find_photos import SUFFIXES

_TOKEN = re.compile(r"([^\t]+)#(\d+)\t(.*)$")
_CONCEPTUAL = re.compile(r"([^\t]*)\t(https?://\S+)\s*$")
_JUDGEMENT = re.compile(r"([^\t]+)\t([^\t]+#\d+)\t(-?\d{1,9})\t(-?\d{1,9})\t(-?\d{1,9})\s*$")
START, END = "<S>", "</S>"
_COUNT = re.compile(r"(\S+) (\d{1,18})$")


def read_flickr(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """Lines of `photo.jpg#0<TAB>caption`. A photo's id is its file name, a sentence's the whole `photo.jpg#0`."""
    known: set[str] = set()

    def row(line: str, where: str) -> CaptionedPhoto:
        parts = _TOKEN.match(line)
        if parts is None:
            raise DataError("not `photo.jpg#0<TAB>caption`", where=where, fix="write the line like the others")
        name, id, caption = parts[1], f"{parts[1]}#{parts[2]}", parts[3]
        if id in known:
            raise DuplicateRecordError(f"{id} appears twice", where=where, fix="number it anew")
        known.add(id)
        return CaptionedPhoto(name, (Sentence(check_caption(caption, where, problems), id=id),), name)

    return join_rows(parse_lines(path, problems, row), path)


def _count_flickr(captions: CaptionSet) -> Summary:
    counts, notes = count_captions(captions)
    odd = [photo.id for photo in captions if not photo.id.lower().endswith(SUFFIXES)]
    return counts, [f"{len(odd)} names are not those of pictures, such as {odd[0]}", *notes] if odd else notes


def read_conceptual(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """Lines of `caption<TAB>url`: the photo's id is the line's number, its file the address, which may come again."""
    photos = []
    for number, line in numbered_lines(path, problems):
        parts, where = _CONCEPTUAL.match(line), line_of(path, number)
        if parts is None:
            problems.report(DataError("not `caption<TAB>https://…`", where=where, fix="write the line like the others"))
            continue
        photos.append(photo_of(str(number), (parts[1],), where, problems, parts[2]))
    return CaptionSet(tuple(photos), str(path))


@dataclass(frozen=True)
class Judgement:
    """How well three people found that `caption` (an id such as `photo.jpg#2`, often another photo's) fits `image`.

    Scores go from 1 (not at all) to 4 (fully).
    """

    image: str
    caption: str
    scores: tuple[int, int, int]


def read_judgements(path: Path, problems: Problems = STRICT) -> list[Judgement]:
    """Every judgement of Flickr8k's `ExpertAnnotations.txt`, in file order."""
    known: set[tuple[str, str]] = set()

    def judgement(line: str, where: str) -> Judgement:
        parts = _JUDGEMENT.match(line)
        if parts is None:
            raise DataError("not `photo<TAB>caption id<TAB>score<TAB>score<TAB>score`", where=where)
        one, two, three = (int(parts[group]) for group in (3, 4, 5))
        if not all(1 <= score <= 4 for score in (one, two, three)):
            raise DataError(f"the scores {one}, {two}, {three} are not all from 1 to 4", where=where)
        if (parts[1], parts[2]) in known:
            raise DuplicateRecordError(f"{parts[2]} is judged twice for {parts[1]}", where=where)
        known.add((parts[1], parts[2]))
        return Judgement(parts[1], parts[2], (one, two, three))

    return list(parse_lines(path, problems, judgement))


def read_sentences(path: Path, problems: Problems = STRICT) -> list[str]:
    return list(parse_lines(path, problems, lambda line, where: check_caption(line, where, problems)))


def _count_sentences(sentences: list[str]) -> Summary:
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

    def pair(line: str, where: str) -> tuple[str, int]:
        parts = _COUNT.match(line)
        if parts is None:
            raise DataError(f"{line[:60]!r} is not a word, a space and a count", where=where)
        if parts[1] in counts:
            raise DuplicateRecordError(f"the word {parts[1]!r} appears twice", where=where, fix="add the counts")
        return check_caption(parts[1], where, problems), int(parts[2])

    counts.update(parse_lines(path, problems, pair))  # one by one: `pair` sees those before it
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


def _count_words(counts: dict[str, int]) -> Summary:
    values = [count for word, count in counts.items() if word not in (START, END)]
    notes = [] if list(counts)[:2] == [START, END] else [f"{START} and {END} are not the first two words"]
    if values != sorted(values, reverse=True):
        notes.append("the words are not sorted by count")
    return {"words": len(counts)}, notes


def read_class_names(path: Path, problems: Problems = STRICT) -> list[str]:
    """The names of GVD's `flickr30k_class_name.txt` and its like; the position is the class, counted from 0."""
    names: dict[str, None] = {}

    def pair(line: str, where: str) -> tuple[str, None]:
        if line.strip() in names:
            raise DuplicateRecordError(f"the class {line.strip()!r} appears twice", where=where)
        return line.strip(), None

    names.update(parse_lines(path, problems, pair))
    return list(names)


def _holds_class_names(probe: Probe) -> bool:
    """A text file that says so in its name: its lines could be anything's."""
    return probe.name.endswith(".txt") and "class_name" in probe.name and bool(probe.lines)


FLICKR = caption_format(
    "flickr-token",
    "Flickr8k / Flickr30k captions, a line each (Flickr8k.token.txt, results_20130124.token)",
    lambda probe: mostly(probe.lines, _TOKEN.match),
    read_flickr,
    count=_count_flickr,
)
CONCEPTUAL = caption_format(
    "conceptual-captions",
    "Conceptual Captions: captions with web addresses (Train_GCC-training.tsv)",
    lambda probe: mostly(probe.lines, _CONCEPTUAL.match),
    read_conceptual,
)
JUDGEMENTS = record_format(
    "flickr8k-judgements",
    "Expert judgements of captions for photos (ExpertAnnotations.txt)",
    lambda probe: mostly(probe.lines, _JUDGEMENT.match),
    read_judgements,
    lambda found: ({"judgements": len(found), "photos": len({one.image for one in found})}, ()),
)
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
