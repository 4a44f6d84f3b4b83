"""Files of one thing a line: captions of Flickr8k, Flickr30k and Conceptual Captions, Flickr8k's expert judgements,
text corpora, R2M's word counts, class names of a detector.
"""

import re
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
    parse_unique_lines,
    photo_of,
    record_format,
)
from sightline.data.format import Probe, Summary
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption
from sightline.errors import DataError, plural
from sightline.vision.find_photos import SUFFIXES

_TOKEN = re.compile(r"([^\t]+)#(\d+)\t(.*)$")
_CONCEPTUAL = re.compile(r"([^\t]*)\t(https?://\S+)\s*$")
_JUDGEMENT = re.compile(r"([^\t]+)\t([^\t]+#\d+)\t(-?\d{1,9})\t(-?\d{1,9})\t(-?\d{1,9})\s*$")
START, END = "<S>", "</S>"
_COUNT = re.compile(r"(\S+) (\d{1,18})$")


def read_flickr(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """Lines of `photo.jpg#0<TAB>caption`. A photo's id is its file name, a sentence's the whole `photo.jpg#0`."""

    def row(line: str, where: str) -> tuple[str, CaptionedPhoto]:
        match = _TOKEN.match(line)
        if match is None:
            raise DataError("not `photo.jpg#0<TAB>caption`", where=where, fix="write the line like the others")
        file, number, caption = match.groups()
        sentence = Sentence(check_caption(caption, where, problems), id=f"{file}#{number}")
        return f"{file}#{number}", CaptionedPhoto(file, (sentence,), file)

    return join_rows(parse_unique_lines(path, problems, row).values(), path)


def _count_flickr(captions: CaptionSet) -> Summary:
    counts, notes = count_captions(captions)
    odd = [photo.id for photo in captions if not photo.id.lower().endswith(SUFFIXES)]
    if odd:
        verb = "is not that of a picture" if len(odd) == 1 else "are not those of pictures"
        notes = [f"{plural(len(odd), 'name')} {verb}, such as {odd[0]}", *notes]
    return counts, notes


def read_conceptual(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """Lines of `caption<TAB>url`: the photo's id is the line's number, its file the address, which may come again."""
    photos = []
    for number, line in numbered_lines(path, problems):
        match, where = _CONCEPTUAL.match(line), line_of(path, number)
        if match is None:
            problems.report(DataError("not `caption<TAB>https://…`", where=where, fix="write the line like the others"))
            continue
        photos.append(photo_of(str(number), (match[1],), where, problems, match[2]))
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

    def judgement(line: str, where: str) -> tuple[str, Judgement]:
        match = _JUDGEMENT.match(line)
        if match is None:
            raise DataError("not `photo<TAB>caption id<TAB>score<TAB>score<TAB>score`", where=where)
        photo, caption = match[1], match[2]
        scores = int(match[3]), int(match[4]), int(match[5])
        if not all(1 <= score <= 4 for score in scores):
            raise DataError(f"the scores {', '.join(map(str, scores))} are not all from 1 to 4", where=where)
        return f"{caption} for {photo}", Judgement(photo, caption, scores)

    return list(parse_unique_lines(path, problems, judgement).values())


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

    def pair(line: str, where: str) -> tuple[str, int]:
        match = _COUNT.match(line)
        if match is None:
            raise DataError(f"{line[:60]!r} is not a word, a space and a count", where=where)
        return check_caption(match[1], where, problems), int(match[2])

    return parse_unique_lines(path, problems, pair)


def _count_words(counts: dict[str, int]) -> Summary:
    values = [count for word, count in counts.items() if word not in (START, END)]
    notes = [] if list(counts)[:2] == [START, END] else [f"{START} and {END} are not the first two words"]
    if values != sorted(values, reverse=True):
        notes.append("the words are not sorted by count")
    return {"words": len(counts)}, notes


def read_class_names(path: Path, problems: Problems = STRICT) -> list[str]:
    """The names of GVD's `flickr30k_class_name.txt` and its like; the position is the class, counted from 0."""
    return list(parse_unique_lines(path, problems, lambda line, where: (line.strip(), None)))


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
    lambda judgements: ({"judgements": len(judgements), "photos": len({one.image for one in judgements})}, ()),
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
    # Which says so in its name: its lines could be anything's.
    lambda probe: probe.name.endswith(".txt") and "class_name" in probe.name and bool(probe.lines),
    read_class_names,
    lambda names: ({"classes": len(names)}, ()),
)
